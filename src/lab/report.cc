#include "lab/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>


namespace spa {
namespace {

// Eight colours that stay apart for colour-blind readers (after Okabe and Ito), with brighter ones
// on dark ground.
constexpr size_t kColors = 8;
constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --bg:#fff; --fg:#1b1f24; --dim:#5b6470; --grid:#e3e6ea;
  --c0:#0072b2; --c1:#d55e00; --c2:#009e73; --c3:#b0438a; --c4:#b58900; --c5:#2f9bd6; --c6:#7a5230;
  --c7:#5a5a9e; }
@media (prefers-color-scheme: dark) { :root { --bg:#14171b; --fg:#e6e9ed; --dim:#9aa4b0;
  --grid:#2b3138; --c0:#56b4e9; --c1:#ff8c42; --c2:#2fd6a3; --c3:#e58bc4; --c4:#f0c94a; --c5:#8ccdf5;
  --c6:#c79a6b; --c7:#a9a9ef; } }
body { background:var(--bg); color:var(--fg); font:15px/1.5 system-ui,sans-serif; margin:2rem auto;
  max-width:1100px; padding:0 1rem; }
h1 { font-size:1.6rem; margin:0; } h2 { font-size:1.15rem; margin:2rem 0 .5rem; }
p.sub { color:var(--dim); margin:.2rem 0 1.5rem; }
.figures { display:flex; flex-wrap:wrap; gap:1.5rem; }
figure { margin:0; flex:1 1 480px; max-width:640px; }
figcaption { color:var(--dim); font-size:.86rem; }
svg { width:100%; height:auto; display:block; } svg text { fill:var(--fg); font:11px system-ui,sans-serif; }
svg text.dim { fill:var(--dim); } svg text.title { font-size:13px; font-weight:600; }
svg .grid { stroke:var(--grid); stroke-width:1; } svg .axis { stroke:var(--dim); stroke-width:1; }
.scroll { overflow-x:auto; }
table { border-collapse:collapse; font-variant-numeric:tabular-nums; font-size:.9rem; }
th,td { padding:.3rem .8rem; text-align:right; border-bottom:1px solid var(--grid); }
th:first-child,td:first-child { text-align:left; } th { color:var(--dim); font-weight:600; }
)";

constexpr double kWidth = 640.0, kHeight = 400.0;
constexpr double kLeft = 62.0, kRight = 18.0, kBottom = 46.0;
constexpr double kCharWidth = 6.6, kLineHeight = 13.0;  // of the 11 px text, roughly

std::string Color(size_t index) { return fmt::format("var(--c{})", index % kColors); }

// 1, 2 or 5 times a power of ten, so that about `count` steps fill the span.
double NiceStep(double span, double count) {
  const double rough = span / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10.0 * power;
}

struct Axis {
  double low = 0.0, high = 1.0, step = 0.2;
  double from = 0.0, to = 1.0;  // pixels
  double Pixel(double value) const { return from + (value - low) / (high - low) * (to - from); }
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1.0) {
      ticks.push_back(i * step);
    }
    return ticks;
  }
};

Axis MakeAxis(double low, double high, double ticks, double from, double to) {
  if (!(high > low)) {
    const double around = std::max(1e-3, std::abs(low) * 0.1);
    low -= around;
    high += around;
  }
  const double step = NiceStep(high - low, ticks);
  return {std::floor(low / step + 1e-9) * step, std::ceil(high / step - 1e-9) * step, step, from,
          to};
}

std::string TickText(double value, double step, bool percent) {
  const double shown = percent ? 100.0 * value : value;
  const double shown_step = percent ? 100.0 * step : step;
  const int digits = std::max(0, -static_cast<int>(std::floor(std::log10(shown_step) + 1e-9)));
  return fmt::format("{:.{}f}{}", std::abs(shown) < 1e-12 ? 0.0 : shown, digits,
                     percent ? "%" : "");
}

// One line of names with their colours; wraps. Returns the height it took.
double DrawLegend(const std::vector<std::string>& names, double top, std::string& svg) {
  double x = kLeft, y = top;
  for (size_t i = 0; i < names.size(); ++i) {
    const double width = 24.0 + kCharWidth * static_cast<double>(names[i].size());
    if (x + width > kWidth - kRight && x > kLeft) {
      x = kLeft;
      y += 16.0;
    }
    svg += fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="10" height="10" rx="2" fill="{}"/>)"
                       R"(<text x="{:.1f}" y="{:.1f}">{}</text>)",
                       x, y - 9.0, Color(i), x + 14.0, y, EscapeHtml(names[i]));
    x += width;
  }
  return y - top + 16.0;
}

struct Box {
  double x0, y0, x1, y1;
  bool Overlaps(const Box& o) const { return x0 < o.x1 && o.x0 < x1 && y0 < o.y1 && o.y0 < y1; }
};

// Puts each label beside its point where it covers neither points nor other labels.
class LabelPlacer {
 public:
  explicit LabelPlacer(Box frame) : frame_(frame) {}
  void AddPoint(double x, double y) { taken_.push_back({x - 4.0, y - 4.0, x + 4.0, y + 4.0}); }

  std::string Place(double x, double y, const std::string& label) {
    const double width = kCharWidth * static_cast<double>(label.size());
    Box best = At(x + 7.0, y + 4.0, width);
    for (const double up : {0.0, -13.0, 13.0, -26.0, 26.0, -39.0, 39.0, -52.0, 52.0}) {
      for (const double left : {x + 7.0, x - 7.0 - width}) {
        const Box box = At(left, y + 4.0 + up, width);
        const bool inside = box.x0 >= frame_.x0 && box.x1 <= frame_.x1 && box.y0 >= frame_.y0 &&
                            box.y1 <= frame_.y1;
        if (!inside || std::ranges::any_of(taken_, [&](const Box& o) { return box.Overlaps(o); })) {
          continue;
        }
        return Write(box, x, y, label);
      }
    }
    return Write(best, x, y, label);
  }

 private:
  static Box At(double left, double baseline, double width) {
    return {left, baseline - kLineHeight + 3.0, left + width, baseline + 3.0};
  }
  std::string Write(const Box& box, double x, double y, const std::string& label) {
    taken_.push_back(box);
    std::string svg;
    const double middle = (box.y0 + box.y1) / 2.0;
    if (std::abs(middle - y) > 10.0) {
      svg += fmt::format(R"(<line class="grid" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)",
                         x, y, box.x0 > x ? box.x0 : box.x1, middle);
    }
    return svg + fmt::format(R"(<text x="{:.1f}" y="{:.1f}">{}</text>)", box.x0, box.y1 - 3.0,
                             EscapeHtml(label));
  }

  Box frame_;
  std::vector<Box> taken_;
};

std::string OpenSvg(const std::string& title, double height) {
  return fmt::format(
      R"(<svg viewBox="0 0 {} {:.0f}" role="img" aria-label="{}"><text class="title" x="{}" y="16">{}</text>)",
      kWidth, height, EscapeHtml(title), kLeft, EscapeHtml(title));
}

std::string VerticalGrid(const Axis& x, double top, double bottom, const std::string& label) {
  std::string svg;
  for (const double tick : x.Ticks()) {
    const double at = x.Pixel(tick);
    svg += fmt::format(R"(<line class="grid" x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}"/>)"
                       R"(<text class="dim" x="{0:.1f}" y="{3:.1f}" text-anchor="middle">{4}</text>)",
                       at, top, bottom, bottom + 15.0, TickText(tick, x.step, false));
  }
  return svg + fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)",
                           (x.from + x.to) / 2.0, bottom + 33.0, EscapeHtml(label));
}

std::string HorizontalGrid(const Axis& y, const std::string& label, bool percent) {
  std::string svg;
  for (const double tick : y.Ticks()) {
    const double at = y.Pixel(tick);
    svg += fmt::format(R"(<line class="grid" x1="{1}" y1="{0:.1f}" x2="{2}" y2="{0:.1f}"/>)"
                       R"(<text class="dim" x="{3}" y="{4:.1f}" text-anchor="end">{5}</text>)",
                       at, kLeft, kWidth - kRight, kLeft - 6.0, at + 4.0,
                       TickText(tick, y.step, percent));
  }
  return svg + fmt::format(
                   R"x(<text x="14" y="{0:.1f}" text-anchor="middle" transform="rotate(-90 14 {0:.1f})">{1}</text>)x",
                   (y.from + y.to) / 2.0, EscapeHtml(label));
}

std::string DrawSeries(const PlotSeries& series, size_t index, const Axis& x, const Axis& y) {
  std::string svg;
  if (series.line && series.points.size() > 1) {
    std::string path;
    for (const PlotPoint& p : series.points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.Pixel(p.x), y.Pixel(p.y));
    }
    svg += fmt::format(R"(<path d="{}" fill="none" stroke="{}" stroke-width="2"{}/>)", path,
                       Color(index), series.dashed ? R"( stroke-dasharray="6 4")" : "");
  }
  for (const PlotPoint& p : series.points) {
    const double px = x.Pixel(p.x);
    if (p.error > 0.0) {
      svg += fmt::format(
          R"(<line x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}" stroke="{3}" stroke-opacity=".5"/>)",
          px, y.Pixel(std::min(p.y + p.error, y.high)), y.Pixel(std::max(p.y - p.error, y.low)),
          Color(index));
    }
    if (series.dots) {
      svg += fmt::format(
          R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.5" fill="{}"><title>{}{:.4g}, {:.4g}</title></circle>)",
          px, y.Pixel(p.y), Color(index),
          EscapeHtml((p.label.empty() ? series.name : p.label) + ": "), p.x, p.y);
    }
  }
  return svg;
}

}  // namespace

std::string DrawPlot(const Plot& plot) {
  double x_low = 1e300, x_high = -1e300, y_low = 1e300, y_high = -1e300;
  std::vector<std::string> names;
  for (const PlotSeries& series : plot.series) {
    names.push_back(series.name);
    for (const PlotPoint& p : series.points) {
      x_low = std::min(x_low, p.x);
      x_high = std::max(x_high, p.x);
      y_low = std::min(y_low, p.y - p.error);
      y_high = std::max(y_high, p.y + p.error);
    }
  }
  if (x_low > x_high) x_low = y_low = 0.0, x_high = y_high = 1.0;
  std::string svg = OpenSvg(plot.title, kHeight);
  double top = 26.0;
  if (names.size() > 1) top += 8.0 + DrawLegend(names, 36.0, svg);
  const double bottom = kHeight - kBottom;
  const Axis x =
      MakeAxis(plot.x_from_zero ? 0.0 : x_low, x_high, 7.0, kLeft, kWidth - kRight);
  Axis y = MakeAxis(plot.y_min.value_or(y_low), plot.y_max.value_or(y_high), 6.0, bottom, top);
  if (plot.y_max) y.high = *plot.y_max;
  svg += VerticalGrid(x, top, bottom, plot.x_label);
  svg += HorizontalGrid(y, plot.y_label, plot.y_percent);
  LabelPlacer labels({kLeft, top - 6.0, kWidth, bottom});
  for (size_t i = 0; i < plot.series.size(); ++i) {
    svg += DrawSeries(plot.series[i], i, x, y);
    for (const PlotPoint& p : plot.series[i].points) labels.AddPoint(x.Pixel(p.x), y.Pixel(p.y));
  }
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& p : series.points) {
      if (!p.label.empty()) svg += labels.Place(x.Pixel(p.x), y.Pixel(p.y), p.label);
    }
  }
  return svg + "</svg>";
}

std::string DrawBars(const BarChart& chart) {
  constexpr double kBar = 26.0, kGap = 14.0, kNames = 130.0;
  double widest = 0.0;
  for (const auto& bar : chart.bars) {
    double sum = 0.0;
    for (const double value : bar.values) sum += value;
    widest = std::max(widest, sum);
  }
  std::string legend;
  const double top = 34.0 + DrawLegend(chart.parts, 36.0, legend);
  const double bottom = top + static_cast<double>(chart.bars.size()) * (kBar + kGap);
  const Axis x = MakeAxis(0.0, widest, 7.0, kNames, kWidth - kRight - 40.0);
  std::string svg = OpenSvg(chart.title, bottom + kBottom) + legend;
  svg += VerticalGrid(x, top, bottom, chart.x_label);
  double y = top + kGap / 2.0;
  for (const auto& bar : chart.bars) {
    svg += fmt::format(R"(<text x="{}" y="{:.1f}" text-anchor="end">{}</text>)", kNames - 8.0,
                       y + kBar / 2.0 + 4.0, EscapeHtml(bar.name));
    double sum = 0.0;
    for (size_t i = 0; i < bar.values.size(); ++i) {
      svg += fmt::format(
          R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" fill="{}"><title>{}: {:.3g}</title></rect>)",
          x.Pixel(sum), y, x.Pixel(bar.values[i]) - x.Pixel(0.0), kBar, Color(i),
          EscapeHtml(chart.parts[i]), bar.values[i]);
      sum += bar.values[i];
    }
    svg += fmt::format(R"(<text x="{:.1f}" y="{:.1f}">{:.3g}</text>)", x.Pixel(sum) + 5.0,
                       y + kBar / 2.0 + 4.0, sum);
    y += kBar + kGap;
  }
  return svg + "</svg>";
}

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

HtmlPage::HtmlPage(std::string title, const std::string& subtitle) : title_(std::move(title)) {
  body_ = fmt::format("<h1>{}</h1>\n<p class=\"sub\">{}</p>\n", EscapeHtml(title_),
                      EscapeHtml(subtitle));
}

void HtmlPage::CloseFigures() {
  if (in_figures_) body_ += "</div>\n";
  in_figures_ = false;
}

void HtmlPage::Heading(const std::string& text) {
  CloseFigures();
  body_ += fmt::format("<h2>{}</h2>\n", EscapeHtml(text));
}

void HtmlPage::Figure(const std::string& svg, const std::string& caption) {
  if (!in_figures_) body_ += "<div class=\"figures\">\n";
  in_figures_ = true;
  body_ += fmt::format("<figure>{}<figcaption>{}</figcaption></figure>\n", svg,
                       EscapeHtml(caption));
}

void HtmlPage::Table(const std::vector<std::vector<std::string>>& rows) {
  CloseFigures();
  body_ += "<div class=\"scroll\"><table>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    body_ += "<tr>";
    for (const std::string& cell : rows[i]) {
      body_ += fmt::format("<{0}>{1}</{0}>", i == 0 ? "th" : "td", EscapeHtml(cell));
    }
    body_ += "</tr>\n";
  }
  body_ += "</table></div>\n";
}

std::string HtmlPage::Text() const {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style></head>\n<body>\n{}{}</body></html>\n",
      EscapeHtml(title_), kStyle, body_, in_figures_ ? "</div>\n" : "");
}

}  // namespace spa
