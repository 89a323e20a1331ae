// SPDX-License-Identifier: Apache-2.0
// inline-functions: replaces calls of model-local functions by the bodies of the functions, so that
// patterns see their nodes. Calls that stand for a registered op stay calls: the op is what they
// mean. An If whose condition is constant gives way to its branch.
#include <algorithm>
#include <iterator>
#include <memory>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/function_expansion.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/added_attributes.h"
#include "pagefuse/ops/schema/function_body.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/splice_body.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/normalise/normalise.h"
#include "pagefuse/passes/normalise/older_forms.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "inline-functions";

// True if the function's nodes mean the same under the imports of the graph that calls it.
bool SameMeaning(const Function& function, const OpsetImports& opsets) {
  std::vector<const Graph*> graphs = {function.body.get()};
  while (!graphs.empty()) {
    const Graph& graph = *graphs.back();
    graphs.pop_back();
    for (const auto& node : graph.nodes()) {
      for (const Graph* subgraph : node->Subgraphs()) graphs.push_back(subgraph);
      const int64_t to = OpsetOf(opsets, node->domain());
      const int64_t from = OpsetOf(function.opset_imports, node->domain());
      if (to == 0 || to == from) continue;  // imported with the function's version
      if (FindOpDef(*node, opsets) != FindOpDef(*node, function.opset_imports)) return false;
      if (node->domain().empty() && !MeansTheSame(*node, from, to)) return false;
    }
  }
  return true;
}

// The branch that an If always takes; null for another node, or where that is not known.
Graph* OnlyBranch(const Node& node) {
  const Tensor* condition = node.Is("If") ? ConstantOf(node.input(0)) : nullptr;
  if (!condition || condition->dtype() != DataType::kBool || condition->size() != 1) return nullptr;
  const bool taken = condition->values<bool>()[0];
  const Attribute* branch = node.attribute(taken ? "then_branch" : "else_branch");
  const auto* graph = branch ? std::get_if<std::shared_ptr<Graph>>(&branch->value) : nullptr;
  return graph ? graph->get() : nullptr;
}

// Puts bodies in place of calls, in the bodies too.
class Inliner {
 public:
  Inliner(Model& model, PassContext& context)
      : model_(model), context_(context), functions_(model.functions) {}

  absl::StatusOr<bool> Run() {
    PF_RETURN_IF_ERROR(CheckExpansion(model_));
    PF_ASSIGN_OR_RETURN(bool changed, Run(*model_.graph, model_.opset_imports));
    for (Function& function : model_.functions) {
      // What is no op of its own is not called any more.
      if (function.body == nullptr || !IsOp(function)) continue;
      PF_ASSIGN_OR_RETURN(const bool inner, Run(*function.body, function.opset_imports));
      changed = changed || inner;
    }
    return changed;
  }

 private:
  bool IsOp(const Function& function) const {
    const int64_t opset = std::max<int64_t>(1, model_.OpsetVersion(function.domain));
    return OpRegistry::Global().Find(function.domain, function.name, opset) != nullptr;
  }

  absl::StatusOr<bool> Run(Graph& graph, OpsetImports& opsets) {
    bool changed = false;
    for (auto it = graph.nodes().begin(); it != graph.nodes().end();) {
      Node* node = it->get();
      Graph* branch = OnlyBranch(*node);
      if (!branch && !IsInlined(*node, opsets)) {
        for (Graph* subgraph : node->Subgraphs()) {
          PF_ASSIGN_OR_RETURN(const bool inner, Run(*subgraph, opsets));
          changed = changed || inner;
        }
        ++it;
        continue;
      }
      // The nodes of the body, which take the place of the call, come next.
      const bool is_first = it == graph.nodes().begin();
      const auto before = is_first ? it : std::prev(it);
      PF_RETURN_IF_ERROR(branch ? Splice(*branch, *node) : Inline(*node, opsets));
      it = is_first ? graph.nodes().begin() : std::next(before);
      changed = true;
    }
    return changed;
  }

  bool IsInlined(const Node& node, const OpsetImports& opsets) {
    const Function* function = functions_.Find(node);
    if (function == nullptr || function->body == nullptr) return false;
    if (FindOpDef(node, opsets) != nullptr) return false;
    if (SameMeaning(*function, opsets)) return true;
    context_.AddMissedMatch(kName, NodeLabel(node),
                            StrCat("function \"", function->name,
                                   "\" imports opsets of another meaning than its caller"));
    return false;
  }

  absl::Status Inline(Node& call, OpsetImports& opsets) {
    const Function& function = *functions_.Find(call);
    for (const auto& [domain, version] : function.opset_imports) {
      if (OpsetOf(opsets, domain) == 0) opsets[domain] = version;
    }
    std::unique_ptr<Graph> body = InstantiateBody(function, call);
    added_ += CountNodes(*body);
    if (added_ > kMaxExpandedNodes) return TooManyNodes(function, added_);
    if (call.inputs().size() > body->inputs().size() ||
        call.outputs().size() > body->outputs().size()) {
      return absl::InvalidArgumentError(
          StrCat(call.Description(), ": function \"", function.name, "\" has ",
                 body->inputs().size(), " inputs and ", body->outputs().size(), " outputs, got ",
                 call.inputs().size(), " and ", call.outputs().size()));
    }
    return Splice(*body, call);
  }

  absl::Status Splice(Graph& body, Node& call) {
    PF_RETURN_IF_ERROR(SpliceBody(body, call, PortsInOrder(body), context_.contents));
    for (const Value* output : call.outputs()) context_.contents.erase(output);
    call.graph()->EraseNode(&call);
    return context_.Rewrote(model_, kName);
  }

  // A body may hold graphs that its caller gave it, as often as it likes.
  static int64_t CountNodes(const Graph& graph) {
    int64_t count = graph.num_nodes();
    for (const auto& node : graph.nodes()) {
      for (const Graph* subgraph : node->Subgraphs()) count += CountNodes(*subgraph);
    }
    return count;
  }

  Model& model_;
  PassContext& context_;
  const FunctionIndex functions_;
  int64_t added_ = 0;
};

// InvalidArgument naming a call that is left.
absl::Status CheckNoCalls(const Graph& graph, const FunctionIndex& functions,
                          const OpsetImports& opsets) {
  for (const auto& node : graph.nodes()) {
    for (const Graph* subgraph : node->Subgraphs()) {
      PF_RETURN_IF_ERROR(CheckNoCalls(*subgraph, functions, opsets));
    }
    if (functions.Find(*node) == nullptr || FindOpDef(*node, opsets) != nullptr) continue;
    return absl::InvalidArgumentError(
        StrCat(node->Description(),
               ": expected a function of opsets that mean the same as those of "
               "its caller"));
  }
  return absl::OkStatus();
}

// A model as it is given: nodes have what their opset has.
absl::Status CheckAttributes(Model& model) {
  for (const GraphScope& scope : AllGraphs(model)) {
    const int64_t opset = OpsetOf(*scope.opsets, "");
    for (const auto& node : scope.graph->nodes()) {
      PF_RETURN_IF_ERROR(CheckAddedAttributes(*node, opset));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Pass> InlineFunctions() {
  return MakePass(
      kName,
      "Replaces calls of model-local functions by the bodies of the functions, except calls "
      "that stand for a registered op; puts slices in place of sequences that constants settle, "
      "and the branch that is taken in place of an If of a constant.",
      [](Model& model, PassContext& context) -> absl::StatusOr<bool> {
        PF_RETURN_IF_ERROR(CheckAttributes(model));
        RestorePluginCalls(model);
        PF_ASSIGN_OR_RETURN(const bool inlined, Inliner(model, context).Run());
        return SettleSequences(model) || inlined;
      });
}

absl::Status InlineAllFunctions(Model& model) {
  PF_RETURN_IF_ERROR(CheckAttributes(model));
  if (model.functions.empty()) {
    SettleSequences(model);
    return absl::OkStatus();
  }
  RestorePluginCalls(model);
  PassContext context;
  PF_RETURN_IF_ERROR(Inliner(model, context).Run().status());
  SettleSequences(model);
  return CheckNoCalls(*model.graph, FunctionIndex(model.functions), model.opset_imports);
}

}  // namespace pagefuse
