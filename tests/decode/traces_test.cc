// Replays what other authors' programs did (tests/data/traces): with the same logits the canvas is
// the same after every step. The logits come from a stand-in for a model that both sides computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "decode/decoder.h"
#include "decode/option_table.h"

namespace spa::traces_test {
namespace {

// A token is a character: the end of text first, the mask last.
constexpr std::string_view kAlphabet = ".abcdefghijklmnopqrstuvwxyzABCD_";
constexpr uint32_t kMask = kAlphabet.size() - 1;

std::string Text(std::span<const TokenId> ids) {
  std::string text;
  for (const TokenId id : ids) text += kAlphabet[static_cast<size_t>(id)];
  return text;
}

std::vector<TokenId> Ids(const std::string& text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<TokenId>(kAlphabet.find(c)));
  return ids;
}

// The stand-in. A position has a favourite token; settled neighbours make it surer of it or of
// another one; every row it sees adds a little. All sums are of whole numbers, so logits are exact.
class StandIn {
 public:
  // From position `end` on, the favourite is the end of text.
  StandIn(uint32_t seed, uint32_t end) : seed_(seed), end_(end) {}

  // Shadow rows do not see each other: what they would see are masks.
  std::vector<float> Logits(const StepInput& input, uint32_t row) const {
    const uint32_t position = input.PlaceOf(row);
    std::vector<uint32_t> sums;
    for (uint32_t id = 0; id <= kMask; ++id) sums.push_back(Hash({1, position, id}) % 48);
    const bool ended = position >= end_;
    const uint32_t favourite = ended ? 0 : Hash({3, position}) % kMask;
    sums[favourite] += Hash({4, position}) % 192 + (ended ? 48 : 0);
    for (const uint32_t seen : input.visible) {
      if (input.IsShadow(seen) || (input.IsShadow(row) && seen == position)) continue;
      const auto token = static_cast<uint32_t>(input.ids[seen]);
      for (uint32_t id = 0; id <= kMask; ++id) {
        sums[id] += Hash({2, position, seen, token, id}) % 3;
      }
      const uint32_t distance = std::max(seen, position) - std::min(seen, position);
      if (distance < 1 || distance > 3 || token == kMask) continue;
      const uint32_t hash = Hash({5, position, seen, token});
      const bool other = hash % 3 == 0 && !ended;
      sums[other ? (hash >> 8) % kMask : favourite] += 8 + (hash >> 16) % 64;
    }
    std::vector<float> logits;
    for (const uint32_t sum : sums) logits.push_back(static_cast<float>(sum) / 32.0f);
    logits[kMask] -= 8.0f;
    return logits;
  }

 private:
  uint32_t Hash(std::initializer_list<uint32_t> numbers) const {
    uint32_t hash = Mix(seed_ + kGamma);
    for (const uint32_t number : numbers) hash = Mix(hash + number + kGamma);
    return hash;
  }

  static uint32_t Mix(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352d;
    x = (x ^ (x >> 15)) * 0x846ca68b;
    return x ^ (x >> 16);
  }

  static constexpr uint32_t kGamma = 0x9e3779b9;
  uint32_t seed_, end_;
};

DecodeOptions OptionsOf(const nlohmann::json& trace) {
  DecodeOptions options;
  for (const auto& [name, value] : trace.at("options").items()) {
    const auto& table = DecodeOptionTable();
    const auto option =
        std::ranges::find(table, name, [](const DecodeOption& o) { return o.info.name; });
    if (option == table.end()) throw std::runtime_error("no option " + name);
    option->set(ParseOption(option->info, value.get<std::string>()), options);
  }
  ValidateDecodeOptions(options);
  return options;
}

// The canvas after each step.
std::vector<std::string> Replay(const nlohmann::json& trace) {
  const std::vector<TokenId> prompt = Ids(trace.at("prompt"));
  const StandIn model(trace.at("seed"), trace.value("end", UINT32_MAX));
  DecodeVocabulary vocabulary{.mask_id = static_cast<TokenId>(kMask),
                              .fill_id = 0,
                              .stop_ids = {0},
                              .num_tokens = kAlphabet.size()};
  DecodeOptions options = OptionsOf(trace);
  if (options.grow) {  // DreamOn's model
    options.schedule = Schedule::kNone;
    options.draw = Draw::kFiltered;
    vocabulary.expand_id = static_cast<TokenId>(kMask - 1);
    vocabulary.delete_id = 0;
  }
  Decoder decoder(prompt, options, vocabulary, options.grow ? 1 : 0, Ids(trace.value("suffix", "")),
                  {.ids = Ids(trace.value("given", "")), .spaced = {}});
  std::vector<std::string> steps;
  while (!decoder.done()) {
    const StepInput& input = decoder.Begin();
    for (const uint32_t row : input.reads()) {
      std::vector<float> logits = model.Logits(input, row);
      decoder.Offer(row, logits);
    }
    decoder.Commit();
    steps.push_back(Text(decoder.canvas()));
  }
  return steps;
}

class Traces : public testing::TestWithParam<std::string> {};

TEST_P(Traces, EveryStepIsTheAuthors) {
  std::ifstream file(SPA_TEST_DATA "/traces/" + GetParam());
  const auto trace = nlohmann::json::parse(file);
  EXPECT_EQ(Replay(trace), trace.at("steps").get<std::vector<std::string>>())
      << trace.at("repository") << ", " << trace.at("function");
}

std::vector<std::string> TraceFiles() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(SPA_TEST_DATA "/traces")) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

std::string NameOf(const testing::TestParamInfo<std::string>& info) {
  std::string name = std::filesystem::path(info.param).stem();
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(, Traces, testing::ValuesIn(TraceFiles()), NameOf);

}  // namespace
}  // namespace spa::traces_test
