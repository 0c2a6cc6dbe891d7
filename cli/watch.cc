#include "cli/watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "base/counted.h"
#include "cli/canvas.h"

namespace spa::cli {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsFrom(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr double kQuickStep = 0.25;  // seconds

// A rough time left.
std::string Duration(double seconds) {
  return seconds < 90.0 ? fmt::format("{:.0f} s", std::max(1.0, seconds))
                        : fmt::format("{:.0f} min", seconds / 60.0);
}

}  // namespace

Pace::Pace(std::chrono::milliseconds least)
    : least_(StderrIsTerminal() ? least : std::chrono::milliseconds(0)), last_(Clock::now()) {}

void Pace::Wait() {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(last_ + least_ - Clock::now());
  if (left.count() > 0) {
    pollfd keys{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (isatty(STDIN_FILENO) == 0) {
      std::this_thread::sleep_for(left);
    } else if (poll(&keys, 1, static_cast<int>(left.count())) > 0) {
      char line[256];
      if (read(STDIN_FILENO, line, sizeof(line)) >= 0)
        least_ = {};  // run to the end without pauses
    }
  }
  last_ = Clock::now();
}

void StepClock::LayerDone(size_t done, size_t layers) {
  layer_ = done;
  layers_ = layers;
}

void StepClock::StepDone(size_t step) {
  step_ = step;
  layer_ = 0;
  step_end_ = Clock::now();
  if (step == 1) first_seconds_ = SecondsFrom(start_);
}

double StepClock::share() const {
  const double part =
      layers_ > 0 ? static_cast<double>(layer_) / static_cast<double>(layers_) : 0.0;
  return (static_cast<double>(step_) + part) / static_cast<double>(std::max<size_t>(steps_, 1));
}

bool StepClock::quick() const {
  return step_ == 0 ? SecondsFrom(start_) < 1.0 : Pace() < kQuickStep;
}

double StepClock::Pace() const {
  const double stepped = std::chrono::duration<double>(step_end_ - start_).count();
  return step_ == 1 ? stepped : (stepped - first_seconds_) / static_cast<double>(step_ - 1);
}

std::string StepClock::Describe() const {
  if (step_ == 0) {
    if (layer_ == 0) return "first step";
    const double left =
        SecondsFrom(start_) * static_cast<double>(layers_ - layer_) / static_cast<double>(layer_);
    return fmt::format("first step, layer {} of {}, {} left", layer_, layers_, Duration(left));
  }
  const double pace = Pace();
  if (pace < kQuickStep) return fmt::format("step {}", step_);
  const size_t left = steps_ > step_ ? steps_ - step_ : 0;
  return fmt::format("step {} of at most {}, {:.1f} s per step, at most {} left", step_, steps_,
                     pace, Duration(static_cast<double>(left) * pace));
}

Watch::Watch() : terminal_(StderrIsTerminal()), style_(terminal_) {}

void Watch::Show(const Engine& engine, const Decoder& decoder, const std::string& status) {
  const auto masked = decoder.masked().subspan(decoder.prompt_length());
  const auto settled = static_cast<size_t>(std::ranges::count(masked, 0));
  if (!terminal_) {
    const auto now = Clock::now();
    if (now - last_line_ < std::chrono::seconds(1) && !decoder.done()) return;
    last_line_ = now;
    PrintStderr("step {}: {} of {}\n", decoder.steps(), settled, Counted(masked.size(), "token"));
    return;
  }
  std::vector<std::string> lines =
      DrawAnswer(engine, decoder, StderrSize().columns - 1, style_).Lines();
  lines.push_back(fmt::format("{}{} · {}/{} tokens{}", style_.dim, status, settled, masked.size(),
                              style_.reset));
  Draw(lines);
}

void Watch::Draw(std::vector<std::string> lines) {
  // Stay within the screen: lines that scrolled away cannot be redrawn.
  const size_t rows = StderrSize().rows;
  if (lines.size() >= rows && rows > 2) {
    lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(rows - 1));
  }
  std::string frame =
      shown_.size() > 1 ? fmt::format("\r\x1b[{}A", shown_.size() - 1) : std::string("\r");
  frame += "\x1b[J";
  const size_t columns = StderrSize().columns - 1;
  for (size_t i = 0; i < lines.size(); ++i) {
    frame += (i > 0 ? "\n" : "") + Clip(lines[i], columns);
  }
  shown_ = std::move(lines);
  WriteStderr(frame);
}

void Watch::DrawStatus(const std::string& status) {
  if (!terminal_) return;
  std::vector<std::string> lines = shown_;
  if (!lines.empty()) lines.pop_back();
  lines.push_back(fmt::format("{}{}{}", style_.dim, status, style_.reset));
  Draw(std::move(lines));
}

void Watch::Finish() {
  if (shown_.empty()) return;
  PrintStderr("{}\x1b[J", shown_.size() > 1 ? fmt::format("\r\x1b[{}A", shown_.size() - 1) : "\r");
  shown_.clear();
}

}  // namespace spa::cli
