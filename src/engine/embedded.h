// What is compiled into the program: a small model and the web page.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace spa {

// A GGUF image; empty if built without one.
std::span<const std::byte> EmbeddedModel();

// The page. It talks to the server that sent it; lab/report.h embeds data in it.
std::string_view EmbeddedPage();

}  // namespace spa
