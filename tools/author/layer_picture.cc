// SPDX-License-Identifier: Apache-2.0
#include "tools/author/layer_picture.h"

#include <algorithm>
#include <map>

#include "tools/cli/html_page.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_snapshot.h"

namespace pagefuse::tools {
namespace {

constexpr int kBoxHeight = 24, kRowHeight = 44, kGap = 14, kLetter = 8, kPadding = 16;
constexpr int kSweeps = 4;  // up and down over the rows, each with fewer crossings than before

struct Box {
  int rank = 0, x = 0, width = 0;
  int Middle() const { return x + width / 2; }
};
using Boxes = std::map<const Node*, Box>;
using Neighbours = std::map<const Node*, std::vector<const Node*>>;
using Row = std::vector<const Node*>;

int WidthOf(const Node& node) {
  return static_cast<int>(node.op_type().size()) * kLetter + kPadding;
}

// Below what it reads, and as near as may be to the first that reads it.
void Rank(const std::vector<const Node*>& nodes, const Neighbours& above, const Neighbours& below,
          Boxes& boxes) {
  for (const Node* node : nodes) {
    for (const Node* read : above.at(node)) {
      boxes[node].rank = std::max(boxes[node].rank, boxes[read].rank + 1);
    }
  }
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    const std::vector<const Node*>& readers = below.at(*node);
    if (readers.empty()) continue;
    int first = boxes[readers.front()].rank;
    for (const Node* reader : readers) first = std::min(first, boxes[reader].rank);
    boxes[*node].rank = first - 1;
  }
}

// Side by side around the middle; how wide the row is.
int Spread(const Row& row, Boxes& boxes) {
  int width = -kGap;
  for (const Node* node : row) width += boxes[node].width + kGap;
  int x = -width / 2;
  for (const Node* node : row) {
    boxes[node].x = x;
    x += boxes[node].width + kGap;
  }
  return width;
}

// Each as far left as its neighbours are on the average.
void Sort(Row& row, const Neighbours& neighbours, Boxes& boxes) {
  std::map<const Node*, double> wanted;
  for (const Node* node : row) {
    double sum = 0;
    for (const Node* other : neighbours.at(node)) sum += boxes[other].Middle();
    const auto count = static_cast<double>(neighbours.at(node).size());
    wanted[node] = count > 0 ? sum / count : boxes[node].Middle();
  }
  std::stable_sort(row.begin(), row.end(),
                   [&](const Node* a, const Node* b) { return wanted[a] < wanted[b]; });
  Spread(row, boxes);
}

Boxes Place(const std::vector<const Node*>& nodes, int& width, int& height) {
  Boxes boxes;
  Neighbours above, below;
  for (const Node* node : nodes) {
    boxes[node].width = WidthOf(*node);
    above[node], below[node];
    for (const Value* value : ValuesRead(*node)) {
      if (!boxes.contains(value->producer())) continue;
      above[node].push_back(value->producer());
      below[value->producer()].push_back(node);
    }
  }
  Rank(nodes, above, below, boxes);
  std::map<int, Row> rows;
  for (const Node* node : nodes) rows[boxes[node].rank].push_back(node);
  for (auto& [rank, row] : rows) width = std::max(width, Spread(row, boxes));
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (auto row = rows.rbegin(); row != rows.rend(); ++row) Sort(row->second, below, boxes);
    for (auto& [rank, row] : rows) Sort(row, above, boxes);
  }
  for (auto& [node, box] : boxes) box.x += width / 2;
  height = rows.empty() ? 0 : (rows.rbegin()->first + 1) * kRowHeight;
  return boxes;
}

std::string Arrows(const Node& node, const Boxes& boxes) {
  std::string svg;
  const Box& to = boxes.at(&node);
  for (const Value* value : ValuesRead(node)) {
    const auto above = boxes.find(value->producer());
    if (above == boxes.end()) continue;
    const Box& from = above->second;
    StrAppend(&svg, "<line x1=\"", from.Middle(), "\" y1=\"", from.rank * kRowHeight + kBoxHeight,
              "\" x2=\"", to.Middle(), "\" y2=\"", to.rank * kRowHeight, "\"/>");
  }
  return svg;
}

std::string BoxOf(const Node& node, const Box& box) {
  const int y = box.rank * kRowHeight;
  return StrCat("<g class=\"", node.domain() == "pagefuse" ? "fused" : "plain", "\"><title>",
                EscapeHtml(NodeLine(node)), "</title><rect x=\"", box.x, "\" y=\"", y,
                "\" width=\"", box.width, "\" height=\"", kBoxHeight, "\" rx=\"4\"/><text x=\"",
                box.Middle(), "\" y=\"", y + 16, "\">", EscapeHtml(node.op_type()), "</text></g>");
}

}  // namespace

std::string LayerPicture(const std::vector<const Node*>& nodes, std::string_view label) {
  int width = 0, height = 0;
  const Boxes boxes = Place(nodes, width, height);
  // A pixel around it for the lines of the boxes.
  std::string svg = StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width + 2,
                           "\" height=\"", height, "\" role=\"img\" aria-label=\"",
                           EscapeHtml(label), "\" viewBox=\"-1 -1 ", width + 2, " ", height, "\">");
  for (const Node* node : nodes) svg += Arrows(*node, boxes);
  for (const Node* node : nodes) svg += BoxOf(*node, boxes.at(node));
  return svg + "</svg>";
}

}  // namespace pagefuse::tools
