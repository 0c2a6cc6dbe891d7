#include "lab/samples.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "lab/questions.h"

namespace spa {
namespace {

using Json = nlohmann::ordered_json;

// The library would convert any number, -1 and 1e300 too.
uint64_t Count(const Json& value) {
  if (!value.is_number_unsigned()) throw Error("not a sample");
  return value.get<uint64_t>();
}

}  // namespace

std::string SampleToJson(const Sample& s) {
  return Json{{"id", s.id},
              {"prompt_tokens", s.stats.prompt_tokens},
              {"generated_tokens", s.stats.generated_tokens},
              {"text", s.text},
              {"answer", s.answer},
              {"expected", s.expected},
              {"correct", s.correct},
              {"steps", s.stats.steps},
              {"seconds", s.stats.seconds},
              {"ttft_seconds", s.stats.first_step_seconds},
              {"engine_seconds", s.stats.engine_seconds},
              {"rows_computed", s.stats.rows_computed},
              {"rows_total", s.stats.rows_total},
              {"settled_tokens", s.stats.settled_tokens},
              {"later_rows", s.stats.later_rows},
              {"cache_bytes", s.stats.cache_bytes},
              {"ids", s.ids}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

Sample SampleFromJson(const std::string& line) {
  CheckJsonDepth(line, "the sample");
  try {
    const Json json = Json::parse(line);
    Sample s;
    json.at("id").get_to(s.id);
    s.stats.prompt_tokens = Count(json.at("prompt_tokens"));
    s.stats.generated_tokens = Count(json.at("generated_tokens"));
    json.at("text").get_to(s.text);
    json.at("answer").get_to(s.answer);
    json.at("expected").get_to(s.expected);
    json.at("correct").get_to(s.correct);
    s.stats.steps = Count(json.at("steps"));
    json.at("seconds").get_to(s.stats.seconds);
    json.at("ttft_seconds").get_to(s.stats.first_step_seconds);
    json.at("engine_seconds").get_to(s.stats.engine_seconds);
    s.stats.rows_computed = Count(json.at("rows_computed"));
    s.stats.rows_total = Count(json.at("rows_total"));
    s.stats.settled_tokens = Count(json.at("settled_tokens"));
    json.at("later_rows").get_to(s.stats.later_rows);
    s.stats.cache_bytes = Count(json.at("cache_bytes"));
    if (!json.at("ids").is_array()) throw Error("not a sample");
    for (const Json& id : json["ids"]) {
      const double value = id.is_number_integer() ? id.get<double>() : NAN;
      if (!(value >= INT32_MIN && value <= INT32_MAX)) throw Error("not a sample");
      s.ids.push_back(id.get<TokenId>());
    }
    return s;
  } catch (const Json::exception&) {
    throw Error("not a sample");
  }
}

namespace {

// Where two settings differ, as a message: "decode.steps is 64 there and 128 here".
std::string FirstDifference(const Json& there, const Json& here, const std::string& key = "") {
  if (there.is_object() && here.is_object()) {
    const std::string prefix = key.empty() ? "" : key + ".";
    for (const auto& [name, value] : here.items()) {
      const Json other = there.contains(name) ? there[name] : Json();
      if (other != value) return FirstDifference(other, value, prefix + name);
    }
  }
  return fmt::format("{} is {} there and {} here", key.empty() ? "it" : key, there.dump(),
                     here.dump());
}

struct Lines {
  std::vector<std::string> whole;  // without their line ends
  size_t whole_bytes = 0;
};

Lines WholeLines(const std::string& bytes) {
  Lines lines;
  for (size_t end; (end = bytes.find('\n', lines.whole_bytes)) != std::string::npos;
       lines.whole_bytes = end + 1) {
    lines.whole.push_back(bytes.substr(lines.whole_bytes, end - lines.whole_bytes));
  }
  return lines;
}

}  // namespace

SampleFile::SampleFile(std::filesystem::path path, const std::string& settings)
    : path_(std::move(path)) {
  fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) throw Error("cannot open {}: {}", path_.string(), std::strerror(errno));
  try {
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      throw Error("{} is being written by another run", path_.string());
    }
    struct stat status;
    if (fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
      throw Error("{} is not a regular file: samples are read back from it", path_.string());
    }
    const std::string bytes = ReadFile(path_);
    Lines lines = WholeLines(bytes);
    const Json here = {{"settings", Json::parse(settings)}};
    // A first line that was cut off is rewritten; any other file is not ours to overwrite.
    if (lines.whole.empty() && !here.dump().starts_with(bytes)) {
      throw Error("{} does not hold samples of an evaluation: give another file", path_.string());
    }
    for (size_t i = 0; i < lines.whole.size(); ++i) {
      if (i == 0) {
        CheckJsonDepth(lines.whole[0], path_.string());
        const Json there = Json::parse(lines.whole[0], nullptr, false);
        if (there.is_discarded() || !there.is_object() || !there.contains("settings")) {
          throw Error("{} does not hold samples of an evaluation: give another file",
                      path_.string());
        }
        if (there != here) {
          throw Error(
              "{} was made with other settings ({}): give another file, or the same settings",
              path_.string(), FirstDifference(there["settings"], here["settings"]));
        }
        continue;
      }
      try {
        finished_.push_back(SampleFromJson(lines.whole[i]));
      } catch (const Error&) {
        if (i + 1 < lines.whole.size()) {
          throw Error("{} is damaged at line {}: repair it or give another file", path_.string(),
                      i + 1);
        }
        lines.whole_bytes -= lines.whole[i].size() + 1;
      }
    }
    if (ftruncate(fd_, static_cast<off_t>(lines.whole_bytes)) != 0) {
      throw Error("cannot write to {}: {}", path_.string(), std::strerror(errno));
    }
    if (lines.whole.empty()) WriteLine(here.dump());
  } catch (...) {
    close(fd_);
    throw;
  }
}

SampleFile::~SampleFile() { close(fd_); }

void SampleFile::Append(const Sample& sample) { WriteLine(SampleToJson(sample)); }

void SampleFile::WriteLine(const std::string& text) {
  const std::string line = text + "\n";
  for (size_t written = 0; written < line.size();) {
    const ssize_t count = write(fd_, line.data() + written, line.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error("cannot write to {}: {}", path_.string(), std::strerror(errno));
    written += static_cast<size_t>(count);
  }
}

}  // namespace spa
