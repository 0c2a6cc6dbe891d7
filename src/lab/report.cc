#include "lab/report.h"

#include "base/error.h"
#include "engine/embedded.h"

namespace spa {

std::string ReportPage(std::string_view report_json) {
  constexpr std::string_view kPlace = R"(<script type="application/json" id="report">)";
  const std::string_view page = EmbeddedPage();
  const size_t found = page.find(kPlace);
  SPA_CHECK(found != std::string_view::npos);
  const size_t place = found + kPlace.size();
  std::string text(page.substr(0, place));
  // In JSON a `<` only stands inside strings. Unescaped, it could end the script.
  for (const char c : report_json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  text += page.substr(place);
  return text;
}

}  // namespace spa
