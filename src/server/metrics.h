// Counters of the server in Prometheus' text format. Any thread may count.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "server/mailbox.h"

namespace spa {

class Metrics {
 public:
  void CountRequest(const std::string& route, int status, double seconds);
  void CountCancelled();
  void CountGeneration(const GenerationStats& stats);
  void CountStep(double seconds, size_t num_sequences);
  void SetQueued(size_t count);
  void SetRunning(size_t count);
  // Memory for generations: the limit, and what is promised now.
  void SetMemory(size_t limit);
  void SetPromised(size_t bytes);
  // Prefixes held for later requests, and how many have been dropped so far.
  void SetPrefixes(size_t count, size_t bytes, size_t dropped);
  void CountMemoryWait();
  void CountTooLarge();

  size_t queued() const;
  // Mean seconds of recent requests, for Retry-After.
  double TypicalSeconds() const;

  std::string Text() const;

 private:
  class Histogram {
   public:
    void Add(double seconds);
    void Write(const std::string& name, const std::string& help, std::string* out) const;

   private:
    static constexpr std::array kBounds = {0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0};
    std::array<uint64_t, kBounds.size() + 1> counts_{};
    double sum_ = 0.0;
  };

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> requests_;  // route, status
  uint64_t cancelled_ = 0, prompt_tokens_ = 0, generated_tokens_ = 0, canvas_tokens_ = 0;
  uint64_t steps_ = 0, sequence_steps_ = 0, rows_computed_ = 0, rows_total_ = 0;
  size_t queued_ = 0, running_ = 0;
  size_t memory_ = 0, promised_ = 0, most_promised_ = 0;
  uint64_t memory_waits_ = 0, too_large_ = 0;
  size_t prefixes_ = 0, prefix_bytes_ = 0, prefixes_dropped_ = 0;
  uint64_t prefix_hits_ = 0, reused_tokens_ = 0;
  double typical_seconds_ = 1.0;
  Histogram request_seconds_, queue_seconds_, first_text_seconds_, step_seconds_;
};

}  // namespace spa
