// dead-code: nodes, initialisers and functions that nothing uses go.
#include <algorithm>
#include <set>
#include <utility>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/passes/canonicalise/canonicalise.h"
#include "pagefuse/passes/graph_edit.h"

namespace pagefuse {
namespace {

using FunctionKey = std::pair<std::string, std::string>;

bool EraseDeadNodes(Graph& graph, SymbolicContents& contents) {
  std::vector<Node*> nodes = NodesOf(graph);
  bool changed = false;
  // Readers stand behind what they read, so one backward walk finds all; no node that is still to
  // come is erased.
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    const auto& outputs = (*it)->outputs();
    const bool dead = std::all_of(outputs.begin(), outputs.end(), [](const Value* output) {
      return output == nullptr || (output->uses().empty() && !output->is_output());
    });
    if (!dead) continue;
    for (const Value* output : outputs) contents.erase(output);
    graph.EraseNode(*it);
    changed = true;
  }
  return changed;
}

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

void CollectCalls(const Graph& graph, const Model& model, std::set<FunctionKey>& called) {
  for (const auto& node : graph.nodes()) {
    for (const Graph* subgraph : node->Subgraphs()) CollectCalls(*subgraph, model, called);
    const Function* function = model.FindFunction(node->domain(), node->op_type(), node->overload);
    if (function == nullptr) continue;
    const bool first = called.emplace(node->domain(), node->op_type()).second;
    if (first && function->body != nullptr) CollectCalls(*function->body, model, called);
  }
}

bool EraseDeadFunctions(Model& model) {
  std::set<FunctionKey> called;
  CollectCalls(*model.graph, model, called);
  const size_t before = model.functions.size();
  std::erase_if(model.functions, [&called](const Function& function) {
    return !called.contains({function.domain, function.name});
  });
  return model.functions.size() != before;
}

class DeadCodePass : public Pass {
 public:
  std::string_view name() const override { return "dead-code"; }
  std::string_view description() const override {
    return "Erases nodes, initialisers and functions that nothing uses.";
  }

  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
    bool changed = EraseDeadFunctions(model);
    // Outer graphs first, and the list anew after each: the graphs of a dead node go with it.
    for (size_t i = 0; i < AllGraphs(model).size(); ++i) {
      Graph& graph = *AllGraphs(model)[i].graph;
      changed = EraseDeadNodes(graph, context.contents) || changed;
    }
    std::vector<GraphScope> scopes = AllGraphs(model);
    // Inner graphs last read what outer ones hold.
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      changed = EraseDeadInitializers(*scope->graph, context.contents) || changed;
    }
    if (changed) PF_RETURN_IF_ERROR(context.Rewrote(model, name()));
    return changed;
  }
};

}  // namespace

std::unique_ptr<Pass> DeadCode() { return std::make_unique<DeadCodePass>(); }

}  // namespace pagefuse
