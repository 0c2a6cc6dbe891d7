// What is compiled into the program: a small model and the web page.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace spa {

// A GGUF image; empty if the program was built without.
std::span<const std::byte> EmbeddedModel();

// The page. As it is, it talks to the server that sent it; lab/report.h puts data into it.
std::string_view EmbeddedPage();

}  // namespace spa
