// spa bench --race: a whole answer, beside an autoregressive model of the same size in llama.cpp.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "engine/engine.h"

namespace spa::cli {

struct RaceFlags {
  bool on = false;
  bool full = false;  // every step is run, as with a window
  std::string prompts = "256,1024";
  std::string rates = "1,2,4,6";  // tokens settled per step
  std::string cache = "spa";
  std::string llama_bench;  // llama.cpp's bench program; empty: only ours
  std::string llama_model;  // what it runs
  size_t answer = 256, block = 32, threads = 1;
  std::optional<size_t> window;  // masks behind the block that take part; nothing: all

  Flag Add(Command& command);  // returns --race, which other flags exclude
};

// llama.cpp on one course.
struct LlamaTimes {
  size_t prompt = 0;
  double prompt_seconds = 0.0;
  double token_seconds = 0.0;  // per token after the prompt
  size_t peak_bytes = 0;       // resident, weights included
};

// Runs the program; nothing if none is given.
std::vector<LlamaTimes> RunLlamaBench(const RaceFlags& flags);
void PrintRace(Engine& engine, const RaceFlags& flags, const std::vector<LlamaTimes>& llama,
               bool json);

// A temporary random-weight model.
class TemporaryModel {
 public:
  TemporaryModel(const ModelConfig& shape, const std::string& type, bool autoregressive,
                 ThreadPool& pool);
  ~TemporaryModel();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace spa::cli
