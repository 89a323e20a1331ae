// SPDX-License-Identifier: Apache-2.0
// Draws lines over a few places as SVG, for the pages of html_page.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pagefuse::tools {

struct LineChart {
  struct Line {
    std::string name;
    std::vector<std::pair<int64_t, double>> points;  // ascending places
  };
  std::string title, x_title, y_title;
  std::vector<Line> lines = {};
};

// A figure: the places stand at equal distances, as lengths that double do, and the other axis begins
// at zero. Lines have their names beside them, and differ in their dashes too. The values are read
// aloud from a table, which the page has beside it. Empty if no line has two points.
std::string ChartFigure(const LineChart& chart);

}  // namespace pagefuse::tools
