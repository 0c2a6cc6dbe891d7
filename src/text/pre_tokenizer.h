// Cuts text into the words that byte-pair merges never cross. One routine serves the split patterns
// of Dream (qwen2), LLaDA (bailingmoe) and Llama 3, which differ only in how many digits make a
// word. Written by hand rather than run by a regular-expression engine: linear in the text whatever
// it holds, with no match limits to run into.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "text/unicode.h"

namespace spa {

// How long a word of digits may be: 1 for Dream and LLaDA, 3 for Llama 3.
// nullopt if `pattern` is none of the known ones (compared by text, possessive marks aside).
std::optional<size_t> MaxDigitsOfPattern(std::string_view pattern);

// End of the word that starts at text[begin]; begin < text.size(), and the text is valid UTF-8.
// Calling it again at the end it returned walks over all words.
size_t WordEnd(std::string_view text, size_t begin, size_t max_digits, const CharTable& table);

}  // namespace spa
