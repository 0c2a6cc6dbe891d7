// Models that were taught a few kinds of question say so in their file. Asked anything else they
// would answer nonsense; a person is better told what they know.
#pragma once

#include <span>
#include <string_view>

#include "engine/engine.h"

namespace spa {

// Throws Error saying what the model knows, if the last question has none of the forms it was
// taught or words it has never seen. Does nothing for models whose file names no forms.
void CheckKnown(const Engine& engine, std::span<const ChatMessage> messages);

// Whether the whole text has the form of the pattern, in which * stands for anything.
bool HasForm(std::string_view text, std::string_view pattern);

}  // namespace spa
