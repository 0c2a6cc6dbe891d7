// spa logits: raw logits of one dense pass, for cross-checks with other programs.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/matrix.h"
#include "cli/commands.h"
#include "cli/flags.h"

namespace spa::cli {
namespace {

struct LogitsFlags {
  ModelFlags model;
  std::string ids_file, out, attention;
  size_t block_length = 0, prompt_length = 0;
};

// The model's own pattern, unless the flags change it.
AttentionPattern Attention(const LogitsFlags& flags, const ModelConfig& config) {
  AttentionPattern attention = config.attention;
  if (flags.attention == "full") {
    if (flags.block_length > 0) throw Error("full attention has no --block-length");
    attention = {};
  } else if (flags.attention == "block" || flags.block_length > 0) {
    attention.kind = AttentionKind::kBlocks;
    if (attention.block_length == 0) attention.block_length = config.decode.block_length;
  } else if (!flags.attention.empty()) {
    throw Error("--attention is full or block, not '{}'", flags.attention);
  }
  if (flags.block_length > 0) attention.block_length = flags.block_length;
  if (attention.kind == AttentionKind::kBlocks && attention.block_length == 0) {
    throw Error("this model names no block length: give --block-length");
  }
  if (flags.prompt_length > 0) attention.origin = BlockOrigin::kPromptEnd;
  return attention;
}

void RunLogits(const LogitsFlags& flags) {
  const std::vector<TokenId> ids = ReadIds(flags.ids_file);
  AtomicFile file(flags.out);
  const auto engine = flags.model.Load();
  Mat<float> logits(ids.size(), engine->config().vocab_rows);
  engine->DenseLogits(
      ids,
      [&](size_t row, std::span<const float> values) {
        std::ranges::copy(values, logits.Row(row));
      },
      {.attention = Attention(flags, engine->config()), .prompt_length = flags.prompt_length});
  file.Write(logits.data(), logits.rows() * logits.cols() * sizeof(float));
  file.Commit();
}

}  // namespace

void AddLogits(CommandLine& line) {
  auto flags = std::make_shared<LogitsFlags>();
  Command command = line.Add("logits", "Write the raw logits of one dense pass");
  command.Add("--ids", flags->ids_file, "Whitespace-separated token ids; - for stdin")
      .Required()
      .Type("FILE");
  command
      .Add("--out", flags->out,
           "Output: float32, little-endian, row-major, tokens x vocabulary, not shifted")
      .Required()
      .Type("FILE");
  command.Add("--attention", flags->attention, "full or block (default: the model's)");
  command.Add("--block-length", flags->block_length, "Block attention in blocks of this length");
  command.Add("--prompt-length", flags->prompt_length,
              "Count blocks back from the end of a prompt of this length");
  flags->model.kv = "f32";  // the reference: full precision
  flags->model.Add(command);
  command.Footer("Example:\n  spa logits -m model.gguf --ids ids.txt --out logits.f32");
  command.Action([flags] { RunLogits(*flags); });
}

}  // namespace spa::cli
