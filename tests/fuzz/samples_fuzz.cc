// Any bytes as the records of an evaluation end in samples that survive being written again, or in
// Error; and a file that is not ours is left as it was. The same bytes are tried as questions.
#include "lab/questions.h"
#include "lab/samples.h"
#include "tests/fuzz/fuzz_util.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static spa::ScratchFile samples("samples.jsonl"), questions("questions.json");
  const std::string_view bytes = spa::AsText(data, size);
  samples.Write(bytes);
  bool accepted = false;
  spa::AcceptOrRefuse([&] {
    const spa::SampleFile file(samples.path(), R"({"steps":64})");
    accepted = true;
    for (const spa::Sample& sample : file.finished()) {
      const std::string line = spa::SampleToJson(sample);
      spa::Require(line.find('\n') == std::string::npos);
      spa::Require(spa::SampleToJson(spa::SampleFromJson(line)) == line);
    }
  });
  if (!accepted) spa::Require(samples.Read() == bytes);

  questions.Write(bytes);
  for (const spa::TaskKind kind :
       {spa::TaskKind::kBbh, spa::TaskKind::kGsm8k, spa::TaskKind::kJsonl}) {
    spa::AcceptOrRefuse([&] {
      spa::TaskOptions options;
      options.kind = kind;
      spa::Require(!spa::ReadQuestions(questions.path(), options).questions.empty());
    });
  }
  return 0;
}
