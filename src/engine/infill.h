// Infilling: a text with gaps, filled by a model that sees both sides of each.
//
// In a template {{mask:12}} is a gap of twelve tokens and {{mask}} one of kUsualGap. A gap keeps
// its length, unless the model is trained to change it (DreamOn).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/decode_choices.h"
#include "engine/engine.h"

namespace spa {

constexpr size_t kUsualGap = 16;  // tokens
constexpr size_t kMostGap = 65536;

struct TemplatePart {
  std::string text;
  size_t gap = 0;  // not 0: this many masks, and no text

  bool operator==(const TemplatePart&) const = default;
};

// Throws Error if there is no gap, or one that is not written as above.
std::vector<TemplatePart> ParseTemplate(std::string_view text);

// A template as ids, and its text before the first gap and after the last, for output.
struct Infill {
  std::vector<TokenId> prompt;
  Given given;
  std::string before, after;
};

// The parts of a text, or of the answer to a chat prompt's ids. The model's end token follows the
// last part, as in the models' own infilling programs. Throws Error if nothing precedes the first
// gap and the model has no begin-of-text token.
Infill EncodeInfill(const Engine& engine, std::span<const TemplatePart> parts,
                    std::vector<TokenId> chat_prompt = {});

// The options of an infill: what was given, the model's defaults where they make sense, a token per
// step otherwise. The canvas is one block unless a block length was given.
DecodeOptions ResolveInfill(const Engine& engine, DecodeChoices choices, const Given& given);

// The text from the first gap to the last in pieces, in order; of an unfinished gap only the
// settled beginning.
struct FilledPiece {
  std::string text;
  bool filled = false;  // by the model
};
std::vector<FilledPiece> FilledPieces(const Engine& engine, const Decoder& decoder);

}  // namespace spa
