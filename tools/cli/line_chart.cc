// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/line_chart.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "tools/cli/html_page.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

constexpr int kWidth = 960, kHeight = 310, kLeft = 80, kRight = 330, kTop = 30, kBottom = 48;
constexpr int kStyles = 6;     // line0 to line5 of html_style.h
constexpr int kBetween = 15;   // of names, which must not lie on each other
constexpr int kMostSteps = 5;  // of the axis

// The distance of marks: 1, 2 or 5 times a power of ten.
double StepOf(double most) {
  const double least = most / kMostSteps;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

class Drawing {
 public:
  explicit Drawing(const LineChart& chart) : chart_(chart) {
    double most = 0;
    for (const LineChart::Line& line : chart.lines) {
      for (const auto& [place, value] : line.points) {
        places_.insert(place);
        most = std::max(most, value);
      }
    }
    step_ = most > 0 ? StepOf(most) : 1;
    top_ = step_ * std::max(1.0, std::ceil(most / step_));
  }

  bool shows_something() const {
    return std::ranges::any_of(chart_.lines,
                               [](const LineChart::Line& line) { return line.points.size() > 1; });
  }

  std::string Svg() {
    std::string svg = StrCat("<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" width=\"",
                             kWidth, "\" height=\"", kHeight, "\" viewBox=\"0 0 ", kWidth, " ",
                             kHeight, "\" role=\"img\" aria-label=\"", EscapeHtml(Label()), "\">");
    svg += Axes();
    for (size_t i = 0; i < chart_.lines.size(); ++i) {
      svg += DrawLine(chart_.lines[i], static_cast<int>(i % kStyles));
    }
    return svg + Names() + "</svg>";
  }

 private:
  double X(int64_t place) const {
    const auto index = std::distance(places_.begin(), places_.find(place));
    const double last = static_cast<double>(std::max<size_t>(places_.size(), 2) - 1);
    return kLeft + static_cast<double>(index) / last * (kWidth - kLeft - kRight);
  }
  double Y(double value) const {
    return kHeight - kBottom - value / top_ * (kHeight - kTop - kBottom);
  }
  static std::string At(double coordinate) { return Number(coordinate, "%.1f"); }

  std::string Label() const {
    std::string label = StrCat(chart_.title, ", ", chart_.y_title, " over ", chart_.x_title);
    for (const LineChart::Line& line : chart_.lines) {
      if (line.points.empty()) continue;
      StrAppend(&label, "; ", line.name, ": ", Number(line.points.front().second, "%.4g"), " to ",
                Number(line.points.back().second, "%.4g"));
    }
    return label;
  }

  static std::string Text(double x, double y, std::string_view style, std::string_view text) {
    return StrCat("<text x=\"", At(x), "\" y=\"", At(y), "\" class=\"", style, "\">",
                  EscapeHtml(text), "</text>");
  }

  std::string Axes() const {
    std::string svg;
    for (double value = 0; value <= top_ * 1.001; value += step_) {
      StrAppend(&svg, "<line x1=\"", kLeft, "\" x2=\"", kWidth - kRight, "\" y1=\"", At(Y(value)),
                "\" y2=\"", At(Y(value)), "\"/>",
                Text(kLeft - 8, Y(value) + 4, "end", Number(value, "%.6g")));
    }
    for (const int64_t place : places_) {
      svg += Text(X(place), kHeight - kBottom + 18, "middle", StrCat(place));
    }
    return svg + Text((kLeft + kWidth - kRight) / 2.0, kHeight - 8, "middle", chart_.x_title) +
           Text(kLeft - 40, kTop - 16, "begin", chart_.y_title);
  }

  std::string DrawLine(const LineChart::Line& line, int style) const {
    std::string points, dots;
    for (const auto& [place, value] : line.points) {
      const std::string x = At(X(place)), y = At(Y(value));
      StrAppend(&points, points.empty() ? "" : " ", x, ",", y);
      StrAppend(&dots, "<circle class=\"line", style, "\" cx=\"", x, "\" cy=\"", y,
                "\" r=\"4\"><title>", EscapeHtml(line.name), ", ", place, ": ",
                Number(value, "%.6g"), "</title></circle>");
    }
    return StrCat("<polyline class=\"line", style, "\" points=\"", points, "\"/>", dots);
  }

  // Beside the last points, from above, each below the one before. A piece of the line stands before
  // its name.
  std::string Names() const {
    std::vector<std::pair<double, size_t>> ends;
    for (size_t i = 0; i < chart_.lines.size(); ++i) {
      if (!chart_.lines[i].points.empty())
        ends.emplace_back(Y(chart_.lines[i].points.back().second), i);
    }
    std::sort(ends.begin(), ends.end());
    std::string svg;
    double last = kTop - kBetween;
    for (size_t n = 0; n < ends.size(); ++n) {
      const double room = kHeight - kBottom - kBetween * static_cast<double>(ends.size() - 1 - n);
      const double y = std::max(last + kBetween, std::min(ends[n].first, room));
      last = y;
      const int x = kWidth - kRight + 12;
      StrAppend(&svg, "<polyline class=\"line", ends[n].second % kStyles, "\" points=\"", x, ",",
                At(y), " ", x + 26, ",", At(y), "\"/>",
                Text(x + 32, y + 4, "begin", chart_.lines[ends[n].second].name));
    }
    return svg;
  }

  const LineChart& chart_;
  std::set<int64_t> places_;
  double step_ = 1, top_ = 1;
};

}  // namespace

std::string ChartFigure(const LineChart& chart) {
  Drawing drawing(chart);
  if (!drawing.shows_something()) return "";
  return StrCat("<figure><figcaption>", EscapeHtml(chart.title), "</figcaption>", drawing.Svg(),
                "</figure>");
}

}  // namespace pagefuse::tools
