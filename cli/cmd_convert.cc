// spa convert, quantize, synth: write GGUF files.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "engine/memory.h"
#include "writer/write_model.h"

namespace spa::cli {
namespace {

std::vector<std::string> TypeNames() {
  std::vector<std::string> names;
  for (const DType dtype : EncodableTypes()) names.emplace_back(Info(dtype).name);
  return names;
}

DType TypeFromName(const std::string& name) {
  const auto dtype = ParseDType(name);
  if (!dtype || std::ranges::find(EncodableTypes(), *dtype) == EncodableTypes().end()) {
    throw Error("cannot write the type '{}': choose from {}", name, fmt::join(TypeNames(), ", "));
  }
  return *dtype;
}

struct ConvertFlags {
  std::string in, out, type, shape = "llada-8b";
  size_t threads = 0, layers = 0;
  uint64_t seed = 0;

  void AddThreads(Command& command) {
    command.Add("-t,--threads", threads, "Threads to use (default: one per core)")
        .Between(1, 1024)
        .Type("N");
  }
};

void ReportWritten(const std::string& path) {
  fmt::print("{}: {}\n", path, FormatBytes(std::filesystem::file_size(path)));
}

void Write(const ConvertFlags& flags) {
  ProgressBar bar;
  WriteOptions options;
  if (!flags.type.empty()) options.dtype = TypeFromName(flags.type);
  ThreadPool pool(flags.threads);
  const ModelFile model = ModelFile::Open(flags.in);
  options.progress = [&](std::string_view what, double share) { bar.Show(what, share); };
  const std::vector<OtherType> others = WriteModel(model, flags.out, options, pool);
  bar.Clear();
  ReportWritten(flags.out);
  if (others.empty()) return;
  std::map<std::string_view, size_t> counts;
  for (const OtherType& other : others) ++counts[Info(other.dtype).name];
  for (const auto& [type, count] : counts) {
    PrintStderr("{} in {}, because {}'s blocks of {} do not divide their rows\n",
                count == 1 ? "1 matrix is" : fmt::format("{} matrices are", count), type,
                flags.type, Info(*options.dtype).block_size);
  }
}

void Synthesize(const ConvertFlags& flags) {
  ProgressBar bar;
  ThreadPool pool(flags.threads);
  const auto dtype = ParseDType(flags.type);
  if (!dtype) throw Error("there is no tensor type '{}'", flags.type);
  WriteSynthetic(
      NamedShape(flags.shape, flags.layers), *dtype, flags.seed, flags.out,
      [&](std::string_view what, double share) { bar.Show(what, share); }, pool);
  bar.Clear();
  ReportWritten(flags.out);
}

}  // namespace

void AddConvert(CommandLine& line) {
  auto flags = std::make_shared<ConvertFlags>();
  Command command = line.Add("convert", "Write a Hugging Face folder as one GGUF file");
  command.Add("folder", flags->in, "Hugging Face folder").Required();
  command.Add("out", flags->out, "GGUF file to write").Required();
  command.Add(
      "--type", flags->type,
      fmt::format("Type of the matrices: {} (default: as stored)", fmt::join(TypeNames(), ", ")));
  flags->AddThreads(command);
  command.Footer("Example:\n  spa convert LLaDA-8B-Instruct/ llada-8b-bf16.gguf");
  command.Action([flags] { Write(*flags); });
}

void AddQuantize(CommandLine& line) {
  auto flags = std::make_shared<ConvertFlags>();
  Command command = line.Add("quantize", "Re-encode a model's matrices");
  command.Add("in", flags->in, "GGUF file or Hugging Face folder").Required();
  command.Add("out", flags->out, "GGUF file to write").Required();
  command.Add("type", flags->type, fmt::format("{}", fmt::join(TypeNames(), ", "))).Required();
  flags->AddThreads(command);
  command.Footer("Example:\n  spa quantize llada-8b-bf16.gguf llada-8b-q4_0.gguf Q4_0");
  command.Action([flags] { Write(*flags); });
}

void AddSynth(CommandLine& line) {
  auto flags = std::make_shared<ConvertFlags>();
  flags->type = "Q4_0";
  Command command =
      line.Add("synth", "Write a random-weight model with real dimensions, for benchmarking");
  command.Add("out", flags->out, "GGUF file to write").Required();
  command.Add("--shape", flags->shape,
              "A published model's shape (default llada-8b; a wrong name lists all)");
  command.Add("--type", flags->type, "Type of the matrices (default Q4_0)");
  command.Add("--layers", flags->layers, "Cut to this many layers (default: all)").Between(1, 1024);
  command.Add("--seed", flags->seed, "Seed of the weights (default 0)");
  flags->AddThreads(command);
  command.Footer("Example:\n  spa synth llada-4-layers.gguf --layers 4 --type Q4_K");
  command.Action([flags] { Synthesize(*flags); });
}

}  // namespace spa::cli
