// SPDX-License-Identifier: Apache-2.0
// constant-folding: computes what does not depend on inputs once, while the graph is rewritten.
#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/weight_origin.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

// A folded constant may take this much memory; larger results (the Transpose of a weight) stay
// computed.
constexpr int64_t kMaxFoldedBytes = 64 << 10;

// Ops that must stay although their inputs are constant: results that differ from run to run, and
// weights that are kept small on purpose.
bool MayFold(const Node& node) {
  if (!node.domain().empty() || !node.Subgraphs().empty() || HasAttributeRef(node)) return false;
  const std::string& op = node.op_type();
  return !op.starts_with("Random") && op != "Multinomial" && op != "Bernoulli" &&
         op != "DequantizeLinear" && op != "Constant" && !op.starts_with("Sequence") &&
         !op.starts_with("Optional");
}

bool HasReaders(const Node& node) {
  return std::ranges::any_of(node.outputs(), [](const Value* output) {
    return output != nullptr && !output->uses().empty();
  });
}

class Folding {
 public:
  Folding(Model& model, PassContext& context, const GraphScope& scope)
      : model_(model), context_(context), graph_(*scope.graph), opsets_(*scope.opsets) {}

  absl::StatusOr<bool> Run() {
    bool changed = false;
    absl::flat_hash_set<const Node*> erased;
    for (Node* node : NodesOf(graph_)) {
      if (erased.contains(node) || !HasReaders(*node)) continue;
      const auto constants = Evaluate(*node);
      if (!constants.has_value()) continue;
      for (int i = 0; i < node->num_outputs(); ++i) {
        if (node->output(i) != nullptr && !node->output(i)->uses().empty()) {
          PutConstant(graph_, *node->output(i), (*constants)[i], context_.contents);
        }
      }
      for (const Node* dead : EraseDead(node, context_.contents)) erased.insert(dead);
      changed = true;
      PF_RETURN_IF_ERROR(context_.Rewrote(model_, "constant-folding"));
    }
    return changed;
  }

 private:
  // The outputs of a node as constants, if they are known and small; undefined tensors for omitted
  // outputs.
  std::optional<std::vector<Tensor>> Evaluate(const Node& node) const {
    if (node.Is("Constant")) return FromConstantNode(node);
    if (!MayFold(node)) return std::nullopt;
    if (auto known = FromContents(node)) return known;
    return FromInputs(node);
  }

  static std::optional<std::vector<Tensor>> FromConstantNode(const Node& node) {
    if (node.attributes().empty() || HasAttributeRef(node)) return std::nullopt;
    const auto& [name, attribute] = node.attributes().front();
    auto tensor = ConstantNodeValue(attribute, name);
    if (!tensor.has_value()) return std::nullopt;
    return std::vector<Tensor>{*std::move(tensor)};
  }

  // Symbolic contents that turned out to be numbers.
  std::optional<std::vector<Tensor>> FromContents(const Node& node) const {
    const Value* output = node.output(0);
    if (node.num_outputs() != 1 || output == nullptr || !output->shape().has_value()) {
      return std::nullopt;
    }
    const auto ints = KnownInts(output, context_.contents);
    const int rank = output->shape()->rank();
    if (!ints.has_value() || rank > 1 || (rank == 0 && ints->size() != 1)) return std::nullopt;
    std::vector<int64_t> dims;
    if (rank == 1) dims.push_back(static_cast<int64_t>(ints->size()));
    if (output->dtype() == DataType::kInt64) return std::vector<Tensor>{Tensor::Of(dims, *ints)};
    if (output->dtype() == DataType::kInt32) {
      return std::vector<Tensor>{
          Tensor::Of(dims, std::vector<int32_t>(ints->begin(), ints->end()))};
    }
    return std::nullopt;
  }

  std::optional<std::vector<Tensor>> FromInputs(const Node& node) const {
    for (const Value* output : node.outputs()) {
      if (output != nullptr && !IsSmall(*output)) return std::nullopt;
    }
    return OutputsOfConstants(node, opsets_);
  }

  static bool IsSmall(const Value& value) {
    if (!value.shape().has_value()) return false;
    const auto dims = value.shape()->constant();
    if (!dims.has_value()) return false;
    const auto bytes = ByteSize(value.dtype(), *dims);
    return bytes.ok() && *bytes <= kMaxFoldedBytes;
  }

  Model& model_;
  PassContext& context_;
  Graph& graph_;
  const OpsetImports& opsets_;
};

}  // namespace

std::optional<std::vector<Tensor>> OutputsOfConstants(const Node& node,
                                                      const OpsetImports& opsets) {
  std::vector<Tensor> inputs;
  for (const Value* input : node.inputs()) {
    const Tensor* constant = ConstantOf(input);
    if (input != nullptr && constant == nullptr) return std::nullopt;
    inputs.push_back(constant == nullptr ? Tensor() : *constant);
  }
  auto outputs = EvaluateNode(node, OpsetOf(opsets, node.domain()), inputs);
  if (!outputs.ok() || static_cast<int>(outputs->size()) < node.num_outputs()) {
    return std::nullopt;
  }
  return *std::move(outputs);
}

void PutConstant(Graph& graph, Value& value, const Tensor& tensor, SymbolicContents& contents) {
  const std::string name = value.name();
  if (!value.is_output()) graph.Rename(&value, graph.UniqueName(name + "_computed"));
  Value* constant = AddConstant(graph, name, tensor, contents);
  NoteOrigin(*value.producer(), *constant);
  ReplaceValue(graph, &value, constant);
}

std::unique_ptr<Pass> ConstantFolding() {
  return MakeGraphPass(
      "constant-folding",
      "Computes nodes whose inputs are constants or whose results follow from known shapes, and "
      "turns Constant nodes into initialisers.",
      [](Model& model, PassContext& context, const GraphScope& scope) {
        return Folding(model, context, scope).Run();
      });
}

}  // namespace pagefuse
