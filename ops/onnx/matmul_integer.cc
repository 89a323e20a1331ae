// SPDX-License-Identifier: Apache-2.0
// MatMulInteger: the product of 8-bit matrices, exact in int32.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/integer_product.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/product.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

using Bytes = TypeList<int8_t, uint8_t>;

absl::Status InferMatMulInteger(ShapeContext& context) {
  const Shape* a = context.input_shape(0);
  const Shape* b = context.input_shape(1);
  context.SetOutput(0, DataType::kInt32, std::nullopt);
  if (a == nullptr || b == nullptr) return absl::OkStatus();
  for (int i = 0; i < 2; ++i) {
    if (context.input_shape(i)->rank() == 0)
      return context.InputError(i, "expected rank 1 or more, got a scalar");
  }
  const Dim& inner_a = a->back(0);
  const Dim& inner_b = b->rank() == 1 ? (*b)[0] : b->back(1);
  if (Differ(inner_a, inner_b)) {
    return context.Error(
        StrCat("shapes ", a->ToString(), " and ", b->ToString(), " do not multiply"));
  }
  PF_ASSIGN_OR_RETURN(Shape y, ProductShape(context, {}, *a, *b));
  // A zero point is one number, one for each row of A (column of B), or the same with batch dims.
  for (int i = 2; i < context.num_inputs(); ++i) {
    const Shape* zero = context.input_shape(i);
    const auto dims = zero == nullptr ? std::nullopt : zero->constant();
    const Shape& x = i == 2 ? *a : *b;
    if (!dims || ElementCount(*dims) == 1 || !x.constant()) continue;
    const int64_t lines = *x.back(i == 2 && x.rank() > 1 ? 1 : 0).constant();
    const bool per_line = zero->rank() == 1 && (*dims)[0] == lines;
    const Dim shared = zero->back(i == 2 || zero->rank() == 1 ? 0 : 1);
    const bool batched = zero->rank() == x.rank() && zero->rank() > 1 && shared == Dim(1) &&
                         ElementCount(*dims) == *ElementCount(*BatchOf(x).constant()) * lines;
    if (!per_line && !batched) {
      return context.InputError(i,
                                StrCat("shape ", zero->ToString(), " does not fit ", x.ToString()));
    }
  }
  context.SetOutput(0, DataType::kInt32, std::move(y));
  return absl::OkStatus();
}

// The zero point of line `line` (row of A, column of B) of matrix `matrix`.
template <typename T>
int32_t ZeroPoint(const TensorArg& zero, int64_t matrix, int64_t line, int64_t lines) {
  if (!zero.present()) return 0;
  const T* values = zero.as<T>();
  if (zero.size() == 1) return values[0];
  return values[zero.dims.size() == 1 ? line : matrix * lines + line];
}

// row += value * (b - b_zero). Through uint32_t: a sum that overflows wraps, as the hardware's does.
template <typename B>
void AddProducts(int32_t value, const B* b, const std::vector<int32_t>& b_zero, int32_t* row) {
  for (size_t j = 0; j < b_zero.size(); ++j) {
    row[j] = static_cast<int32_t>(static_cast<uint32_t>(row[j]) +
                                  static_cast<uint32_t>(value * (b[j] - b_zero[j])));
  }
}

// One [M, K] by [K, N] product.
template <typename A, typename B>
void Multiply(const KernelArgs& args, const int64_t (&sizes)[3], const int64_t (&matrices)[3]) {
  const auto [m, k, n] = sizes;
  const A* a = args.input(0).as<A>() + matrices[0] * m * k;
  const B* b = args.input(1).as<B>() + matrices[1] * k * n;
  int32_t* y = args.output(0).as<int32_t>() + matrices[2] * m * n;
  std::vector<int32_t> b_zero(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) b_zero[j] = ZeroPoint<B>(args.input(3), matrices[1], j, n);
  ParallelFor(m, k * n + 1, [&, k = k, n = n, m = m](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t a_zero = ZeroPoint<A>(args.input(2), matrices[0], i, m);
      int32_t* row = y + i * n;
      std::fill(row, row + n, 0);
      for (int64_t t = 0; t < k; ++t) AddProducts(a[i * k + t] - a_zero, b + t * n, b_zero, row);
    }
  });
}

// The same product by the kernels that integer products share.
template <typename A, typename B>
void MultiplyFast(const KernelArgs& args, const int64_t (&sizes)[3], const int64_t (&matrices)[3]) {
  const auto [m, k, n] = sizes;
  std::vector<int32_t> a_zeros(static_cast<size_t>(m)), b_zeros(static_cast<size_t>(n));
  for (int64_t i = 0; i < m; ++i) a_zeros[i] = ZeroPoint<A>(args.input(2), matrices[0], i, m);
  for (int64_t j = 0; j < n; ++j) b_zeros[j] = ZeroPoint<B>(args.input(3), matrices[1], j, n);
  IntegerProduct product{.m = m, .k = k, .n = n};
  product.a = {args.input(0).as<uint8_t>() + matrices[0] * m * k, k, std::is_signed<A>()};
  product.b = {args.input(1).as<uint8_t>() + matrices[1] * k * n, n, std::is_signed<B>()};
  product.a_zeros = {a_zeros.data(), 1};
  product.b_zeros = {b_zeros.data(), 1};
  product.y = args.output(0).as<int32_t>() + matrices[2] * m * n;
  product.y_stride = n;
  MultiplyIntegers(product, args.scratch->Get(IntegerProductScratchBytes(m, k, n)));
}

// The products of all matrices, broadcast.
template <bool fast, typename A, typename B>
void MultiplyAll(const KernelArgs& args, const ProductDims& dims) {
  for (size_t i = 0; i < dims.a_index.size(); ++i) {
    (fast ? MultiplyFast<A, B>
          : Multiply<A, B>)(args, {dims.m, dims.k, dims.n},
                            {dims.a_index[i], dims.b_index[i], static_cast<int64_t>(i)});
  }
}

template <bool fast>
absl::Status RunMatMulInteger(KernelArgs& args) {
  const ProductDims dims = DimsOf({}, args.input(0), args.input(1));
  return Dispatch(Bytes(), args.input(0).dtype, [&]<typename A>() {
    return Dispatch(Bytes(), args.input(1).dtype,
                    [&]<typename B>() { MultiplyAll<fast, A, B>(args, dims); });
  });
}

}  // namespace

OpDef MatMulIntegerDef() {
  return OpDef("", "MatMulInteger", 10)
      .Doc("(A - a_zero_point) times (B - b_zero_point) as matrices, in int32.")
      .Input("A", "T1", "[..., M, K]")
      .Input("B", "T2", "[..., K, N]")
      .Input("a_zero_point", "T1", "[], [M] or [..., M, 1]", PortKind::kOptional)
      .Input("b_zero_point", "T2", "[], [N] or [..., 1, N]", PortKind::kOptional)
      .Output("Y", "int32", "[..., M, N]")
      .Types("T1", TypesOf(Bytes()))
      .Types("T2", TypesOf(Bytes()))
      .InferShapes(InferMatMulInteger)
      .AddKernel({.name = "reference", .run = RunMatMulInteger<false>})
      .AddKernel({.name = "hwy", .priority = 10, .run = RunMatMulInteger<true>});
}

}  // namespace pagefuse::onnx_ops
