#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/memory.h"

namespace spa {
namespace {

void Head(const char* name, const char* type, const char* help, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "# HELP dlm_{} {}\n# TYPE dlm_{} {}\n", name, help, name,
                 type);
}

void Value(const char* name, const char* type, const char* help, uint64_t value, std::string* out) {
  Head(name, type, help, out);
  fmt::format_to(std::back_inserter(*out), "dlm_{} {}\n", name, value);
}

}  // namespace

void Metrics::Histogram::Add(double seconds) {
  size_t bucket = 0;
  while (bucket < kBounds.size() && seconds > kBounds[bucket]) ++bucket;
  ++counts_[bucket];
  sum_ += seconds;
}

void Metrics::Histogram::Write(const std::string& name, const std::string& help,
                               std::string* out) const {
  Head(name.c_str(), "histogram", help.c_str(), out);
  uint64_t count = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    fmt::format_to(std::back_inserter(*out), "dlm_{}_bucket{{le=\"{}\"}} {}\n", name, bound, count);
  }
  fmt::format_to(std::back_inserter(*out), "dlm_{}_sum {}\ndlm_{}_count {}\n", name, sum_, name,
                 count);
}

void Metrics::CountRequest(const std::string& route, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++requests_[{route, status}];
  request_seconds_.Add(seconds);
}

void Metrics::CountCancelled() {
  const std::lock_guard lock(mutex_);
  ++cancelled_;
}

void Metrics::CountGeneration(const GenerationStats& stats) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += stats.prompt_tokens;
  reused_tokens_ += stats.reused_tokens;
  if (stats.reused_tokens > 0) ++prefix_hits_;
  generated_tokens_ += stats.generated_tokens;
  canvas_tokens_ += stats.canvas_tokens;
  rows_computed_ += stats.rows_computed;
  rows_total_ += stats.rows_total;
  queue_seconds_.Add(stats.queue_seconds);
  if (stats.first_text_seconds > 0.0) first_text_seconds_.Add(stats.first_text_seconds);
  if (stats.seconds > 0.0) typical_seconds_ += 0.1 * (stats.seconds - typical_seconds_);
}

void Metrics::CountStep(double seconds, size_t num_sequences) {
  const std::lock_guard lock(mutex_);
  ++steps_;
  sequence_steps_ += num_sequences;
  step_seconds_.Add(seconds);
}

void Metrics::SetQueued(size_t count) {
  const std::lock_guard lock(mutex_);
  queued_ = count;
}

void Metrics::SetRunning(size_t count) {
  const std::lock_guard lock(mutex_);
  running_ = count;
}

void Metrics::SetMemory(size_t limit) {
  const std::lock_guard lock(mutex_);
  memory_ = limit;
}

void Metrics::SetPromised(size_t bytes) {
  const std::lock_guard lock(mutex_);
  promised_ = bytes;
  most_promised_ = std::max(most_promised_, bytes);
}

void Metrics::SetPrefixes(size_t count, size_t bytes, size_t dropped) {
  const std::lock_guard lock(mutex_);
  prefixes_ = count;
  prefix_bytes_ = bytes;
  prefixes_dropped_ = dropped;
}

void Metrics::CountMemoryWait() {
  const std::lock_guard lock(mutex_);
  ++memory_waits_;
}

void Metrics::CountTooLarge() {
  const std::lock_guard lock(mutex_);
  ++too_large_;
}

size_t Metrics::queued() const {
  const std::lock_guard lock(mutex_);
  return queued_;
}

double Metrics::TypicalSeconds() const {
  const std::lock_guard lock(mutex_);
  return typical_seconds_;
}

std::string Metrics::Text() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  Head("requests_total", "counter", "HTTP requests by route and status", &out);
  for (const auto& [key, count] : requests_) {
    fmt::format_to(std::back_inserter(out), "dlm_requests_total{{route=\"{}\",status=\"{}\"}} {}\n",
                   key.first, key.second, count);
  }
  Value("requests_cancelled_total", "counter", "Generations ended by a disconnect", cancelled_,
        &out);
  Value("prompt_tokens_total", "counter", "Tokens of prompts", prompt_tokens_, &out);
  Value("prefix_hits_total", "counter", "Generations that began with kept keys and values",
        prefix_hits_, &out);
  Value("prefix_tokens_total", "counter", "Prompt tokens that were not computed again",
        reused_tokens_, &out);
  Value("prefixes_kept", "gauge", "Requests whose keys and values are kept", prefixes_, &out);
  Value("prefix_bytes", "gauge", "Memory of kept keys and values", prefix_bytes_, &out);
  Value("prefixes_dropped_total", "counter", "Requests whose keys and values were dropped",
        prefixes_dropped_, &out);
  Value("generated_tokens_total", "counter", "Tokens returned", generated_tokens_, &out);
  Value("canvas_tokens_total", "counter", "Tokens of canvases", canvas_tokens_, &out);
  Value("forward_passes_total", "counter", "Steps over a batch", steps_, &out);
  Value("denoise_steps_total", "counter", "Steps, counted per generation", sequence_steps_, &out);
  Value("cache_rows_updated_total", "counter", "Rows recomputed, over layers", rows_computed_,
        &out);
  Value("cache_rows_total", "counter", "Rows a dense pass would have computed", rows_total_, &out);
  Value("requests_running", "gauge", "Generations in the batch", running_, &out);
  Value("requests_queued", "gauge", "Generations waiting", queued_, &out);
  Value("memory_limit_bytes", "gauge", "Memory for generations", memory_, &out);
  Value("memory_promised_bytes", "gauge", "Memory that generations, running or kept, may take",
        promised_, &out);
  Value("memory_promised_peak_bytes", "gauge", "The most that was promised at a time",
        most_promised_, &out);
  Value("memory_waits_total", "counter", "Generations that waited for memory", memory_waits_, &out);
  Value("memory_refused_total", "counter", "Generations that would never fit", too_large_, &out);
  Value("memory_resident_bytes", "gauge", "Resident memory of the process", ResidentBytes(), &out);
  request_seconds_.Write("request_seconds", "From request to last byte", &out);
  queue_seconds_.Write("queue_seconds", "Waiting for a place in the batch", &out);
  first_text_seconds_.Write("time_to_first_text_seconds", "Until the first final text", &out);
  step_seconds_.Write("step_seconds", "One forward pass of the batch", &out);
  return out;
}

}  // namespace spa
