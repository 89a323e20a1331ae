// SPDX-License-Identifier: Apache-2.0
// expand-elementwise: replaces the nodes that fuse-elementwise made by the nodes of their chains.
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/splice_body.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/normalise/normalise.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "expand-elementwise";

Graph* BodyOf(const Node& node) {
  const Attribute* body = node.attribute("body");
  const auto* graph = body == nullptr ? nullptr : std::get_if<std::shared_ptr<Graph>>(&body->value);
  return graph == nullptr ? nullptr : graph->get();
}

absl::StatusOr<bool> Expand(Model& model, PassContext& context) {
  // First all of them: the graph that a chain is goes with its node.
  std::vector<Node*> chains;
  for (const GraphScope& scope : AllGraphs(model)) {
    for (const auto& node : scope.graph->nodes()) {
      if (node->Is("Elementwise", "pagefuse") && BodyOf(*node) != nullptr) {
        chains.push_back(node.get());
      }
    }
  }
  for (Node* node : chains) {
    Graph& body = *BodyOf(*node);
    PF_RETURN_IF_ERROR(SpliceBody(body, *node, PortsInOrder(body), context.contents));
    node->graph()->EraseNode(node);
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
  }
  return !chains.empty();
}

}  // namespace

std::unique_ptr<Pass> ExpandElementwise() {
  return MakePass(
      kName, "Replaces each pagefuse.Elementwise by the nodes of the chain that it holds.", Expand);
}

}  // namespace pagefuse
