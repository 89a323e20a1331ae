// SPDX-License-Identifier: Apache-2.0
// Max, Min, Sum and Mean: elementwise over one or more inputs with numpy broadcast.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"
#include "pagefuse/ops/onnx/broadcast.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/elementwise.h"
#include "pagefuse/ops/onnx/scalar_math.h"

namespace pagefuse::onnx_ops {
namespace {

// Elements [position, position + n) of the output, from those at offsets[k] + i * strides[k] of
// input k.
struct Run {
  int64_t position, n;
  const int64_t* offsets;
  const int64_t* strides;
};
using RowFn = void (*)(const KernelArgs& args, const Run& run);

// Folds the inputs with Fn in the compute type, and divides by their number for Mean.
template <typename Fn, bool mean, typename T>
void TypedRow(const KernelArgs& args, const Run& run) {
  const size_t count = args.inputs.size();
  for (int64_t i = 0; i < run.n; ++i) {
    Compute<T> result = Load(args.inputs[0].as<T>()[run.offsets[0] + i * run.strides[0]]);
    for (size_t k = 1; k < count; ++k) {
      result = Fn()(result, Load(args.inputs[k].as<T>()[run.offsets[k] + i * run.strides[k]]));
    }
    if constexpr (mean) result /= static_cast<Compute<T>>(count);
    args.output(0).as<T>()[run.position + i] = Store<T>(result);
  }
}

absl::Status RunRows(const KernelArgs& args, RowFn row) {
  if (row == nullptr) return NoKernelForType(args.input(0).dtype);
  std::vector<std::vector<int64_t>> inputs;
  for (const TensorArg& input : args.inputs) inputs.push_back(input.dims);
  const BroadcastPlan plan(args.output(0).dims, inputs);
  std::vector<int64_t> strides;
  for (size_t k = 0; k < inputs.size(); ++k)
    strides.push_back(plan.row_stride(static_cast<int>(k)));
  ParallelFor(plan.size(), 4, [&](int64_t begin, int64_t end) {
    plan.ForEachRow(begin, end, [&](int64_t position, int64_t n, const int64_t* offsets) {
      row(args, {position, n, offsets, strides.data()});
    });
  });
  return absl::OkStatus();
}

template <typename Fn, bool mean, typename Types>
absl::Status RunReference(KernelArgs& args) {
  return RunRows(args, Choose(Types(), args.input(0).dtype,
                              []<typename T>() -> RowFn { return TypedRow<Fn, mean, T>; }));
}

absl::Status SupportsTwo(const KernelQuery& query) {
  if (query.node->num_inputs() == 2) return absl::OkStatus();
  return absl::UnimplementedError("there are not two inputs");
}

Kernel HwyKernel(BinaryRowFn row) {
  return {.name = "hwy",
          .dtypes = {DataType::kFloat},
          .priority = 10,
          .supports = SupportsTwo,
          .run = [row](KernelArgs& args) { return RunBinaryRows(args, row); }};
}

template <bool mean, typename Types, typename Fn>
OpDef Variadic(Fn, std::string_view name, std::string_view output, std::string_view doc) {
  return OpDef("", name, 8)
      .Doc(doc)
      .Input("data_0", "T", "[...]; all broadcast", PortKind::kVariadic)
      .Output(output, "T", "the broadcast shape")
      .Types("T", TypesOf(Types()))
      .InferShapes([](ShapeContext& context) { return InferBroadcast(context); })
      .AddKernel({.name = "reference", .run = RunReference<Fn, mean, Types>})
      .Elementwise()
      .InPlace(0, 0);
}

}  // namespace

OpDef MaxDef() {
  return Variadic<false, Numbers>(kMax, "Max", "max", "The largest of the inputs; NaN wins.")
      .AddKernel(HwyKernel(MaxRow));
}

OpDef MinDef() {
  return Variadic<false, Numbers>(kMin, "Min", "min", "The smallest of the inputs; NaN wins.")
      .AddKernel(HwyKernel(MinRow));
}

OpDef SumDef() {
  return Variadic<false, Floats>(kAdd, "Sum", "sum", "The sum of the inputs, rounded once.");
}

OpDef MeanDef() {
  return Variadic<true, Floats>(kAdd, "Mean", "mean", "The mean of the inputs, rounded once.");
}

}  // namespace pagefuse::onnx_ops
