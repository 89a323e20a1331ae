// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/graph_ports.h"

#include <algorithm>

namespace pagefuse {

void RemoveInput(Graph& graph, const Value* input) {
  const auto place = std::ranges::find(graph.inputs(), input);
  graph.RemoveInput(static_cast<int>(place - graph.inputs().begin()));
}

void RemoveOutput(Graph& graph, const Value* output) {
  for (int i = static_cast<int>(graph.outputs().size()) - 1; i >= 0; --i) {
    if (graph.outputs()[i] == output) graph.RemoveOutput(i);
  }
}

void ReplaceOutput(Graph& graph, const Value* from, Value* to) {
  for (int i = 0; i < static_cast<int>(graph.outputs().size()); ++i) {
    if (graph.outputs()[i] == from) graph.ReplaceOutput(i, to);
  }
}

void ForgetShapes(Graph& graph) {
  for (const auto& node : graph.nodes()) {
    for (Value* output : node->outputs()) {
      if (output) output->set_shape(std::nullopt);
    }
  }
}

}  // namespace pagefuse
