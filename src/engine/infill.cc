#include "engine/infill.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace spa {
namespace {

constexpr std::string_view kOpen = "{{mask", kClose = "}}";

// "", or ":12" of "{{mask:12}}".
size_t GapLength(std::string_view text, std::string_view whole) {
  if (text.empty()) return kUsualGap;
  size_t length = 0;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), length);
  if (text[0] != ':' || error != std::errc() || end != text.data() + text.size() || length < 1 ||
      length > kMostGap) {
    throw Error("'{}' is not a gap: write {{{{mask}}}} or {{{{mask:12}}}} for twelve tokens",
                whole);
  }
  return length;
}

}  // namespace

std::vector<TemplatePart> ParseTemplate(std::string_view text) {
  std::vector<TemplatePart> parts;
  bool gap = false;
  for (size_t begin = 0; begin < text.size();) {
    const size_t open = std::min(text.find(kOpen, begin), text.size());
    if (open > begin) parts.push_back({std::string(text.substr(begin, open - begin)), 0});
    if (open == text.size()) break;
    const size_t close = text.find(kClose, open);
    if (close == text.npos) throw Error("a gap is not closed: '{}'", text.substr(open, 24));
    const std::string_view inside = text.substr(open + kOpen.size(), close - open - kOpen.size());
    begin = close + kClose.size();
    const size_t length = GapLength(inside, text.substr(open, begin - open));
    // Adjacent gaps are one.
    if (gap && !parts.empty() && parts.back().gap > 0) {
      parts.back().gap += length;
    } else {
      parts.push_back({{}, length});
    }
    gap = true;
  }
  if (!gap) throw Error("the template has no gap: write {{{{mask:12}}}} where twelve tokens go");
  return parts;
}

Infill EncodeInfill(const Engine& engine, std::span<const TemplatePart> parts,
                    std::vector<TokenId> chat_prompt) {
  const Tokenizer& tokenizer = engine.tokenizer();
  const ModelConfig& config = engine.config();
  const bool chat = !chat_prompt.empty();
  // Special tokens typed in an answer stay text, as in chat messages.
  const auto encode = [&](const std::string& text) {
    return chat ? tokenizer.Encode(text) : tokenizer.EncodeWithSpecial(text);
  };
  size_t last_gap = parts.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].gap > 0) last_gap = i;
  }
  SPA_CHECK(last_gap < parts.size());
  Infill infill;
  infill.prompt = std::move(chat_prompt);
  std::vector<TokenId>& canvas = infill.given.canvas.ids;
  bool space = false;  // before the gap that comes next
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].gap > 0) {
      if (space) infill.given.canvas.spaced.push_back(static_cast<uint32_t>(canvas.size()));
      canvas.insert(canvas.end(), parts[i].gap, config.mask_id);
      continue;
    }
    std::string text = parts[i].text;
    space = i < last_gap && text.size() > 1 && text.ends_with(' ') && !config.expand_id;
    if (space) text.pop_back();
    const std::vector<TokenId> ids = encode(text);
    std::vector<TokenId>& to = i > last_gap     ? infill.given.suffix
                               : canvas.empty() ? infill.prompt
                                                : canvas;
    to.insert(to.end(), ids.begin(), ids.end());
    if (i > last_gap) infill.after += text;
    if (canvas.empty()) infill.before += text;
  }
  if (!chat && config.bos_id && (infill.prompt.empty() || config.expand_id)) {
    infill.prompt.insert(infill.prompt.begin(), *config.bos_id);
  }
  if (infill.prompt.empty()) {
    throw Error("this model has no begin-of-text token: give some text before the first gap");
  }
  const std::optional<TokenId> end = chat ? tokenizer.end_of_turn() : config.eos_id;
  if (end || config.eos_id) infill.given.suffix.push_back(end ? *end : *config.eos_id);
  return infill;
}

DecodeOptions ResolveInfill(const Engine& engine, DecodeChoices choices, const Given& given) {
  const bool grows = engine.config().expand_id && engine.config().eos_id;
  if (choices.has("grow") && !grows) {
    throw Error("this model cannot change the length of a gap: leave --grow out");
  }
  const size_t length = given.canvas.ids.size();
  const auto masks = std::ranges::count(given.canvas.ids, engine.config().mask_id);
  choices.Set("gen-length", std::to_string(length));
  if (!choices.has("block-length")) choices.Set("block-length", std::to_string(length));
  if (!choices.has("steps")) choices.Set("steps", std::to_string(masks));
  DecodeOptions options = choices.Resolve(engine);
  options.stop = Stop::kNever;
  if (grows) {
    // As in DreamOn's own program: one token per step, up to a limit.
    constexpr size_t kMostTokens = 64;
    if (options.threshold || options.factor || options.entropy_bound || options.first_threshold ||
        options.block_length != length) {
      throw Error(
          "this model changes the length of a gap, so it fills it in one block, one token per "
          "step: leave out block length, thresholds, factor and entropy bound");
    }
    if (options.klass || options.credit > 0.0 || options.cfg_scale > 0.0) {
      throw Error(
          "this model changes the length of a gap, which moves what klass, credit and guidance "
          "remember of a position: leave them out");
    }
    if (!options.grow) options.grow = kMostTokens - std::min(kMostTokens, length);
    options.schedule = Schedule::kNone;
  }
  return options;
}

std::vector<FilledPiece> FilledPieces(const Engine& engine, const Decoder& decoder) {
  std::vector<FilledPiece> pieces;
  const auto add = [&](size_t begin, size_t end, bool filled) {
    std::vector<TokenId> ids;
    for (size_t pos = begin; pos < end && decoder.masked()[pos] == 0; ++pos) {
      ids.push_back(decoder.ids()[pos]);
    }
    pieces.push_back({engine.tokenizer().Decode(ids), filled});
  };
  size_t begin = decoder.prompt_length();
  for (const BlockRange& gap : decoder.gaps()) {
    if (gap.begin > begin) add(begin, gap.begin, false);
    add(gap.begin, gap.end, true);
    begin = gap.end;
  }
  return pieces;
}

}  // namespace spa
