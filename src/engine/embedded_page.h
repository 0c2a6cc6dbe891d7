// The web page (web/), compiled into the program.
#pragma once

#include <string_view>

namespace spa {

// As it is, it talks to the server that sent it. ReportPage (report.h) puts a report into it.
std::string_view EmbeddedPage();

}  // namespace spa
