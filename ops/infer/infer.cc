// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/infer/infer.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/infer/inferred_calls.h"
#include "pagefuse/ops/infer/symbolic_arithmetic.h"
#include "pagefuse/ops/registry/function_expansion.h"
#include "pagefuse/ops/schema/foreign_op.h"
#include "pagefuse/ops/schema/function_body.h"

namespace pagefuse {
namespace {

// Constants of up to so many elements are computed while inferring, because shapes are made of
// them; from inputs of up to so many.
constexpr int64_t kMaxFoldedSize = 64;
constexpr int64_t kMaxFoldedInput = 4096;

bool IsFresh(const Dim& dim) {
  return std::ranges::any_of(dim.terms(), [](const Dim::Term& term) {
    return term.first.find(ShapeContext::kFreshPrefix) != std::string::npos;
  });
}

// What is known of a dim from two sources that must agree; nullopt if they are different numbers.
std::optional<Dim> Refine(const Dim& declared, const Dim& inferred) {
  if (!inferred.known()) return declared;
  if (!declared.known() || inferred.is_constant()) {
    if (declared.is_constant() && !(declared == inferred)) return std::nullopt;
    return inferred;
  }
  // A name that says where the size comes from beats one that was made up.
  if (declared.is_constant() || IsFresh(inferred)) return declared;
  return inferred;
}

class Inference {
 public:
  Inference(const Model& model, const OpRegistry& registry, SymbolicContents& contents)
      : model_(model), registry_(registry), contents_(contents), functions_(model.functions) {}

  // Infers all nodes of a graph. `versions`: the imports that its nodes mean; `scope`: see
  // ShapeContext::set_scope.
  absl::Status Run(Graph& graph, const std::map<std::string, int64_t>& versions,
                   const std::string& scope) {
    for (const auto& node : graph.nodes()) {
      const std::vector<Graph*> bodies = node->Subgraphs();
      if (!bodies.empty()) BindBodies(*node, bodies, versions);
      int index = 0;
      for (Graph* subgraph : bodies) {
        const std::string inner = absl::StrCat(scope, node->Description(), "/", index++, "/");
        const absl::Status status = Run(*subgraph, versions, inner);
        // A branch may be wrong for the shapes at hand: then it is the other one that runs, or
        // this one says what is wrong when it does.
        if (!status.ok() && !node->Is("If")) return status;
      }
      PF_RETURN_IF_ERROR(InferNode(*node, versions, scope));
    }
    return absl::OkStatus();
  }

  // Gives sizes that the main graph's inputs and outputs name twice, as `total` and as
  // `past + sequence`, the name that says what they are made of.
  void JoinNames(Graph& graph) {
    std::set<std::string> given;
    for (const Value* input : graph.inputs()) AddSymbols(*input, given);
    std::erase_if(same_, [&](const auto& pair) {
      const auto& terms = pair.second.terms();
      return !given.contains(pair.first) || !std::ranges::all_of(terms, [&](const auto& term) {
        return given.contains(term.first) && !same_.contains(term.first);
      });
    });
    if (same_.empty()) return;
    const auto rename = [&](Value* value) {
      if (value && value->shape()) value->set_shape(value->shape()->Substitute(same_));
    };
    for (Value* input : graph.inputs()) rename(input);
    for (const auto& node : graph.nodes()) {
      for (Value* output : node->outputs()) rename(output);
    }
    for (auto& [value, dims] : contents_) {
      for (Dim& dim : dims) dim = dim.Substitute(same_);
    }
  }

 private:
  using Known = ShapeContext::Known;

  static void AddSymbols(const Value& value, std::set<std::string>& symbols) {
    if (!value.shape()) return;
    for (const Dim& dim : value.shape()->dims()) {
      for (const auto& [symbol, coefficient] : dim.terms()) symbols.insert(symbol);
    }
  }

  Known KnownOf(const Value& value) const {
    Known known{value.dtype(), value.shape(), std::nullopt, nullptr};
    if (value.IsConstant() && !IsAbsent(*value.initializer())) known.tensor = value.initializer();
    const auto folded = folded_.find(&value);
    if (folded != folded_.end()) known.tensor = &folded->second;
    const auto contents = contents_.find(&value);
    if (contents != contents_.end()) known.value = contents->second;
    return known;
  }

  int64_t Version(const Node& node, const std::map<std::string, int64_t>& versions) const {
    const auto version = versions.find(node.domain());
    return version != versions.end() ? version->second : model_.OpsetVersion(node.domain());
  }

  // Tells the graphs of a node what their inputs are.
  void BindBodies(const Node& node, const std::vector<Graph*>& bodies,
                  const std::map<std::string, int64_t>& versions) {
    const int64_t opset = Version(node, versions);
    const OpDef* op = registry_.Find(node.domain(), node.op_type(), opset);
    if (op == nullptr || op->bodies() == nullptr) return;
    const ShapeContext context(node, opset, KnownInputs(node));
    for (Graph* body : bodies) op->bodies()->bind(context, *body);
  }

  std::vector<Known> KnownInputs(const Node& node) const {
    std::vector<Known> inputs;
    inputs.reserve(node.inputs().size());
    for (const Value* input : node.inputs()) inputs.push_back(input ? KnownOf(*input) : Known());
    return inputs;
  }

  absl::Status InferNode(Node& node, const std::map<std::string, int64_t>& versions,
                         const std::string& scope) {
    const int64_t opset = Version(node, versions);
    const OpDef* op = registry_.Find(node.domain(), node.op_type(), opset);
    if (op == nullptr) {
      const Function* function = functions_.Find(node);
      return function == nullptr ? absl::OkStatus() : InferCall(node, *function, scope);
    }
    ShapeContext context(node, opset, KnownInputs(node));
    context.set_scope(scope);
    PF_RETURN_IF_ERROR(op->Infer(context));
    PropagateArithmetic(context);
    for (int i = 0; i < node.num_outputs(); ++i) {
      if (node.output(i) != nullptr) {
        PF_RETURN_IF_ERROR(Merge(node, *node.output(i), context.outputs()[i]));
      }
    }
    if (!IsForeign(*op)) Fold(node, opset, context);
    return absl::OkStatus();
  }

  // Writes what was inferred of an output to its value.
  absl::Status Merge(const Node& node, Value& value, const Known& known) {
    const auto error = [&](const std::string& declared, const std::string& inferred) {
      return absl::InvalidArgumentError(absl::StrCat(node.Description(), ": output \"",
                                                     value.name(), "\": declared as ", declared,
                                                     ", inferred as ", inferred));
    };
    if (known.dtype != DataType::kUndefined) {
      if (value.dtype() != DataType::kUndefined && value.dtype() != known.dtype) {
        return error(std::string(DataTypeName(value.dtype())),
                     std::string(DataTypeName(known.dtype)));
      }
      value.set_dtype(known.dtype);
    }
    if (known.value) contents_[&value] = *known.value;
    if (!known.shape) return absl::OkStatus();
    // A constant says itself what it is; exporters declare theirs as scalars whatever they hold.
    if (!value.shape() || node.Is("Constant")) {
      value.set_shape(known.shape);
      return absl::OkStatus();
    }
    // As a rule a graph is inferred again after a pass that changed it elsewhere.
    if (*value.shape() == *known.shape) return absl::OkStatus();
    Shape shape = *value.shape();
    if (shape.rank() != known.shape->rank()) {
      return error(shape.ToString(), known.shape->ToString());
    }
    for (int i = 0; i < shape.rank(); ++i) {
      const Dim& inferred = (*known.shape)[i];
      const std::optional<Dim> dim = Refine(shape[i], inferred);
      if (!dim) return error(value.shape()->ToString(), known.shape->ToString());
      if (value.is_output() && !(shape[i] == inferred)) NoteSame(shape[i], inferred);
      shape[i] = *dim;
    }
    value.set_shape(std::move(shape));
    return absl::OkStatus();
  }

  // An output declares by a name of its own what is computed of others: one size.
  void NoteSame(const Dim& declared, const Dim& inferred) {
    const std::optional<std::string> name = declared.symbol();
    const bool sum = inferred.known() && inferred.terms().size() > 1 && !IsFresh(inferred);
    if (!name || !sum || IsFresh(declared)) return;
    for (const auto& [symbol, coefficient] : inferred.terms()) {
      if (symbol == *name) return;
    }
    same_.emplace(*name, inferred);
  }

  // Computes small outputs of a node whose inputs are all known numbers.
  void Fold(const Node& node, int64_t opset, const ShapeContext& context) {
    for (int i = 0; i < node.num_inputs(); ++i) {
      const Tensor* tensor = context.input_tensor(i);
      if (tensor == nullptr ? context.has_input(i) : tensor->size() > kMaxFoldedInput) return;
    }
    if (!node.Subgraphs().empty()) return;
    for (const Known& output : context.outputs()) {
      if (!output.shape) return;
      const std::optional<std::vector<int64_t>> dims = output.shape->constant();
      if (!dims || ElementCount(*dims).value_or(kMaxFoldedSize + 1) > kMaxFoldedSize) return;
    }
    std::vector<Tensor> inputs;
    for (int i = 0; i < node.num_inputs(); ++i) {
      const Tensor* tensor = context.input_tensor(i);
      inputs.push_back(tensor == nullptr ? Tensor() : *tensor);
    }
    absl::StatusOr<std::vector<Tensor>> outputs = EvaluateNode(node, opset, inputs);
    if (!outputs.ok())
      return;  // no kernel, or a value that only shows at run time: nothing is known
    for (int i = 0; i < node.num_outputs(); ++i) {
      const Value* value = node.output(i);
      if (value == nullptr) continue;
      const Tensor& tensor = folded_[value] = std::move((*outputs)[i]);
      if (tensor.rank() > 1 || !IsInteger(tensor.dtype())) continue;
      const absl::StatusOr<std::vector<int64_t>> ints = IntegerValues(tensor);
      if (ints.ok()) contents_[value] = std::vector<Dim>(ints->begin(), ints->end());
    }
  }

  // What the body of a function gives for the types of this call.
  absl::Status InferCall(Node& node, const Function& function, const std::string& scope) {
    const std::vector<Known> inputs = KnownInputs(node);
    const std::string inner = absl::StrCat(scope, node.Description(), "/");
    const std::optional<std::string> key = InferredCalls::KeyOf(function, node, inputs);
    std::optional<std::vector<InferredOutput>> outputs;
    if (key) outputs = inferred_calls_.Find(*key, inputs, inner);
    if (!outputs) {
      PF_ASSIGN_OR_RETURN(outputs, InferBody(node, function, inputs, inner));
      if (key) inferred_calls_.Add(*key, *outputs);
    }
    for (int i = 0; i < node.num_outputs(); ++i) {
      if (node.output(i) == nullptr || i >= static_cast<int>(outputs->size())) continue;
      const InferredOutput& output = (*outputs)[i];
      PF_RETURN_IF_ERROR(
          Merge(node, *node.output(i), {output.dtype, output.shape, output.value, nullptr}));
      if (output.tensor) folded_[node.output(i)] = *output.tensor;
    }
    return absl::OkStatus();
  }

  // Infers a copy of the function's body.
  absl::StatusOr<std::vector<InferredOutput>> InferBody(const Node& node, const Function& function,
                                                        const std::vector<Known>& inputs,
                                                        const std::string& scope) {
    const std::unique_ptr<Graph> body = InstantiateBody(function, node);
    if (inputs.size() > body->inputs().size()) {
      return absl::InvalidArgumentError(absl::StrCat(node.Description(), ": function \"",
                                                     function.name, "\" has only ",
                                                     body->inputs().size(), " inputs"));
    }
    body_nodes_ += body->num_nodes();
    if (body_nodes_ > kMaxExpandedNodes) return TooManyNodes(function, body_nodes_);
    for (size_t i = 0; i < inputs.size(); ++i) {
      Value* formal = body->inputs()[i];
      formal->set_dtype(inputs[i].dtype);
      formal->set_shape(inputs[i].shape);
      if (inputs[i].value) contents_[formal] = *inputs[i].value;
      if (inputs[i].tensor) folded_[formal] = *inputs[i].tensor;
    }
    const absl::Status status = Run(*body, function.opset_imports, scope);
    std::vector<InferredOutput> outputs;
    for (const Value* output : body->outputs()) {
      const Known known = KnownOf(*output);
      outputs.push_back({known.dtype, known.shape, known.value, std::nullopt});
      if (known.tensor) outputs.back().tensor = *known.tensor;
    }
    Forget(*body);
    PF_RETURN_IF_ERROR(status);
    return outputs;
  }

  // New values may come to lie where those of a graph that goes were.
  void Forget(const Graph& graph) {
    for (const Value* value : graph.values()) {
      contents_.erase(value);
      folded_.erase(value);
    }
    for (const auto& node : graph.nodes()) {
      for (const Graph* subgraph : node->Subgraphs()) Forget(*subgraph);
    }
  }

  const Model& model_;
  const OpRegistry& registry_;
  SymbolicContents& contents_;
  std::unordered_map<const Value*, Tensor> folded_;  // references to its tensors stay valid
  const FunctionIndex functions_;
  InferredCalls inferred_calls_;
  std::map<std::string, Dim> same_;  // names that outputs declare for sizes of other names
  int64_t body_nodes_ = 0;           // of all bodies that were inferred
};

}  // namespace

absl::Status InferShapes(Model& model, SymbolicContents* contents, const OpRegistry& registry) {
  PF_RETURN_IF_ERROR(CheckExpansion(model, registry));
  SymbolicContents own;
  Inference inference(model, registry, contents != nullptr ? *contents : own);
  PF_RETURN_IF_ERROR(inference.Run(*model.graph, model.opset_imports, ""));
  inference.JoinNames(*model.graph);
  return absl::OkStatus();
}

}  // namespace pagefuse
