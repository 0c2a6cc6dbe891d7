// Models trained on a few kinds of question say so in their file. They answer anything else with
// nonsense, so people are told what the model knows instead.
#pragma once

#include <span>
#include <string_view>

#include "engine/engine.h"

namespace spa {

// Throws Error saying what the model knows, if the last question has none of its forms or has words
// it never saw. Does nothing if the file names no forms.
void CheckKnown(const Engine& engine, std::span<const ChatMessage> messages);

// Whether the whole text has the form of the pattern, in which * stands for anything.
bool HasForm(std::string_view text, std::string_view pattern);

}  // namespace spa
