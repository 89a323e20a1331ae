// SPDX-License-Identifier: Apache-2.0
// TensorScatter: new rows written into a cache, each batch row at its own position.
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/packed_types.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

absl::Status InferTensorScatter(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const std::string mode, c.node().StringAttribute("mode", "linear"));
  if (mode != "linear" && mode != "circular") {
    return c.AttributeError("mode", absl::StrCat("\"", mode, "\" is not known"));
  }
  const Shape* cache = c.input_shape(0);
  const Shape* update = c.input_shape(1);
  if (cache == nullptr) return InferLikeInput(c);
  PF_ASSIGN_OR_RETURN(const int axis, AxisAttribute(c, cache->rank(), -2));
  if (axis == 0) return c.AttributeError("axis", "is the batch axis");
  if (update != nullptr) {
    bool fits = update->rank() == cache->rank();
    for (int i = 0; fits && i < cache->rank(); ++i) {
      const std::optional<int64_t> have = (*cache)[i].constant();
      const std::optional<int64_t> got = (*update)[i].constant();
      fits = !have || !got || *have == *got || (i == axis && *got < *have);
    }
    if (!fits) {
      return c.InputError(1, absl::StrCat("shape ", update->ToString(), " does not fit into ",
                                          cache->ToString(), " along axis ", axis));
    }
  }
  PF_RETURN_IF_ERROR(ExpectShape(c, 2, Shape({(*cache)[0]})));
  return InferLikeInput(c);
}

absl::Status ValidatePositions(const KernelArgs& args) {
  if (!args.input(2).present()) return absl::OkStatus();
  const TensorArg& cache = args.input(0);
  PF_ASSIGN_OR_RETURN(const std::string mode, args.node->StringAttribute("mode", "linear"));
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, cache.dims, -2));
  const int64_t room = cache.dims[axis] - args.input(1).dims[axis];
  return CheckIndexRange(args, 2, "write_indices", 0,
                         mode == "linear" ? room + 1 : std::max<int64_t>(cache.dims[axis], 1));
}

absl::Status RunTensorScatter(KernelArgs& args) {
  const TensorArg& cache = args.input(0);
  const TensorArg& update = args.input(1);
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, cache.dims, -2));
  PF_RETURN_IF_ERROR(CopyBytes(args));
  const int64_t capacity = cache.dims[axis];
  const int64_t rows = update.dims[axis];
  const int64_t row = Product(cache.dims, axis + 1, cache.dims.size()) * ElementSize(cache.dtype);
  const int64_t heads = Product(cache.dims, 1, axis);  // between batch and sequence
  for (int64_t plane = 0, planes = cache.dims[0] * heads; plane < planes; ++plane) {
    const int64_t start = args.input(2).present() ? args.input(2).as<int64_t>()[plane / heads] : 0;
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(args.output(0).as<char>() + (plane * capacity + (start + i) % capacity) * row,
                  update.as<char>() + (plane * rows + i) * row, row);
    }
  }
  return absl::OkStatus();
}

}  // namespace

OpDef TensorScatterDef() {
  std::vector<DataType> types = AllTypes();
  std::erase_if(types, [](DataType type) { return IsPacked(type); });
  return OpDef("", "TensorScatter", 24)
      .Doc(
          "A copy of the cache in which batch row b has the update's rows from write_indices[b] "
          "on; past the end they are an error (linear) or start again (circular).")
      .Input("past_cache", "T", "[batch, ..., capacity, D]")
      .Input("update", "T", "[batch, ..., rows, D]")
      .Input("write_indices", "int64", "[batch]", PortKind::kOptional, PortRole::kMetadata)
      .Output("present_cache", "T", "[batch, ..., capacity, D]")
      .Attr("axis", int64_t{-2})
      .Attr("mode", "linear", "linear, circular")
      .Types("T", types)
      .InferShapes(InferTensorScatter)
      .Validate(ValidatePositions)
      .InPlace(0, 0)
      .AddKernel({.name = "reference", .run = RunTensorScatter});
}

}  // namespace pagefuse::onnx_ops
