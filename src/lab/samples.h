// The records of an evaluation: one sample per question, appended to a file as questions finish, so
// that an interrupted run resumes where it stopped.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "decode/generation.h"

namespace spa {

// One finished question.
struct Sample {
  std::string id;
  std::string text;    // everything the model wrote
  std::string answer;  // what was found in it
  std::string expected;
  bool correct = false;
  std::vector<TokenId> ids;  // the whole canvas
  GenerationStats stats;
};

std::string SampleToJson(const Sample& sample);
// Throws Error if the line is not a whole sample.
Sample SampleFromJson(const std::string& line);

// The records of a run: a line with its settings, then a line per sample, appended as they finish.
class SampleFile {
 public:
  // Opens or creates the file. `settings` is a JSON object. A last line that was cut off is
  // removed. Throws Error if the file was made with other settings, is damaged, or is being written
  // by another run.
  SampleFile(std::filesystem::path path, const std::string& settings);
  ~SampleFile();
  SampleFile(const SampleFile&) = delete;
  SampleFile& operator=(const SampleFile&) = delete;

  const std::vector<Sample>& finished() const { return finished_; }
  // Handed to the operating system when it returns.
  void Append(const Sample& sample);

 private:
  void WriteLine(const std::string& line);

  std::filesystem::path path_;
  int fd_ = -1;
  std::vector<Sample> finished_;
};

}  // namespace spa
