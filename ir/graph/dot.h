// SPDX-License-Identifier: Apache-2.0
// Prints a graph in the language of Graphviz, as a picture.
#pragma once

#include <string>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// A `digraph` with one box a node (its op, and its name where it has one), an oval for each graph
// input and output, and an arrow for each value that is read, labelled with its name, type and
// shape. Initialisers and constants are left out, subgraphs are clusters that the node which holds
// them points to. Stable: the same graph always gives the same text.
std::string PrintDot(const Graph& graph);

}  // namespace pagefuse
