// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/elementwise/elementwise_chain.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/onnx/bodies.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::pagefuse_ops {
namespace {

using Known = ShapeContext::Known;

// `defined`: what the graph's nodes may read so far.
absl::Status CheckNode(const Node& chain, const Node& node, const OpDef* op,
                       const absl::flat_hash_set<const Value*>& defined) {
  const auto error = [&](std::string_view what) {
    return AttributeError(chain, "body", StrCat(node.Description(), " ", what));
  };
  if (op == nullptr || !op->is_elementwise()) return error("is no elementwise op");
  if (node.num_outputs() != 1 || node.output(0) == nullptr) return error("has not one output");
  for (const Value* input : node.inputs()) {
    if (input == nullptr || defined.contains(input)) continue;
    return error(StrCat("reads \"", input->name(), "\", which is not of the graph before it"));
  }
  return absl::OkStatus();
}

// What nothing reads would not show in the output's shape.
absl::Status CheckIsRead(const Node& chain, const Graph& body, const Value* value) {
  if (!value->uses().empty() || value == body.outputs()[0]) return absl::OkStatus();
  return AttributeError(chain, "body", StrCat("no node reads \"", value->name(), "\""));
}

}  // namespace

// Elementwise ops have one definition each, which means the same in every version: the newest.
absl::StatusOr<ChainGraph> ChainOf(const Node& node) {
  const onnx_ops::BodyPorts ports{.inputs = static_cast<size_t>(node.num_inputs()),
                                  .min_outputs = 1};
  PF_ASSIGN_OR_RETURN(const Graph* body, onnx_ops::BodyOf(node, "body", ports));
  if (body->outputs().size() != 1 || body->outputs()[0]->producer() == nullptr) {
    return AttributeError(node, "body", "expected one output, computed by one of its nodes");
  }
  ChainGraph chain{.body = body, .ops = {}};
  chain.ops.reserve(static_cast<size_t>(body->num_nodes()));
  absl::flat_hash_set<const Value*> defined(body->inputs().begin(), body->inputs().end());
  for (const Value* constant : body->initializers()) defined.insert(constant);
  for (const auto& inner : body->nodes()) {
    chain.ops.push_back(OpRegistry::Global().Find(inner->domain(), inner->op_type(), kNewestOpset));
    PF_RETURN_IF_ERROR(CheckNode(node, *inner, chain.ops.back(), defined));
    defined.insert(inner->output(0));
  }
  for (const Value* value : defined) PF_RETURN_IF_ERROR(CheckIsRead(node, *body, value));
  return chain;
}

absl::StatusOr<ChainValues> InferChain(const ChainGraph& chain, const std::vector<Known>& inputs) {
  ChainValues values;
  values.reserve(inputs.size() + 2 * chain.ops.size());
  for (const Value* constant : chain.body->initializers()) {
    const Tensor& tensor = *constant->initializer();
    values[constant] = {tensor.dtype(), Shape::FromInts(tensor.dims()), std::nullopt, &tensor};
  }
  for (size_t i = 0; i < inputs.size(); ++i) values[chain.body->inputs()[i]] = inputs[i];
  auto op = chain.ops.begin();
  for (const auto& node : chain.body->nodes()) {
    std::vector<Known> known;
    for (const Value* input : node->inputs()) known.push_back(input ? values[input] : Known());
    ShapeContext context(*node, kNewestOpset, std::move(known));
    PF_RETURN_IF_ERROR((*op++)->Infer(context));
    values[node->output(0)] = context.outputs()[0];
  }
  return values;
}

namespace {

absl::Status Unsuited(const Node& node, std::string_view what) {
  return absl::UnimplementedError(StrCat(node.Description(), " ", what));
}

// A copy of the body whose values have types.
absl::StatusOr<std::unique_ptr<Graph>> TypedCopy(const Node& node) {
  PF_ASSIGN_OR_RETURN(ChainGraph chain, ChainOf(node));
  Graph::ValueMap map;
  std::unique_ptr<Graph> copy = chain.body->CloneInto(nullptr, map);
  chain.body = copy.get();
  std::vector<Known> inputs;
  for (const Value* input : node.inputs()) {
    const DataType type = input == nullptr ? DataType::kUndefined : input->dtype();
    inputs.push_back({type, std::nullopt, std::nullopt, nullptr});
  }
  PF_ASSIGN_OR_RETURN(const ChainValues values, InferChain(chain, inputs));
  for (Value* value : copy->values()) {
    const auto it = values.find(value);
    if (it != values.end()) value->set_dtype(it->second.dtype);
  }
  return copy;
}

absl::StatusOr<const Kernel*> KernelFor(const Node& node, const KernelQuery& query) {
  std::string force;
  if (query.force_kernel != nullptr) {
    const auto it = query.force_kernel->find(node.op_type());
    if (it != query.force_kernel->end()) force = it->second;
  }
  const KernelQuery inner{&node, kNewestOpset, query.force_kernel};
  PF_ASSIGN_OR_RETURN(const KernelChoice choice, ChooseKernel(inner, force));
  if (choice.kernel == nullptr || choice.kernel->prepare) {
    return Unsuited(node, "has no kernel for a part of its input");
  }
  // The message of such a check counts the elements of the whole.
  if (choice.op->checks_values() && !IsFloatingPoint(node.output(0)->dtype())) {
    return Unsuited(node, "checks its integers as a whole");
  }
  return choice.kernel;
}

// Numbers the values of a chain and gives memory to those that are neither outside nor result.
class ChainBuilder {
 public:
  explicit ChainBuilder(Chain& chain) : chain_(chain) {}

  absl::Status AddValue(const Value* value) {
    const bool whole_bytes =
        value->dtype() != DataType::kString && BitWidth(value->dtype()) % 8 == 0;
    if (value->dtype() == DataType::kUndefined || BitWidth(value->dtype()) == 0 || !whole_bytes) {
      return absl::UnimplementedError(
          StrCat("\"", value->name(), "\" has no elements of whole bytes"));
    }
    index_[value] = static_cast<int>(chain_.values.size());
    chain_.values.push_back({.dtype = value->dtype()});
    return absl::OkStatus();
  }

  absl::Status AddStep(const Node& node, const Kernel* kernel) {
    ChainStep step{.node = &node, .kernel = kernel, .inputs = {}};
    for (const Value* input : node.inputs()) {
      step.inputs.push_back(input == nullptr ? -1 : index_.at(input));
    }
    PF_RETURN_IF_ERROR(AddValue(node.output(0)));
    step.output = index_.at(node.output(0));
    chain_.steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  void Finish(const Value* result) {
    chain_.result = index_.at(result);
    std::vector<size_t> last_read(chain_.values.size(), 0);
    for (size_t i = 0; i < chain_.steps.size(); ++i) {
      last_read[chain_.steps[i].output] = i;
      for (int input : chain_.steps[i].inputs) {
        if (input >= 0) last_read[input] = i;
      }
    }
    std::vector<int> free;
    for (size_t i = 0; i < chain_.steps.size(); ++i) {
      const ChainStep& step = chain_.steps[i];
      if (step.output != chain_.result) TakeSlot(chain_.values[step.output], free);
      for (int input : step.inputs) {
        if (input < 0 || last_read[input] != i) continue;
        last_read[input] = kFreed;  // the step may read it twice
        if (chain_.values[input].slot >= 0) free.push_back(chain_.values[input].slot);
      }
    }
  }

 private:
  static constexpr size_t kFreed = std::numeric_limits<size_t>::max();

  void TakeSlot(ChainValue& value, std::vector<int>& free) {
    if (free.empty()) {
      free.push_back(static_cast<int>(chain_.slot_widths.size()));
      chain_.slot_widths.push_back(0);
    }
    value.slot = free.back();
    free.pop_back();
    int64_t& width = chain_.slot_widths[value.slot];
    width = std::max<int64_t>(width, BitWidth(value.dtype) / 8);
  }

  Chain& chain_;
  absl::flat_hash_map<const Value*, int> index_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Chain>> CompileChain(const KernelQuery& query) {
  auto chain = std::make_unique<Chain>();
  PF_ASSIGN_OR_RETURN(chain->body, TypedCopy(*query.node));
  ChainBuilder builder(*chain);
  for (const Value* input : chain->body->inputs()) PF_RETURN_IF_ERROR(builder.AddValue(input));
  for (const Value* constant : chain->body->initializers()) {
    if (constant->is_input()) continue;
    PF_RETURN_IF_ERROR(builder.AddValue(constant));
    const Tensor& tensor = *constant->initializer();
    chain->constants.push_back({tensor.dtype(), tensor.dims(), const_cast<void*>(tensor.data())});
  }
  for (const auto& node : chain->body->nodes()) {
    PF_ASSIGN_OR_RETURN(const Kernel* kernel, KernelFor(*node, query));
    PF_RETURN_IF_ERROR(builder.AddStep(*node, kernel));
  }
  builder.Finish(chain->body->outputs()[0]);
  return chain;
}

}  // namespace pagefuse::pagefuse_ops
