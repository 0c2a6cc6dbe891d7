// The one table of decoding options. A new option is one entry in it; its flag, request field,
// record and documentation follow.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "decode/options.h"

namespace spa {

struct DecodeOption {
  OptionInfo info;
  void (*set)(const OptionValue& value, DecodeOptions& options);
  std::string (*get)(const DecodeOptions& options);
};

const std::vector<DecodeOption>& DecodeOptionTable();

// Every option with its value, in the order of the table: what a record of a run needs.
std::vector<std::pair<std::string, std::string>> DescribeDecodeOptions(
    const DecodeOptions& options);

}  // namespace spa
