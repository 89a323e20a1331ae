// inline-functions: calls of model-local functions become their bodies, so that patterns see what
// they hold. Functions that stand behind a registered op stay calls: the op is what they mean.
#include <algorithm>
#include <memory>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/function_body.h"
#include "pagefuse/passes/canonicalise/canonicalise.h"
#include "pagefuse/passes/graph_edit.h"

namespace pagefuse {
namespace {

// True if the function's nodes mean the same under the imports of the graph that calls it.
bool SameMeaning(const Function& function, const OpsetImports& opsets) {
  std::vector<const Graph*> graphs = {function.body.get()};
  while (!graphs.empty()) {
    const Graph& graph = *graphs.back();
    graphs.pop_back();
    for (const auto& node : graph.nodes()) {
      for (const Graph* subgraph : node->Subgraphs()) graphs.push_back(subgraph);
      if (OpsetOf(opsets, node->domain()) == 0) continue;  // imported with the function's version
      if (OpsetOf(opsets, node->domain()) == OpsetOf(function.opset_imports, node->domain()))
        continue;
      if (FindOpDef(*node, opsets) != FindOpDef(*node, function.opset_imports)) return false;
    }
  }
  return true;
}

// Copies the nodes of `body` before `call` and lets its readers read theirs.
void Splice(Graph& body, Node& call, SymbolicContents& contents) {
  Graph& graph = *call.graph();
  Graph::ValueMap values;
  for (size_t i = 0; i < body.inputs().size(); ++i) {
    values[body.inputs()[i]] = call.input(static_cast<int>(i));
  }
  for (const Value* value : body.initializers()) {
    if (value->is_input()) continue;
    values[value] = AddConstant(graph, value->name(), *value->initializer(), contents);
  }
  const std::string prefix = NodeLabel(call);
  for (const auto& node : body.nodes()) {
    std::vector<Value*> inputs, outputs;
    for (const Value* input : node->inputs()) {
      inputs.push_back(input == nullptr ? nullptr : values.at(input));
    }
    for (const Value* output : node->outputs()) {
      outputs.push_back(nullptr);
      if (output == nullptr) continue;
      outputs.back() = graph.AddValue(graph.UniqueName(StrCat(prefix, "/", output->name())),
                                      output->dtype(), output->shape());
      contents.erase(outputs.back());
      values[output] = outputs.back();
    }
    Node* copy = graph.AddNode(node->domain(), node->op_type(), std::move(inputs),
                               std::move(outputs), &call);
    copy->name = StrCat(prefix, "/", NodeLabel(*node));
    copy->overload = node->overload;
    copy->doc_string = node->doc_string;
    copy->metadata = node->metadata;
    for (const auto& [key, value] : call.metadata) {
      if (!FindMetadata(copy->metadata, key).has_value()) SetMetadata(copy->metadata, key, value);
    }
    for (const auto& [name, attribute] : node->attributes()) {
      copy->SetAttribute(name, Graph::CloneAttribute(attribute, &graph, values));
    }
  }
  for (int i = 0; i < call.num_outputs(); ++i) {
    if (call.output(i) == nullptr || i >= static_cast<int>(body.outputs().size())) continue;
    Value* result = values.at(body.outputs()[i]);
    if (result == nullptr) continue;
    if (!result->shape().has_value()) result->set_shape(call.output(i)->shape());
    graph.ReplaceAllUses(call.output(i), result);
  }
}

class InlineFunctionsPass : public Pass {
 public:
  std::string_view name() const override { return "inline-functions"; }
  std::string_view description() const override {
    return "Puts the bodies of model-local functions in place of their calls, unless the call is a "
           "registered op.";
  }

  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
    bool changed = false;
    // Functions do not call each other in a circle (Verify), so each round settles one level of
    // calls.
    while (true) {
      PF_ASSIGN_OR_RETURN(const bool changed_here, Round(model, context));
      if (!changed_here) return changed;
      changed = true;
    }
  }

 private:
  absl::StatusOr<bool> Round(Model& model, PassContext& context) const {
    bool changed = false;
    for (const GraphScope& scope : AllGraphs(model)) {
      for (Node* node : NodesOf(*scope.graph)) {
        const Function* function =
            model.FindFunction(node->domain(), node->op_type(), node->overload);
        if (function == nullptr || function->body == nullptr) continue;
        if (FindOpDef(*node, *scope.opsets) != nullptr) continue;
        if (!SameMeaning(*function, *scope.opsets)) {
          context.AddMiss(name(), NodeLabel(*node),
                          StrCat("function \"", function->name,
                                 "\" imports opsets of another meaning than its caller"));
          continue;
        }
        for (const auto& [domain, version] : function->opset_imports) {
          if (OpsetOf(*scope.opsets, domain) == 0) (*scope.opsets)[domain] = version;
        }
        std::unique_ptr<Graph> body = InstantiateBody(*function, *node);
        Splice(*body, *node, context.contents);
        for (const Value* output : node->outputs()) context.contents.erase(output);
        scope.graph->EraseNode(node);
        changed = true;
        PF_RETURN_IF_ERROR(context.Rewrote(model, name()));
      }
      // The list of graphs may be longer now, and nodes with subgraphs are new ones.
      if (changed) return true;
    }
    return changed;
  }
};

}  // namespace

std::unique_ptr<Pass> InlineFunctions() { return std::make_unique<InlineFunctionsPass>(); }

}  // namespace pagefuse
