// SPDX-License-Identifier: Apache-2.0
// QLinearMatMul: the product of quantised matrices, quantised.
#include <cmath>
#include <cstdint>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/integer_product.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/product.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

using Quantised = decltype(Join(TypeList<int8_t, uint8_t>(), Float8s()));
using Scales = TypeList<float, Float16, Bfloat16>;

// Input `i` and its scale and zero point.
constexpr int kA = 0, kB = 3, kYScale = 6, kYZero = 7;

absl::Status CheckParameter(const ShapeContext& c, int i, const Shape* matrix, bool left) {
  const Shape* shape = c.input_shape(i);
  const auto dims = shape == nullptr ? std::nullopt : shape->constant();
  if (!dims || ElementCount(*dims) == 1 || matrix == nullptr || matrix->rank() < 2) {
    return absl::OkStatus();
  }
  // One for each row of A, or column of B.
  const Dim& lines = matrix->back(left ? 1 : 0);
  if (shape->rank() == 1 && (!lines.is_constant() || (*shape)[0] == lines)) return absl::OkStatus();
  return c.InputError(i, StrCat("shape ", shape->ToString(), " does not fit ", matrix->ToString()));
}

absl::Status InferQLinear(ShapeContext& c) {
  const Shape* a = c.input_shape(kA);
  const Shape* b = c.input_shape(kB);
  const DataType type = c.input_type(kYZero);
  c.SetOutput(0, type, std::nullopt);
  for (int i : {1, 2}) PF_RETURN_IF_ERROR(CheckParameter(c, i, a, true));
  for (int i : {4, 5}) PF_RETURN_IF_ERROR(CheckParameter(c, i, b, false));
  for (int i : {kYScale, kYZero}) PF_RETURN_IF_ERROR(ExpectOneElement(c, i));
  if (a == nullptr || b == nullptr) return absl::OkStatus();
  for (int i : {kA, kB}) {
    if (c.input_shape(i)->rank() >= 2) continue;
    return c.InputError(
        i, StrCat("expected rank 2 or more, got shape ", c.input_shape(i)->ToString()));
  }
  if (Differ(a->back(0), b->back(1))) {
    return c.Error(StrCat("shapes ", a->ToString(), " and ", b->ToString(), " do not multiply"));
  }
  PF_ASSIGN_OR_RETURN(Shape y, ProductShape(c, {}, *a, *b));
  c.SetOutput(0, type, std::move(y));
  return absl::OkStatus();
}

// A matrix stack as value - zero point, and the scale of each line.
struct Operand {
  std::vector<float> values, scales;
  double Scale(int64_t line) const { return scales[scales.size() == 1 ? 0 : line]; }
};

absl::StatusOr<Operand> ReadOperand(const KernelArgs& args, int i, bool left) {
  Operand operand;
  PF_ASSIGN_OR_RETURN(operand.values, DecodedFloats(args.input(i)));
  PF_ASSIGN_OR_RETURN(operand.scales, DecodedFloats(args.input(i + 1)));
  PF_ASSIGN_OR_RETURN(const std::vector<float> zeros, DecodedFloats(args.input(i + 2)));
  const int64_t columns = args.input(i).dim(-1);
  const int64_t rows = args.input(i).dim(-2);
  for (size_t k = 0; k < operand.values.size(); ++k) {
    const int64_t at = static_cast<int64_t>(k);
    const int64_t line = left ? at / columns % rows : at % columns;
    operand.values[k] -= zeros[zeros.size() == 1 ? 0 : line];
  }
  return operand;
}

// Values are whole numbers or 8-bit floats, so the products are exact in double.
absl::Status RunQLinear(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Operand a, ReadOperand(args, kA, true));
  PF_ASSIGN_OR_RETURN(const Operand b, ReadOperand(args, kB, false));
  PF_ASSIGN_OR_RETURN(const std::vector<float> y_scale, DecodedFloats(args.input(kYScale)));
  PF_ASSIGN_OR_RETURN(const std::vector<float> y_zero, DecodedFloats(args.input(kYZero)));
  const TensorArg& y = args.output(0);
  const ProductDims dims = DimsOf({}, args.input(kA), args.input(kB));
  const int64_t m = dims.m, n = dims.n, k = dims.k;
  std::vector<float> row(static_cast<size_t>(n));
  const bool rounds = IsInteger(y.dtype);
  const auto rows = static_cast<int64_t>(dims.a_index.size()) * m;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t line = i % m;
    const float* left = a.values.data() + (dims.a_index[i / m] * m + line) * k;
    const float* right = b.values.data() + dims.b_index[i / m] * k * n;
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t t = 0; t < k; ++t) sum += static_cast<double>(left[t]) * right[t * n + j];
      const double scaled = sum * (a.Scale(line) * b.Scale(j) / y_scale[0]);
      row[j] = static_cast<float>((rounds ? std::nearbyint(scaled) : scaled) + y_zero[0]);
    }
    PF_RETURN_IF_ERROR(EncodeFromFloat(y.dtype, row.data(), n, ElementAt(y, i * n)));
  }
  return absl::OkStatus();
}

// --- 8-bit integers throughout ---

absl::Status SupportsIntegers(const KernelQuery& query) {
  for (const Value* value : {query.node->input(kB), query.node->input(kYZero)}) {
    if (value == nullptr) continue;
    if (value->dtype() == DataType::kInt8 || value->dtype() == DataType::kUint8) continue;
    return absl::UnimplementedError(StrCat(DataTypeName(value->dtype()), " is no 8-bit integer"));
  }
  return absl::OkStatus();
}

// Scales and zero points of operand `i`, one for all lines or one each.
struct IntegerOperand {
  std::vector<float> scales;
  std::vector<int32_t> zeros;

  double Scale(int64_t line) const { return scales[scales.size() == 1 ? 0 : line]; }
  ZeroPoints zero_points() const { return {zeros.data(), zeros.size() == 1 ? 0 : 1}; }
};

absl::StatusOr<IntegerOperand> IntegerOperandOf(const KernelArgs& args, int i) {
  IntegerOperand operand;
  PF_ASSIGN_OR_RETURN(operand.scales, DecodedFloats(args.input(i + 1)));
  PF_ASSIGN_OR_RETURN(const std::vector<float> zeros, DecodedFloats(args.input(i + 2)));
  operand.zeros.assign(zeros.begin(), zeros.end());
  return operand;
}

struct IntegerOutput {
  const TensorArg& tensor;
  double scale, zero;
};

// [m, n] sums as rows of y, from `first` on.
void RequantizeMatrix(const int32_t* sums, const IntegerOperand& a, const IntegerOperand& b,
                      const IntegerOutput& y, int64_t first) {
  const int64_t m = y.tensor.dim(-2), n = y.tensor.dim(-1);
  ParallelFor(m, n * 16, [&](int64_t begin, int64_t end) {
    std::vector<double> scales(static_cast<size_t>(n));
    for (int64_t i = begin; i < end; ++i) {
      const bool known = i > begin && a.scales.size() == 1;
      for (int64_t j = 0; !known && j < n; ++j) scales[j] = a.Scale(i) * b.Scale(j) / y.scale;
      RequantizeRow(
          sums + i * n, n,
          {.scales = scales.data(), .zero = y.zero, .is_signed = y.tensor.dtype == DataType::kInt8},
          y.tensor.as<uint8_t>() + (first + i) * n);
    }
  });
}

absl::Status RunIntegers(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const IntegerOperand a, IntegerOperandOf(args, kA));
  PF_ASSIGN_OR_RETURN(const IntegerOperand b, IntegerOperandOf(args, kB));
  PF_ASSIGN_OR_RETURN(const std::vector<float> y_scale, DecodedFloats(args.input(kYScale)));
  PF_ASSIGN_OR_RETURN(const std::vector<float> y_zero, DecodedFloats(args.input(kYZero)));
  const TensorArg& y = args.output(0);
  const ProductDims dims = DimsOf({}, args.input(kA), args.input(kB));
  const int64_t m = dims.m, n = dims.n, k = dims.k;
  IntegerProduct product{.m = m, .k = k, .n = n};
  product.a_zeros = a.zero_points();
  product.b_zeros = b.zero_points();
  product.y = static_cast<int32_t*>(
      args.scratch->Get(static_cast<size_t>(m * n) * sizeof(int32_t), /*slot=*/1));
  product.y_stride = n;
  void* scratch = args.scratch->Get(IntegerProductScratchBytes(m, k, n), /*slot=*/0);
  for (size_t i = 0; i < dims.a_index.size(); ++i) {
    product.a = {args.input(kA).as<uint8_t>() + dims.a_index[i] * m * k, k,
                 args.input(kA).dtype == DataType::kInt8};
    product.b = {args.input(kB).as<uint8_t>() + dims.b_index[i] * k * n, n,
                 args.input(kB).dtype == DataType::kInt8};
    MultiplyIntegers(product, scratch);
    RequantizeMatrix(product.y, a, b, {y, y_scale[0], y_zero[0]}, static_cast<int64_t>(i) * m);
  }
  return absl::OkStatus();
}

}  // namespace

OpDef QLinearMatMulDef() {
  return OpDef("", "QLinearMatMul", 10)
      .Doc("The product of the dequantised matrices, quantised by y_scale and y_zero_point.")
      .Input("a", "T1", "[..., M, K]")
      .Input("a_scale", "TS", "[] or [M]")
      .Input("a_zero_point", "T1", "as a_scale")
      .Input("b", "T2", "[..., K, N]")
      .Input("b_scale", "TS", "[] or [N]")
      .Input("b_zero_point", "T2", "as b_scale")
      .Input("y_scale", "TS", "[]")
      .Input("y_zero_point", "T3", "[]")
      .Output("y", "T3", "[..., M, N]")
      .Types("T1", TypesOf(Quantised()))
      .Types("T2", TypesOf(Quantised()))
      .Types("T3", TypesOf(Quantised()))
      .Types("TS", TypesOf(Scales()))
      .InferShapes(InferQLinear)
      .AddKernel({.name = "reference", .run = RunQLinear})
      .AddKernel({.name = "hwy",
                  .dtypes = {DataType::kInt8, DataType::kUint8},
                  .priority = 10,
                  .supports = SupportsIntegers,
                  .run = RunIntegers});
}

}  // namespace pagefuse::onnx_ops
