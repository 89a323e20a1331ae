// SPDX-License-Identifier: Apache-2.0
// dead-code: erases nodes, initialisers and functions that nothing uses.
#include <utility>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "dead-code";

bool EraseDeadInitializers(Graph& graph, SymbolicContents& contents) {
  bool changed = false;
  for (Value* value : graph.initializers()) {
    if (!value->uses().empty() || value->is_output() || value->is_input()) continue;
    contents.erase(value);
    graph.EraseValue(value);
    changed = true;
  }
  return changed;
}

void CollectCalls(const Graph& graph, const FunctionIndex& functions,
                  absl::flat_hash_set<const Function*>& called) {
  for (const auto& node : graph.nodes()) {
    for (const Graph* subgraph : node->Subgraphs()) CollectCalls(*subgraph, functions, called);
    const Function* function = functions.Find(*node);
    if (function == nullptr || !called.insert(function).second) continue;
    if (function->body != nullptr) CollectCalls(*function->body, functions, called);
  }
}

bool EraseDeadFunctions(Model& model) {
  if (model.functions.empty()) return false;
  absl::flat_hash_set<const Function*> called;
  CollectCalls(*model.graph, FunctionIndex(model.functions), called);
  std::vector<Function> kept;
  for (Function& function : model.functions) {
    if (called.contains(&function)) kept.push_back(std::move(function));
  }
  const bool changed = kept.size() != model.functions.size();
  model.functions = std::move(kept);
  return changed;
}

absl::StatusOr<bool> EraseDeadCode(Model& model, PassContext& context) {
  bool changed = EraseDeadFunctions(model);
  changed = EraseDeadNodes(*model.graph, context.contents) || changed;
  for (Function& function : model.functions) {
    if (function.body == nullptr) continue;
    changed = EraseDeadNodes(*function.body, context.contents) || changed;
  }
  std::vector<GraphScope> scopes = AllGraphs(model);
  // Inner graphs last read what outer ones hold.
  for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
    changed = EraseDeadInitializers(*scope->graph, context.contents) || changed;
  }
  if (changed) PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
  return changed;
}

}  // namespace

// Readers stand behind what they read, so one backward walk finds all: a node that only dead ones
// in later graphs read is dead when the walk comes to it, and no node that is still to come is
// erased.
bool EraseDeadNodes(Graph& graph, SymbolicContents& contents) {
  std::vector<Node*> nodes = NodesOf(graph);
  bool changed = false;
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    const auto& outputs = (*it)->outputs();
    if (!IsDead(**it)) {
      for (Graph* inner : (*it)->Subgraphs()) changed = EraseDeadNodes(*inner, contents) || changed;
      continue;
    }
    for (const Value* output : outputs) contents.erase(output);
    graph.EraseNode(*it);
    changed = true;
  }
  return changed;
}

std::unique_ptr<Pass> DeadCode() {
  return MakePass(kName, "Erases nodes, initialisers and functions that nothing uses.",
                  EraseDeadCode);
}

}  // namespace pagefuse
