// SPDX-License-Identifier: Apache-2.0
// Gather, of codes and elements too, ScatterElements, Concat, Split, Slice, Transpose, Expand and Tile: elements copied to other places.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/kernels/cuda/movement.h"
#include "pagefuse/ops/onnx/movement.h"

namespace pagefuse::cuda {
namespace {

using onnx_ops::AxisOf;
using onnx_ops::ElementSize;
using onnx_ops::IndexValues;
using onnx_ops::Product;
using onnx_ops::RowMajorStrides;

// The elements are whole bytes.
absl::Status SupportsWholeBytes(const KernelQuery& query) {
  const DataType type = query.node->input(0)->dtype();
  const int bits = type == DataType::kString ? 0 : BitWidth(type);
  if (bits > 0 && bits % 8 == 0 && bits <= 128) return absl::OkStatus();
  return absl::UnimplementedError(
      StrCat("elements of type ", DataTypeName(type), " are no whole bytes"));
}

// Where element `origin` of the source is the box's first.
absl::Status CopyBox(const KernelArgs& args, const TensorArg& from, int64_t origin,
                     CopyBoxParams params, const TensorArg& to, int64_t to_origin = 0) {
  params.element_size = ElementSize(from.dtype);
  params.from = from.as<const char>() + origin * params.element_size;
  params.to = to.as<char>() + to_origin * params.element_size;
  return LaunchStatus(LaunchCopyBox(params, StreamOf(args)));
}

// --- Concat, Split ---

// A part along an axis in the whole: rows of `run` elements, `row` apart in the whole.
struct Part {
  int64_t outer, run, row, inner;

  Part(const std::vector<int64_t>& part, const std::vector<int64_t>& whole, int axis)
      : outer(Product(part, 0, axis)), inner(Product(part, axis + 1, part.size())) {
    run = part[axis] * inner;
    row = whole[axis] * inner;
  }
};

absl::Status RunConcat(KernelArgs& args) {
  const TensorArg& y = args.output(0);
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, y.dims, 0));
  int64_t offset = 0;
  for (const TensorArg& x : args.inputs) {
    const Part part(x.dims, y.dims, axis);
    PF_RETURN_IF_ERROR(CopyBox(args, x, 0,
                               {.dims = {part.outer, part.run},
                                .from_strides = {part.run, 1},
                                .to_strides = {part.row, 1}},
                               y, offset * part.inner));
    offset += x.dims[axis];
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> PartSizes(const KernelArgs& args, int64_t whole) {
  if (args.input(1).present()) return IndexValues(args.host_input(1));
  const auto parts = static_cast<int64_t>(args.outputs.size());
  return args.node->IntsAttribute(
      "split", std::vector<int64_t>(args.outputs.size(), (whole + parts - 1) / parts));
}

absl::Status RunSplit(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, x.dims, 0));
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, PartSizes(args, x.dims[axis]));
  int64_t offset = 0;
  for (size_t i = 0; i < args.outputs.size(); offset += sizes[i], ++i) {
    const TensorArg& y = args.outputs[i];
    if (!y.present()) continue;
    const Part part(y.dims, x.dims, axis);
    PF_RETURN_IF_ERROR(CopyBox(args, x, offset * part.inner,
                               {.dims = {part.outer, part.run},
                                .from_strides = {part.row, 1},
                                .to_strides = {part.run, 1}},
                               y));
  }
  return absl::OkStatus();
}

// --- Slice ---

// A list that is an input, in older opsets an attribute; empty if it is neither.
absl::StatusOr<std::vector<int64_t>> ListOf(const KernelArgs& args, int input, const char* name) {
  if (args.input(input).present()) return IndexValues(args.host_input(input));
  return args.node->IntsAttribute(name, {});
}

// The first element that is taken of an axis: numpy's rules.
int64_t FirstTaken(int64_t size, int64_t start, int64_t step) {
  const int64_t from_front = start < 0 ? start + size : start;
  return step > 0 ? std::clamp<int64_t>(from_front, 0, size)
                  : std::clamp<int64_t>(from_front, -1, size - 1);
}

absl::Status RunSlice(KernelArgs& args) {
  const TensorArg &x = args.input(0), &y = args.output(0);
  if (y.size() == 0) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> starts, ListOf(args, 1, "starts"));
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, ListOf(args, 3, "axes"));
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListOf(args, 4, "steps"));
  CopyBoxParams box{.dims = y.dims,
                    .from_strides = RowMajorStrides(x.dims),
                    .to_strides = RowMajorStrides(y.dims)};
  int64_t origin = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int axis =
        axes.empty() ? static_cast<int>(i) : onnx_ops::KernelAxis(axes[i], x.dims.size());
    const int64_t step = steps.empty() ? 1 : steps[i];
    origin += FirstTaken(x.dims[axis], starts[i], step) * box.from_strides[axis];
    // A step past the end is not walked, and its product might not fit.
    box.from_strides[axis] = y.dims[axis] > 1 ? step * box.from_strides[axis] : 0;
  }
  return CopyBox(args, x, origin, std::move(box), y);
}

// --- Transpose, Expand, Tile ---

absl::Status RunTranspose(KernelArgs& args) {
  const TensorArg &x = args.input(0), &y = args.output(0);
  std::vector<int64_t> reversed(x.dims.size());
  for (size_t i = 0; i < reversed.size(); ++i) {
    reversed[i] = static_cast<int64_t>(reversed.size() - 1 - i);
  }
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> perm,
                      args.node->IntsAttribute("perm", std::move(reversed)));
  const std::vector<int64_t> strides = RowMajorStrides(x.dims);
  CopyBoxParams box{.dims = y.dims, .from_strides = {}, .to_strides = RowMajorStrides(y.dims)};
  for (const int64_t axis : perm) box.from_strides.push_back(strides[axis]);
  return CopyBox(args, x, 0, std::move(box), y);
}

absl::Status RunExpand(KernelArgs& args) {
  const TensorArg &x = args.input(0), &y = args.output(0);
  const std::vector<int64_t> strides = RowMajorStrides(x.dims);
  CopyBoxParams box{.dims = y.dims,
                    .from_strides = std::vector<int64_t>(y.dims.size(), 0),
                    .to_strides = RowMajorStrides(y.dims)};
  const size_t added = y.dims.size() - x.dims.size();
  for (size_t i = 0; i < x.dims.size(); ++i) {
    if (x.dims[i] != 1) box.from_strides[added + i] = strides[i];
  }
  return CopyBox(args, x, 0, std::move(box), y);
}

absl::Status RunTile(KernelArgs& args) {
  const TensorArg &x = args.input(0), &y = args.output(0);
  if (y.size() == 0) return absl::OkStatus();
  const std::vector<int64_t> from = RowMajorStrides(x.dims), to = RowMajorStrides(y.dims);
  CopyBoxParams box;  // every axis as (which copy, element)
  for (size_t i = 0; i < x.dims.size(); ++i) {
    box.dims.insert(box.dims.end(), {y.dims[i] / x.dims[i], x.dims[i]});
    box.from_strides.insert(box.from_strides.end(), {0, from[i]});
    box.to_strides.insert(box.to_strides.end(), {to[i] * x.dims[i], to[i]});
  }
  return CopyBox(args, x, 0, std::move(box), y);
}

// --- Gather ---

absl::Status RunGather(KernelArgs& args) {
  const TensorArg &x = args.input(0), &indices = args.input(1);
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, x.dims, 0));
  const GatherParams params{
      .from = x.data,
      .indices = indices.data,
      .wide_indices = indices.dtype == DataType::kInt64,
      .errors = IndexErrorsOf(args),
      .to = args.output(0).data,
      .outer = Product(x.dims, 0, axis),
      .size = x.dims[axis],
      .count = indices.size(),
      .row_bytes = Product(x.dims, axis + 1, x.dims.size()) * ElementSize(x.dtype)};
  return LaunchStatus(LaunchGather(params, StreamOf(args)));
}

// --- GatherElements, ScatterElements ---

// Of a table with the dims of `table`, by the indices of input 1.
absl::StatusOr<ElementsParams> ElementsOf(const KernelArgs& args, const TensorArg& table) {
  const TensorArg& indices = args.input(1);
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, table.dims, 0));
  ElementsParams params{.indices = indices.data,
                        .wide_indices = indices.dtype == DataType::kInt64,
                        .errors = IndexErrorsOf(args),
                        .dims = indices.dims,
                        .table_strides = RowMajorStrides(table.dims),
                        .axis = axis};
  params.size = table.dims[axis];
  params.element_size = ElementSize(table.dtype);
  params.table = table.data;
  return params;
}

absl::Status RunGatherElements(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(ElementsParams params, ElementsOf(args, args.input(0)));
  params.elements = args.output(0).data;
  return LaunchStatus(LaunchGatherElements(params, StreamOf(args)));
}

absl::Status RunScatterElements(KernelArgs& args) {
  const TensorArg &x = args.input(0), &y = args.output(0);
  const CopyBoxParams all{.dims = {x.size()}, .from_strides = {1}, .to_strides = {1}};
  if (x.data != y.data) PF_RETURN_IF_ERROR(CopyBox(args, x, 0, all, y));
  PF_ASSIGN_OR_RETURN(ElementsParams params, ElementsOf(args, y));
  params.elements = args.input(2).data;
  return LaunchStatus(LaunchScatterElements(params, StreamOf(args)));
}

absl::Status SupportsScatter(const KernelQuery& query) {
  PF_ASSIGN_OR_RETURN(const std::string reduction,
                      query.node->StringAttribute("reduction", "none"));
  if (reduction == "none") return SupportsWholeBytes(query);
  return absl::UnimplementedError(StrCat("reduction \"", reduction, "\", expected none"));
}

// --- GatherBlockQuantized ---

constexpr int kData = 0, kIndices = 1, kScales = 2, kZeros = 3;

absl::Status RunGatherCodes(KernelArgs& args) {
  const TensorArg &data = args.input(kData), &indices = args.input(kIndices);
  PF_ASSIGN_OR_RETURN(const int64_t gather_axis, args.node->IntAttribute("gather_axis", 0));
  PF_ASSIGN_OR_RETURN(const int64_t block_axis, args.node->IntAttribute("quantize_axis", 1));
  PF_ASSIGN_OR_RETURN(const int64_t block, args.node->IntAttribute("block_size", 128));
  PF_ASSIGN_OR_RETURN(const int64_t bits, args.node->IntAttribute("bits", 4));
  // A byte of uint8 holds two codes of 4 bits, or four of 2; elements of the 4-bit types are codes.
  const bool bytes = data.dtype == DataType::kUint8;
  std::vector<int64_t> dims = data.dims;
  if (bytes) dims.back() *= 8 / bits;
  const int gather = onnx_ops::KernelAxis(gather_axis, dims.size());
  const int along = onnx_ops::KernelAxis(block_axis, dims.size());
  GatherCodesParams params{.codes = data.as<const uint8_t>(),
                           .indices = indices.data,
                           .wide_indices = indices.dtype == DataType::kInt64,
                           .errors = IndexErrorsOf(args),
                           .scales = args.input(kScales).data,
                           .zeros = args.input(kZeros).as<const uint8_t>(),
                           .to = args.output(0).data,
                           .type = args.output(0).dtype};
  params.bits = static_cast<int>(bits);
  params.is_signed = data.dtype == DataType::kInt4;
  params.zeros_padded = bytes && bits < 8;
  params.zero = bytes ? 1 << (bits - 1) : 0;
  params.outer = Product(dims, 0, gather);
  params.size = dims[gather];
  params.count = indices.size();
  params.row = Product(dims, gather + 1, dims.size());
  params.length = dims[along];
  params.after = Product(dims, along + 1, dims.size());
  params.block = block;
  return LaunchStatus(LaunchGatherCodes(params, StreamOf(args)));
}

}  // namespace

void AddMovementKernels(OpRegistry& ops) {
  const auto add = [&](const char* op, absl::Status (*run)(KernelArgs&),
                       std::vector<int> host_inputs = {}) {
    AddKernelTo(ops, "", op,
                {.name = "cuda",
                 .priority = 10,
                 .host_inputs = std::move(host_inputs),
                 .supports = SupportsWholeBytes,
                 .run = run});
  };
  add("Concat", RunConcat);
  add("Split", RunSplit, {1});
  add("Slice", RunSlice, {1, 2, 3, 4});
  add("Transpose", RunTranspose);
  add("Expand", RunExpand, {1});
  add("Tile", RunTile, {1});
  const auto add_indexed = [&](const char* domain, const char* op, absl::Status (*run)(KernelArgs&),
                               absl::Status (*supports)(const KernelQuery&)) {
    AddKernelTo(
        ops, domain, op,
        {.name = "cuda", .priority = 10, .checks_indices = true, .supports = supports, .run = run});
  };
  add_indexed("", "Gather", RunGather, SupportsWholeBytes);
  add_indexed("", "GatherElements", RunGatherElements, SupportsWholeBytes);
  add_indexed("", "ScatterElements", RunScatterElements, SupportsScatter);
  add_indexed("com.microsoft", "GatherBlockQuantized", RunGatherCodes, nullptr);
}

}  // namespace pagefuse::cuda
