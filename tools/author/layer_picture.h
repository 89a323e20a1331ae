// SPDX-License-Identifier: Apache-2.0
// Draws a part of a graph as SVG.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse::tools {

// Nodes below what they read, an arrow for each value that one of them computes and another reads.
// `label` is what is read aloud in its place.
std::string LayerPicture(const std::vector<const Node*>& nodes, std::string_view label);

}  // namespace pagefuse::tools
