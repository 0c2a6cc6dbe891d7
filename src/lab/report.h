// Self-contained HTML pages with SVG plots: no scripts, no fonts, nothing fetched. Colours follow
// the reader's light or dark setting.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spa {

struct PlotPoint {
  double x = 0.0, y = 0.0;
  double error = 0.0;      // half length of a vertical error bar; 0: none
  std::string label = {};  // written beside the point
};

struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;
  bool line = true;
  bool dashed = false;
  bool dots = true;
};

struct Plot {
  std::string title, x_label, y_label;
  std::vector<PlotSeries> series;
  bool x_from_zero = false;
  bool y_percent = false;              // y is a share: ticks are written as percent
  std::optional<double> y_min, y_max;  // else from the points
};

// Stacked horizontal bars, one per name; parts share colours across bars.
struct BarChart {
  std::string title, x_label;
  std::vector<std::string> parts;
  struct Bar {
    std::string name;
    std::vector<double> values;  // one per part
  };
  std::vector<Bar> bars;
};

std::string DrawPlot(const Plot& plot);
std::string DrawBars(const BarChart& chart);

// Text safe inside HTML and SVG.
std::string EscapeHtml(std::string_view text);

class HtmlPage {
 public:
  HtmlPage(std::string title, const std::string& subtitle);
  void Heading(const std::string& text);
  void Figure(const std::string& svg, const std::string& caption);
  // The first row is the header; the first column holds names.
  void Table(const std::vector<std::vector<std::string>>& rows);
  std::string Text() const;

 private:
  std::string title_, body_;
  bool in_figures_ = false;
  void CloseFigures();
};

}  // namespace spa
