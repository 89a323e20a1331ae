// SPDX-License-Identifier: Apache-2.0
// GatherND, ScatterND, ConstantOfShape, Pad, Range, Trilu and OneHot on the device.
#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/kernels/cuda/indexed_movement.h"
#include "pagefuse/ops/kernels/cuda/movement.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/onnx/movement.h"

namespace pagefuse::cuda {
namespace {

using onnx_ops::ElementSize;
using onnx_ops::IndexValues;
using onnx_ops::Product;
using onnx_ops::RowMajorStrides;

absl::Status ExpectWholeBytes(DataType type) {
  const int bits = type == DataType::kString ? 0 : BitWidth(type);
  if (bits > 0 && bits % 8 == 0 && bits <= 128) return absl::OkStatus();
  return absl::UnimplementedError(
      StrCat("elements of type ", DataTypeName(type), " are no whole bytes"));
}

// --- GatherND, ScatterND ---

constexpr int kTable = 0, kTuples = 1, kUpdates = 2;

// Of axes of the table from `batch_dims` on.
IndexTuples TuplesOf(const KernelArgs& args, size_t batch_dims) {
  const TensorArg &table = args.input(kTable), &indices = args.input(kTuples);
  IndexTuples tuples{.indices = indices.as<const int64_t>()};
  const auto depth = static_cast<size_t>(indices.dims.back());
  tuples.depth = static_cast<int>(depth);
  tuples.count = indices.size() / std::max<int64_t>(indices.dims.back(), 1);
  const int64_t batches = Product(table.dims, 0, batch_dims);
  tuples.batch_count = std::max<int64_t>(tuples.count / std::max<int64_t>(batches, 1), 1);
  tuples.batch_rows = Product(table.dims, batch_dims, batch_dims + depth);
  tuples.errors = IndexErrorsOf(args);
  for (size_t i = 0; i < depth; ++i) {
    tuples.sizes[i] = table.dims[batch_dims + i];
    tuples.strides[i] = Product(table.dims, batch_dims + i + 1, batch_dims + depth);
  }
  return tuples;
}

// The rank of the table bounds the size of tuples.
absl::Status SupportsTuples(const KernelQuery& query) {
  const Value* table = query.node->input(kTable);
  PF_RETURN_IF_ERROR(ExpectWholeBytes(table->dtype()));
  if (table->shape() && table->shape()->rank() <= kMostTupleIndices) return absl::OkStatus();
  return absl::UnimplementedError(StrCat("expected at most ", kMostTupleIndices, " axes"));
}

absl::Status SupportsScatterND(const KernelQuery& query) {
  PF_ASSIGN_OR_RETURN(const std::string reduction,
                      query.node->StringAttribute("reduction", "none"));
  if (reduction == "none") return SupportsTuples(query);
  return absl::UnimplementedError(StrCat("reduction \"", reduction, "\", expected none"));
}

// Bytes of what a tuple names.
int64_t RowBytes(const TensorArg& table, size_t first_axis) {
  return Product(table.dims, first_axis, table.dims.size()) * ElementSize(table.dtype);
}

absl::Status RunGatherND(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t batch_dims, args.node->IntAttribute("batch_dims", 0));
  const TensorArg& table = args.input(kTable);
  GatherTuplesParams params{.tuples = TuplesOf(args, static_cast<size_t>(batch_dims))};
  params.row_bytes = RowBytes(table, static_cast<size_t>(batch_dims + params.tuples.depth));
  params.table = table.data;
  params.to = args.output(0).data;
  return LaunchStatus(LaunchGatherTuples(params, StreamOf(args)));
}

absl::Status RunScatterND(KernelArgs& args) {
  const TensorArg &x = args.input(kTable), &y = args.output(0);
  if (x.data != y.data) {
    const CopyBoxParams copy{.dims = {x.size()},
                             .from_strides = {1},
                             .to_strides = {1},
                             .element_size = ElementSize(x.dtype),
                             .from = x.data,
                             .to = y.data};
    PF_RETURN_IF_ERROR(LaunchStatus(LaunchCopyBox(copy, StreamOf(args))));
  }
  ScatterTuplesParams params{.tuples = TuplesOf(args, 0)};
  params.row_bytes = RowBytes(y, static_cast<size_t>(params.tuples.depth));
  params.table = y.data;
  params.table_rows = params.tuples.batch_rows;
  params.from = args.input(kUpdates).data;
  params.scratch = args.scratch->Get(std::max<size_t>(ScatterTuplesScratchBytes(params), 1));
  return LaunchStatus(LaunchScatterTuples(params, StreamOf(args)));
}

// --- ConstantOfShape, Pad ---

absl::Status Fill(const KernelArgs& args, const ElementBytes& value) {
  const TensorArg& y = args.output(0);
  FillParams params{.to = y.data, .count = y.size(), .element_size = ElementSize(y.dtype)};
  params.value = value;
  return LaunchStatus(LaunchFill(params, StreamOf(args)));
}

absl::Status SupportsOutput(const KernelQuery& query) {
  return ExpectWholeBytes(query.node->output(0)->dtype());
}

absl::Status RunConstantOfShape(KernelArgs& args) {
  ElementBytes value;  // 0 if the node does not say
  if (const Attribute* attribute = args.node->attribute("value"); attribute != nullptr) {
    const Tensor& tensor = std::get<Tensor>(attribute->value);
    std::memcpy(value.bytes, tensor.data(), static_cast<size_t>(tensor.byte_size()));
  }
  return Fill(args, value);
}

constexpr int kPads = 1, kPadValue = 2, kPadAxes = 3;

absl::Status SupportsPad(const KernelQuery& query) {
  PF_ASSIGN_OR_RETURN(const std::string mode, query.node->StringAttribute("mode", "constant"));
  if (mode == "constant") return ExpectWholeBytes(query.node->input(0)->dtype());
  return absl::UnimplementedError(StrCat("mode \"", mode, "\", expected constant"));
}

absl::StatusOr<ElementBytes> PadValue(const KernelArgs& args) {
  ElementBytes value;
  const DataType type = args.output(0).dtype;
  if (args.input(kPadValue).present()) {
    std::memcpy(value.bytes, args.host_input(kPadValue).data,
                static_cast<size_t>(ElementSize(type)));
    return value;
  }
  PF_ASSIGN_OR_RETURN(const float given, args.node->FloatAttribute("value", 0.0f));
  if (given != 0) PF_RETURN_IF_ERROR(EncodeFromFloat(type, &given, 1, value.bytes));
  return value;
}

// Elements added in front of each axis.
absl::StatusOr<std::vector<int64_t>> PadsBefore(const KernelArgs& args) {
  std::vector<int64_t> before(args.input(0).dims.size(), 0);
  PF_ASSIGN_OR_RETURN(std::vector<int64_t> pads, args.node->IntsAttribute("pads", {}));
  if (args.input(kPads).present()) pads = IndexValues(args.host_input(kPads));
  const bool some = args.input(kPadAxes).present();
  const std::vector<int64_t> axes =
      some ? IndexValues(args.host_input(kPadAxes)) : std::vector<int64_t>();
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    before[some ? onnx_ops::KernelAxis(axes[i], before.size()) : i] = pads[i];
  }
  return before;
}

absl::Status RunPad(KernelArgs& args) {
  const TensorArg &x = args.input(0), &y = args.output(0);
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> before, PadsBefore(args));
  PF_ASSIGN_OR_RETURN(const ElementBytes value, PadValue(args));
  PF_RETURN_IF_ERROR(Fill(args, value));
  CopyBoxParams box;
  box.from_strides = RowMajorStrides(x.dims);
  box.to_strides = RowMajorStrides(y.dims);
  box.element_size = ElementSize(x.dtype);
  int64_t from = 0, to = 0;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    // Elements of the data that are shown.
    const int64_t first = std::max<int64_t>(0, -before[i]);
    const int64_t last = std::min(x.dims[i], y.dims[i] - before[i]);
    if (last <= first) return absl::OkStatus();
    box.dims.push_back(last - first);
    from += first * box.from_strides[i];
    to += (first + before[i]) * box.to_strides[i];
  }
  box.from = x.as<const char>() + from * box.element_size;
  box.to = y.as<char>() + to * box.element_size;
  return LaunchStatus(LaunchCopyBox(box, StreamOf(args)));
}

// --- Range, Trilu, OneHot ---

absl::Status RunRange(KernelArgs& args) {
  const TensorArg &start = args.host_input(0), &delta = args.host_input(2);
  RangeParams params{
      .type = args.output(0).dtype, .to = args.output(0).data, .count = args.output(0).size()};
  PF_RETURN_IF_ERROR(DispatchType(params.type, [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) {
      params.int_start = static_cast<int64_t>(*start.as<T>());
      params.int_delta = static_cast<int64_t>(*delta.as<T>());
    } else {
      params.start = static_cast<onnx_ops::Wide<T>>(*start.as<T>());
      params.delta = static_cast<onnx_ops::Wide<T>>(*delta.as<T>());
    }
  }));
  return LaunchStatus(LaunchRange(params, StreamOf(args)));
}

absl::Status RunTrilu(KernelArgs& args) {
  const TensorArg &x = args.input(0), &y = args.output(0), &k = args.host_input(1);
  if (y.size() == 0) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const int64_t upper, args.node->IntAttribute("upper", 1));
  TriangleParams params{.from = x.data, .to = y.data};
  params.rows = x.dim(-2);
  params.columns = x.dim(-1);
  params.matrices = y.size() / (params.rows * params.columns);
  params.element_size = ElementSize(x.dtype);
  params.k = k.present() ? *k.as<int64_t>() : 0;
  params.k = std::clamp(params.k, -params.rows - 1, params.columns + 1);
  params.upper = upper != 0;
  return LaunchStatus(LaunchTriangle(params, StreamOf(args)));
}

constexpr int kOneHotIndices = 0, kOneHotValues = 2;

absl::Status SupportsOneHot(const KernelQuery& query) {
  const DataType type = query.node->input(kOneHotIndices)->dtype();
  if (type == DataType::kInt32 || type == DataType::kInt64 || type == DataType::kFloat) {
    return SupportsOutput(query);
  }
  return absl::UnimplementedError(
      StrCat("indices of type ", DataTypeName(type), ", expected int32, int64 or float"));
}

absl::Status RunOneHot(KernelArgs& args) {
  const TensorArg &indices = args.input(kOneHotIndices), &y = args.output(0);
  PF_ASSIGN_OR_RETURN(const int axis, onnx_ops::AxisOf(*args.node, y.dims, -1));
  OneHotParams params{.index_type = indices.dtype, .indices = indices.data};
  params.values = args.input(kOneHotValues).data;
  params.to = y.data;
  params.outer = Product(y.dims, 0, axis);
  params.depth = y.dims[axis];
  params.inner = Product(y.dims, axis + 1, y.dims.size());
  params.element_size = ElementSize(y.dtype);
  return LaunchStatus(LaunchOneHot(params, StreamOf(args)));
}

}  // namespace

void AddIndexedMovementKernels(OpRegistry& ops) {
  const auto add_indexed = [&](const char* op, auto supports, auto run) {
    AddKernelTo(
        ops, "", op,
        {.name = "cuda", .priority = 10, .checks_indices = true, .supports = supports, .run = run});
  };
  add_indexed("GatherND", SupportsTuples, RunGatherND);
  add_indexed("ScatterND", SupportsScatterND, RunScatterND);
  const auto add = [&](const char* op, std::vector<int> host_inputs, auto supports, auto run) {
    AddKernelTo(ops, "", op,
                {.name = "cuda",
                 .priority = 10,
                 .host_inputs = std::move(host_inputs),
                 .supports = supports,
                 .run = run});
  };
  add("ConstantOfShape", {0}, SupportsOutput, RunConstantOfShape);
  add("Pad", {kPads, kPadValue, kPadAxes}, SupportsPad, RunPad);
  add("Range", {0, 1, 2}, SupportsOutput, RunRange);
  add("Trilu", {1}, SupportsOutput, RunTrilu);
  add("OneHot", {1}, SupportsOneHot, RunOneHot);
}

}  // namespace pagefuse::cuda
