// Any bytes as the records of an evaluation end in samples that survive being written again, or in
// Error; and a file that is not ours is left as it was. The same bytes are tried as questions.
#include "lab/questions.h"
#include "lab/samples.h"
#include "tests/fuzz/fuzz_util.h"

namespace {

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(spa::AsText(data, size));
  const auto path = spa::WriteScratch("samples.jsonl", bytes);
  bool accepted = false;
  spa::AcceptOrRefuse([&] {
    const spa::SampleFile file(path, R"({"steps":64})");
    accepted = true;
    for (const spa::Sample& sample : file.finished()) {
      const std::string line = spa::SampleToJson(sample);
      spa::Require(line.find('\n') == std::string::npos);
      spa::Require(spa::SampleToJson(spa::SampleFromJson(line)) == line);
    }
  });
  if (!accepted) spa::Require(Read(path) == bytes);

  const auto questions = spa::WriteScratch("questions.json", bytes);
  for (const spa::TaskKind kind :
       {spa::TaskKind::kBbh, spa::TaskKind::kGsm8k, spa::TaskKind::kJsonl}) {
    spa::AcceptOrRefuse([&] {
      spa::TaskOptions options;
      options.kind = kind;
      spa::Require(!spa::ReadQuestions(questions, options).questions.empty());
    });
  }
  return 0;
}
