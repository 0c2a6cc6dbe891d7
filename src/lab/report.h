// Reports: the web page (web/) with data inside it, one HTML file that fetches nothing.
#pragma once

#include <string>
#include <string_view>

namespace spa {

// The page with a report in it. The report is JSON of the form Report in web/src/report.ts: a
// title, and sections with text, a plot and a table. The page draws the plots.
std::string ReportPage(std::string_view report_json);

}  // namespace spa
