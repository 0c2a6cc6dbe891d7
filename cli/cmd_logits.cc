// spa logits: raw logits of one dense pass, for cross-checks with other programs.
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/matrix.h"
#include "cli/commands.h"
#include "cli/flags.h"

namespace spa::cli {
namespace {

struct Flags {
  ModelFlags model;
  std::string ids_file, out;
};

void Run(const Flags& flags) {
  const std::vector<TokenId> ids = ReadIds(flags.ids_file);
  const auto engine = flags.model.Load();
  AtomicFile file(flags.out);
  Mat<float> logits(ids.size(), engine->config().vocab_rows);
  engine->DenseLogits(ids, [&](size_t row, std::span<const float> values) {
    std::ranges::copy(values, logits.Row(row));
  });
  file.Write(logits.data(), logits.rows() * logits.cols() * sizeof(float));
  file.Commit();
}

}  // namespace

void AddLogits(CommandLine& line) {
  auto flags = std::make_shared<Flags>();
  Command command = line.Add("logits", "Write the raw logits of one dense pass");
  command.Add("--ids", flags->ids_file, "Whitespace-separated token ids; - for stdin")
      .Required().Type("FILE");
  command.Add("--out", flags->out,
              "Output: float32, little-endian, row-major, tokens x vocabulary, not shifted")
      .Required().Type("FILE");
  flags->model.Add(command);
  command.Footer("Example:\n  spa logits -m model.gguf --ids ids.txt --out logits.f32");
  command.Action([flags] { Run(*flags); });
}

}  // namespace spa::cli
