// SPDX-License-Identifier: Apache-2.0
#include "computed_inputs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "device_op.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/evaluate/evaluate.h"

namespace pagefuse {
namespace {

// Arithmetic on integers that are fed stays on the host, and Concat takes no floats of 8 bits: they are fed as other types of
// their width.
DataType TypeToFeed(DataType type) {
  switch (type) {
    case DataType::kInt64:
      return DataType::kDouble;
    case DataType::kInt32:
      return DataType::kFloat;
    case DataType::kBool:
      return DataType::kUint8;
    default:
      return IsFloatingPoint(type) && BitWidth(type) == 8 ? DataType::kUint8 : type;
  }
}

bool IsIndex(DataType type) {
  return type == DataType::kInt64 || type == DataType::kInt32 || type == DataType::kBool;
}

bool IsComputed(const OpDef& op, const CaseNode& call, int input, Computed which) {
  const Value* value = call.node().input(input);
  if (value == nullptr || value->IsConstant()) return false;
  const DataType type = call.inputs()[static_cast<size_t>(input)].dtype();
  if (IsIndex(type) && which == Computed::kData) return false;
  // BitCast is younger than some versions of ops.
  const bool is_old = call.node().domain().empty() && call.opset() < 26;
  if (type == DataType::kString || BitWidth(type) < 8) return false;
  if (is_old && TypeToFeed(type) != type && type != DataType::kBool) return false;
  return std::ranges::none_of(op.aliases(), [&](const auto& pair) { return pair.second == input; });
}

// The tensor as it is fed: of rank 1 at least, which is what Concat takes.
Tensor Fed(const Tensor& tensor) {
  std::vector<int64_t> dims = tensor.dims();
  if (dims.empty()) dims.push_back(1);
  Tensor fed = Must(Tensor::Allocate(TypeToFeed(tensor.dtype()), dims));
  const auto* bytes = static_cast<const std::byte*>(tensor.data());
  std::copy_n(bytes, tensor.byte_size(), static_cast<std::byte*>(fed.mutable_data()));
  return fed;
}

// Nodes that make `value` of `fed`.
void AddNodes(Graph& graph, Value* fed, Value* value) {
  const auto append = [&](const char* op, Value* from, Value* to) {
    return graph.AddNode("", op, {from}, {to});
  };
  const auto between = [&](const char* what) {
    return graph.AddValue(StrCat(value->name(), "_", what));
  };
  const bool is_scalar = value->shape()->rank() == 0;
  const bool is_cast = fed->dtype() != value->dtype();
  Value* copy = is_scalar || is_cast ? between("copy") : value;
  append("Concat", fed, copy)->SetAttribute("axis", Attribute{int64_t{0}, "", ""});
  if (is_cast) {
    Value* cast = is_scalar ? between("cast") : value;
    append(value->dtype() == DataType::kBool ? "Cast" : "BitCast", copy, cast)
        ->SetAttribute("to", Attribute{static_cast<int64_t>(value->dtype()), "", ""});
    copy = cast;
  }
  if (is_scalar) append("Squeeze", copy, value);
}

std::string NameOfFed(const Value& value) { return StrCat(value.name(), "_fed"); }

}  // namespace

bool HasIndices(const OpDef& op, const CaseNode& call) {
  for (int i = 0; i < call.node().num_inputs(); ++i) {
    if (!IsComputed(op, call, i, Computed::kAll)) continue;
    if (IsIndex(call.inputs()[static_cast<size_t>(i)].dtype())) return true;
  }
  return false;
}

Model WithComputedInputs(const OpDef& op, const CaseNode& call, Computed which) {
  Model model = ModelOf(call);
  Graph& graph = *model.graph;
  Node* node = graph.nodes().back().get();
  for (int i = 0; i < node->num_inputs(); ++i) {
    if (!IsComputed(op, call, i, which)) continue;
    Value* value = node->input(i);
    std::vector<Dim> dims(value->shape()->dims());
    if (dims.empty()) dims.push_back(Dim(1));
    Value* fed = graph.AddInput(NameOfFed(*value), TypeToFeed(value->dtype()), Shape(dims));
    for (int at = 0; at < static_cast<int>(graph.inputs().size()); ++at) {
      if (graph.inputs()[static_cast<size_t>(at)] != value) continue;
      graph.RemoveInput(at);
      break;
    }
    AddNodes(graph, fed, value);
  }
  graph.MoveBefore(node, nullptr);
  return model;
}

std::map<std::string, Tensor> FeedsOfComputed(const OpDef& op, const CaseNode& call,
                                              Computed which) {
  std::map<std::string, Tensor> feeds = FeedsOf(call);
  for (int i = 0; i < call.node().num_inputs(); ++i) {
    if (!IsComputed(op, call, i, which)) continue;
    const Value& value = *call.node().input(i);
    feeds.erase(value.name());
    feeds[NameOfFed(value)] = Fed(call.inputs()[static_cast<size_t>(i)]);
  }
  return feeds;
}

}  // namespace pagefuse
