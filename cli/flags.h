// Flags that several commands share, each group declared once.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/terminal.h"
#include "engine/decode_choices.h"
#include "engine/engine.h"
#include "lab/questions.h"

namespace spa::cli {

// -m, --threads, --kv
struct ModelFlags {
  std::string model;
  size_t threads = 0;
  std::string kv = "auto";

  Flag Add(Command& command);  // returns that of the model
  // Loads the model with a progress bar.
  std::unique_ptr<Engine> Load() const;
};

// How to decode: a flag for every option of DecodeOptionTable.
struct DecodeFlags {
  std::map<std::string, std::optional<std::string>> given;

  void Add(Command& command);
  bool has(const std::string& name) const { return given.at(name).has_value(); }
  // Throws Error for a value that an option does not take; needs no model.
  DecodeChoices Choices() const;
  // The model's defaults with what was given on the command line.
  DecodeOptions Resolve(const Engine& engine) const;
};

// --cache, --cache-opt
struct CacheFlags {
  std::optional<std::string> name;  // absent: the model's default
  std::vector<std::string> options;

  void Add(Command& command);
  // Throws Error for options that the cache named does not take, or for a cache that exact decoding
  // would not use; needs no model.
  void Check(const DecodeChoices& decode = {}) const;
  CacheSpec Spec(const Engine& engine) const;
};

// --data, --task, --limit
struct QuestionFlags {
  std::vector<std::string> data;
  std::string task = "bbh";
  size_t limit = 20;  // per file

  // Returns that of the data.
  Flag Add(Command& command);
  // The questions of all files; none if none are given.
  std::vector<Question> Read(const TaskOptions& options) const;
};

// Throws Error for an unknown cache or an option it does not take; needs no model.
std::vector<CacheSpec> CheckCaches(std::vector<CacheSpec> specs);

// Writes text and a newline to stdout; throws Error when stdout is closed.
void PrintLine(const std::string& text);

// Reads a whole file, or stdin for "-".
std::string ReadText(const std::string& path);

// Whitespace-separated token ids from a file, or stdin for "-".
std::vector<TokenId> ReadIds(const std::string& path);

}  // namespace spa::cli
