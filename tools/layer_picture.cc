#include "tools/layer_picture.h"

#include <algorithm>
#include <map>

#include "tools/report_page.h"

#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/authoring/graph_snapshot.h"

namespace pagefuse::tools {
namespace {

constexpr int kBoxHeight = 24, kRowHeight = 44, kGap = 14, kLetter = 8, kPadding = 16;

struct Box {
  int rank = 0, x = 0, width = 0;
};

int WidthOf(const Node& node) {
  return static_cast<int>(node.op_type().size()) * kLetter + kPadding;
}

// One row below the lowest node that it reads.
std::map<const Node*, Box> Place(const std::vector<const Node*>& nodes, int& width, int& rows) {
  std::map<const Node*, Box> boxes;
  std::map<int, int> used;
  for (const Node* node : nodes) {
    Box box{.rank = 0, .x = 0, .width = WidthOf(*node)};
    for (const Value* value : ValuesRead(*node)) {
      const auto above = boxes.find(value->producer());
      if (above != boxes.end()) box.rank = std::max(box.rank, above->second.rank + 1);
    }
    box.x = used[box.rank];
    used[box.rank] += box.width + kGap;
    width = std::max(width, used[box.rank]);
    rows = std::max(rows, box.rank + 1);
    boxes[node] = box;
  }
  // Rows stand in the middle.
  for (auto& [node, box] : boxes) box.x += (width - used[box.rank]) / 2;
  return boxes;
}

std::string Arrows(const Node& node, const std::map<const Node*, Box>& boxes) {
  std::string svg;
  const Box& to = boxes.at(&node);
  for (const Value* value : ValuesRead(node)) {
    const auto above = boxes.find(value->producer());
    if (above == boxes.end()) continue;
    const Box& from = above->second;
    StrAppend(&svg, "<line x1=\"", from.x + from.width / 2, "\" y1=\"",
              from.rank * kRowHeight + kBoxHeight, "\" x2=\"", to.x + to.width / 2, "\" y2=\"",
              to.rank * kRowHeight, "\"/>");
  }
  return svg;
}

std::string BoxOf(const Node& node, const Box& box) {
  const int y = box.rank * kRowHeight;
  return StrCat("<g class=\"", node.domain() == "pagefuse" ? "fused" : "plain", "\"><title>",
                EscapeHtml(NodeLine(node)), "</title><rect x=\"", box.x, "\" y=\"", y,
                "\" width=\"", box.width, "\" height=\"", kBoxHeight, "\" rx=\"4\"/><text x=\"",
                box.x + box.width / 2, "\" y=\"", y + 16, "\">", EscapeHtml(node.op_type()),
                "</text></g>");
}

}  // namespace

std::string LayerPicture(const std::vector<const Node*>& nodes) {
  int width = 0, rows = 0;
  const std::map<const Node*, Box> boxes = Place(nodes, width, rows);
  std::string svg = StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width,
                           "\" height=\"", rows * kRowHeight, "\">");
  for (const Node* node : nodes) svg += Arrows(*node, boxes);
  for (const Node* node : nodes) svg += BoxOf(*node, boxes.at(node));
  return svg + "</svg>";
}

}  // namespace pagefuse::tools
