// SPDX-License-Identifier: Apache-2.0
// Gather, GatherElements, GatherND: elements and slices picked by indices.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/packed_bf16.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/onnx/strided_loop.h"
#include "pagefuse/ops/schema/bf16_blocks.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// Copies `size` bytes `count` times: run k from `source(k)` to consecutive places.
template <typename F>
void CopyRuns(int64_t count, int64_t size, char* to, const F& source) {
  ParallelFor(count, std::max<int64_t>(size, 1), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) std::memcpy(to + k * size, source(k), size);
  });
}

// --- Gather ---

void GatherContents(ShapeContext& c) {
  const std::optional<std::vector<Dim>> value = c.carried_value(0);
  const std::optional<std::vector<Dim>> indices = c.carried_value(1);
  if (!value || !indices || c.input_shape(1)->rank() > 1) return;
  const auto size = static_cast<int64_t>(value->size());
  std::vector<Dim> contents;
  for (const Dim& place : *indices) {
    const std::optional<int64_t> index = place.constant();
    if (!index || *index < -size || *index >= size) return;
    contents.push_back((*value)[FromFront(*index, size)]);
  }
  c.SetOutputValue(0, std::move(contents));
}

absl::Status InferGather(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  const Shape* indices = c.input_shape(1);
  if (x == nullptr || indices == nullptr) {
    c.SetOutput(0, c.input_type(0), std::nullopt);
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(const int axis, AxisAttribute(c, x->rank(), 0));
  std::vector<Dim> dims(x->dims().begin(), x->dims().begin() + axis);
  dims.insert(dims.end(), indices->dims().begin(), indices->dims().end());
  dims.insert(dims.end(), x->dims().begin() + axis + 1, x->dims().end());
  if (x->rank() == 1) GatherContents(c);
  c.SetOutput(0, c.input_type(0), Shape(std::move(dims)));
  return absl::OkStatus();
}

absl::Status RunGather(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, x.dims, 0));
  const int64_t size = x.dims[axis];
  const int64_t run = Product(x.dims, axis + 1, x.dims.size()) * ElementSize(x.dtype);
  const int64_t outer = Product(x.dims, 0, axis);
  const std::vector<int64_t> indices = IndexValues(args.input(1));
  const auto count = static_cast<int64_t>(indices.size());
  const char* from = x.as<char>();
  CopyRuns(outer * count, run, args.output(0).as<char>(), [&](int64_t k) {
    return from + (k / count * size + FromFront(indices[k % count], size)) * run;
  });
  return absl::OkStatus();
}

// Rows of a table that a product reads in blocks.
absl::Status RunGatherOfBlocks(KernelArgs& args) {
  const uint16_t* blocks = Bf16BlocksOf(args, 0);
  if (blocks == nullptr) return RunGather(args);
  const std::vector<int64_t>& dims = args.input(0).dims;
  const PackedBf16 table(blocks, dims[1], dims[0]);
  const std::vector<int64_t> indices = IndexValues(args.input(1));
  auto* y = args.output(0).as<uint16_t>();
  // Each pair of numbers is in a cache line of its own.
  constexpr int64_t kBytesPerNumber = 32;
  ParallelFor(indices.size(), table.k() * kBytesPerNumber, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      table.CopyColumn(FromFront(indices[i], table.n()), y + i * table.k());
    }
  });
  return absl::OkStatus();
}

absl::Status SupportsBlocks(const KernelQuery& query) {
  const Value* table = query.node->input(0);
  PF_ASSIGN_OR_RETURN(const int64_t axis, query.node->IntAttribute("axis", 0));
  const bool rows = table->IsConstant() && table->dtype() == DataType::kBfloat16 &&
                    table->initializer()->rank() == 2 && (axis == 0 || axis == -2);
  return rows ? absl::OkStatus() : absl::FailedPreconditionError("no rows of a table of bfloat16");
}

// --- GatherElements ---

absl::Status InferGatherElements(ShapeContext& c) {
  PF_RETURN_IF_ERROR(CheckElementIndices(c));
  c.SetOutput(0, c.input_type(0), CopyOf(c.input_shape(1)));
  return absl::OkStatus();
}

absl::Status RunGatherElements(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const TensorArg& y = args.output(0);
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, x.dims, 0));
  const std::vector<int64_t> indices = IndexValues(args.input(1));
  std::vector<int64_t> strides = RowMajorStrides(x.dims);
  const int64_t along = strides[axis];
  strides[axis] = 0;
  DispatchSize(ElementSize(x.dtype), [&]<typename T>(T*) {
    const T* from = x.as<T>();
    T* to = y.as<T>();
    ParallelFor(y.size(), 4, [&](int64_t begin, int64_t end) {
      int64_t k = begin;
      ForEachPoint<1>(y.dims, {strides}, {begin, end}, [&](const auto& offset) {
        to[k] = from[offset[0] + FromFront(indices[k], x.dims[axis]) * along];
        ++k;
      });
    });
  });
  return absl::OkStatus();
}

// --- GatherND ---

absl::Status InferGatherND(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  const Shape* indices = c.input_shape(1);
  PF_ASSIGN_OR_RETURN(const int64_t batch_dims, c.node().IntAttribute("batch_dims", 0));
  const bool known =
      x != nullptr && indices != nullptr && indices->rank() > 0 && indices->back(0).is_constant();
  if (indices != nullptr && indices->rank() == 0) return c.InputError(1, "expected rank 1 or more");
  if (!known) {
    c.SetOutput(0, c.input_type(0), std::nullopt);
    return absl::OkStatus();
  }
  if (batch_dims < 0 || batch_dims >= std::min(x->rank(), indices->rank())) {
    return c.AttributeError("batch_dims", absl::StrCat(batch_dims, " is out of range"));
  }
  const int64_t depth = *indices->back(0).constant();
  if (depth < 1 || depth > x->rank() - batch_dims) {
    return c.InputError(1, absl::StrCat("last dim of ", indices->ToString(), " does not index ",
                                        x->ToString(), " after ", batch_dims, " batch dims"));
  }
  for (int i = 0; i < batch_dims; ++i) {
    if (Differ((*x)[i], (*indices)[i])) {
      return c.InputError(1, absl::StrCat("batch dims of ", indices->ToString(),
                                          " are not those of ", x->ToString()));
    }
  }
  std::vector<Dim> dims(indices->dims().begin(), indices->dims().end() - 1);
  dims.insert(dims.end(), x->dims().begin() + batch_dims + depth, x->dims().end());
  c.SetOutput(0, c.input_type(0), Shape(std::move(dims)));
  return absl::OkStatus();
}

absl::Status ValidateGatherND(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t batch_dims, args.node->IntAttribute("batch_dims", 0));
  return CheckIndexTuples(args, batch_dims);
}

absl::Status RunGatherND(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const TensorArg& indices = args.input(1);
  PF_ASSIGN_OR_RETURN(const int64_t batch_dims, args.node->IntAttribute("batch_dims", 0));
  const int64_t depth = indices.dims.back();
  const int64_t element_size = ElementSize(x.dtype);
  const int64_t run = Product(x.dims, batch_dims + depth, x.dims.size()) * element_size;
  const int64_t batches = Product(x.dims, 0, batch_dims);
  const int64_t picks = indices.size() / depth;
  const int64_t per_batch = batches == 0 ? 1 : std::max<int64_t>(picks / batches, 1);
  const std::vector<int64_t> strides = RowMajorStrides(x.dims);
  const int64_t batch_stride = Product(x.dims, batch_dims, x.dims.size());
  const char* from = x.as<char>();
  CopyRuns(picks, run, args.output(0).as<char>(), [&](int64_t k) {
    int64_t offset = k / per_batch * batch_stride;
    for (int64_t i = 0; i < depth; ++i) {
      const int64_t axis = batch_dims + i;
      offset += FromFront(indices.as<int64_t>()[k * depth + i], x.dims[axis]) * strides[axis];
    }
    return from + offset * element_size;
  });
  return absl::OkStatus();
}

}  // namespace

OpDef GatherDef() {
  return OpDef("", "Gather", 1)
      .Doc(
          "Slices of the data along an axis, in the shape of the indices; negative indices count "
          "from the back.")
      .Input("data", "T")
      .Input("indices", "Tind")
      .Output("output", "T")
      .Attr("axis", int64_t{0})
      .Types("T", WideTypes())
      .Types("Tind", IndexTypes())
      .InferShapes(InferGather)
      .Validate(CheckAxisIndices)
      .AddKernel({.name = "reference", .run = RunGather})
      .AddKernel({.name = "bf16",
                  .priority = 10,
                  .supports = SupportsBlocks,
                  .prepare = PackedConstants::Prepare({{0, &kBf16Blocks, /*reads_rows=*/true}}),
                  .run = RunGatherOfBlocks});
}

OpDef GatherElementsDef() {
  return OpDef("", "GatherElements", 11)
      .Doc("y[i][j][k] = data[i][indices[i][j][k]][k] for axis 1, and so on.")
      .Input("data", "T")
      .Input("indices", "Tind")
      .Output("output", "T", "as indices")
      .Attr("axis", int64_t{0})
      .Types("T", WideTypes())
      .Types("Tind", IndexTypes())
      .InferShapes(InferGatherElements)
      .Validate(CheckAxisIndices)
      .AddKernel({.name = "reference", .run = RunGatherElements});
}

OpDef GatherNDDef() {
  return OpDef("", "GatherND", 11)
      .Doc(
          "Slices of the data named by the tuples in the last dim of the indices; the first "
          "batch_dims axes of both run together.")
      .Input("data", "T")
      .Input("indices", "int64", "[..., depth]")
      .Output("output", "T")
      .Attr("batch_dims", int64_t{0})
      .Types("T", WideTypes())
      .InferShapes(InferGatherND)
      .Validate(ValidateGatherND)
      .AddKernel({.name = "reference", .run = RunGatherND});
}

}  // namespace pagefuse::onnx_ops
