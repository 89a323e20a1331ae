// Draws a part of a graph as SVG.
#pragma once

#include <string>
#include <vector>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse::tools {

// Nodes below what they read, an arrow for each value that one of them computes and another reads.
std::string LayerPicture(const std::vector<const Node*>& nodes);

}  // namespace pagefuse::tools
