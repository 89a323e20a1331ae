#include "pagefuse/passes/edit/slot_filter.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {
namespace {

// `slots >= 0`, behind NonZero and views.
bool KeepsSlots(const Value* value) {
  const Node* node = value->producer();
  while (node && (node->Is("Squeeze") || node->Is("Reshape"))) node = node->input(0)->producer();
  if (!node || !node->Is("NonZero")) return false;
  const Node* test = node->input(0)->producer();
  return test && test->Is("GreaterOrEqual");
}

}  // namespace

bool DropSlotFilter(Graph& graph) {
  bool changed = false;
  for (Node* node : NodesOf(graph)) {
    if (!node->Is("Gather") || IntOr(*node, "axis", 0) != 0 || !KeepsSlots(node->input(1)))
      continue;
    graph.ReplaceAllUses(node->output(0), node->input(0));
    changed = true;
  }
  return changed;
}

}  // namespace pagefuse
