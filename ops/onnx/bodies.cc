// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/onnx/bodies.h"

#include <cstring>
#include <memory>
#include <utility>

#include "pagefuse/base/packed_types.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/packed_elements.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// What a stack of no slices is.
absl::StatusOr<Tensor> EmptyStack(const Node& node, int64_t axis, const Value& like) {
  if (like.dtype() == DataType::kUndefined || !like.shape()) {
    return NodeError(
        node, StrCat("no step ran, and type and rank of \"", like.name(), "\" are not declared"));
  }
  std::vector<int64_t> dims;
  for (const Dim& dim : like.shape()->dims()) dims.push_back(dim.constant().value_or(0));
  const auto rank = static_cast<int64_t>(dims.size()) + 1;
  if (axis < -rank || axis >= rank) {
    return NodeError(node, StrCat("axis ", axis, " is out of range for rank ", rank));
  }
  dims.insert(dims.begin() + (axis < 0 ? axis + rank : axis), 0);
  return Tensor::Allocate(like.dtype(), std::move(dims));
}

// Slices of packed types lie anywhere in the bytes of the whole.
void StackPacked(const std::vector<Tensor>& slices, int64_t outer, int64_t inner, Tensor& whole) {
  const int bits = BitWidth(whole.dtype());
  auto* to = static_cast<uint8_t*>(whole.mutable_data());
  int64_t at = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (const Tensor& slice : slices) {
      const auto* from = static_cast<const uint8_t*>(slice.data());
      for (int64_t i = o * inner; i < (o + 1) * inner; ++i) {
        SetPacked(to, at++, bits, GetPacked(from, i, bits));
      }
    }
  }
}

}  // namespace

absl::StatusOr<const Graph*> BodyOf(const Node& node, std::string_view name,
                                    const BodyPorts& ports) {
  const Attribute* attribute = node.attribute(name);
  const auto* graph =
      attribute == nullptr ? nullptr : std::get_if<std::shared_ptr<Graph>>(&attribute->value);
  if (graph == nullptr || *graph == nullptr) {
    return AttributeError(node, name, "expected a graph");
  }
  if ((*graph)->inputs().size() != ports.inputs || (*graph)->outputs().size() < ports.min_outputs) {
    return AttributeError(
        node, name,
        StrCat("expected ", ports.inputs, " inputs and at least ", ports.min_outputs,
               " outputs, got ", (*graph)->inputs().size(), " and ", (*graph)->outputs().size()));
  }
  return graph->get();
}

absl::StatusOr<std::vector<Tensor>> RunBody(const Node& node, const BodyRunner& run,
                                            const Graph& body, std::vector<Tensor> inputs) {
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, run(body, std::move(inputs)));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined()) continue;
    return NodeError(node,
                     StrCat("output \"", body.outputs()[i]->name(), "\" of its graph is missing"));
  }
  return outputs;
}

absl::StatusOr<bool> OneBool(const Node& node, std::string_view what, const Tensor& tensor) {
  if (tensor.dtype() != DataType::kBool || tensor.size() != 1) {
    return NodeError(node, StrCat(what, ": expected one bool, got ", DataTypeName(tensor.dtype()),
                                  DimsToString(tensor.dims())));
  }
  return *static_cast<const uint8_t*>(tensor.data()) != 0;
}

absl::StatusOr<Tensor> SliceOf(const Tensor& tensor, int axis, int64_t index) {
  if (BitWidth(tensor.dtype()) < 8) {
    return absl::UnimplementedError(
        StrCat("slices of ", DataTypeName(tensor.dtype()), " are not computed"));
  }
  std::vector<int64_t> dims = tensor.dims();
  const int64_t outer = Product(dims, 0, axis);
  const int64_t length = dims[axis];
  const int64_t run = Product(dims, axis + 1, dims.size()) * BitWidth(tensor.dtype()) / 8;
  dims.erase(dims.begin() + axis);
  PF_ASSIGN_OR_RETURN(Tensor slice, Tensor::Allocate(tensor.dtype(), std::move(dims)));
  if (slice.byte_size() == 0) return slice;
  const auto* from = static_cast<const char*>(tensor.data());
  auto* to = static_cast<char*>(slice.mutable_data());
  for (int64_t o = 0; o < outer; ++o) {
    std::memcpy(to + o * run, from + (o * length + index) * run, run);
  }
  return slice;
}

absl::StatusOr<Tensor> Stack(const Node& node, const std::vector<Tensor>& slices, int64_t axis,
                             const Value& empty) {
  if (slices.empty()) return EmptyStack(node, axis, empty);
  const Tensor& first = slices.front();
  for (const Tensor& slice : slices) {
    if (slice.dtype() == first.dtype() && slice.dims() == first.dims()) continue;
    return NodeError(
        node, StrCat("\"", empty.name(), "\" is ", DataTypeName(first.dtype()),
                     DimsToString(first.dims()), " in one step and ", DataTypeName(slice.dtype()),
                     DimsToString(slice.dims()), " in another"));
  }
  std::vector<int64_t> dims = first.dims();
  const int64_t rank = first.rank() + 1;
  if (axis < -rank || axis >= rank) {
    return NodeError(node, StrCat("axis ", axis, " is out of range for rank ", rank));
  }
  if (axis < 0) axis += rank;
  const int64_t outer = Product(dims, 0, axis);
  const int64_t inner = Product(dims, axis, dims.size());
  dims.insert(dims.begin() + axis, static_cast<int64_t>(slices.size()));
  PF_ASSIGN_OR_RETURN(Tensor whole, Tensor::Allocate(first.dtype(), std::move(dims)));
  if (whole.byte_size() == 0) return whole;
  if (IsPacked(first.dtype())) {
    StackPacked(slices, outer, inner, whole);
    return whole;
  }
  const int64_t run = inner * BitWidth(first.dtype()) / 8;
  auto* to = static_cast<char*>(whole.mutable_data());
  for (int64_t o = 0; o < outer; ++o) {
    for (const Tensor& slice : slices) {
      std::memcpy(to, static_cast<const char*>(slice.data()) + o * run, run);
      to += run;
    }
  }
  return whole;
}

}  // namespace pagefuse::onnx_ops
