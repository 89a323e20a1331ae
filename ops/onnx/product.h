// SPDX-License-Identifier: Apache-2.0
// What MatMul, FusedMatMul and Gemm share: shapes, which those of integers have too, the reference
// loops and the float32 kernel.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/numeric/small_float.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse {

// y = alpha * op(a) * op(b); op transposes the last two dims where asked for.
struct ProductSpec {
  bool trans_a = false;
  bool trans_b = false;
  float alpha = 1.0f;
};

// The spec of a node of any of the three ops: attributes transA, transB, alpha, absent ones as the
// default.
absl::StatusOr<ProductSpec> ProductSpecOf(const Node& node);

// Shape of numpy's matmul: a vector on the left (right) is a row (column) whose dim is left out of
// the result; leading dims broadcast. InvalidArgument if a rank is 0, a transposed operand is a
// vector, or numbers disagree.
absl::Status InferProduct(ShapeContext& c, const ProductSpec& spec);

// The dims before a matrix or vector.
Shape BatchOf(const Shape& shape);
// The shape of the product of operands that multiply.
absl::StatusOr<Shape> ProductShape(ShapeContext& c, const ProductSpec& spec, const Shape& a,
                                   const Shape& b);

// Output 0 is a batch of [m, n] matrices; matrix i is a's matrix a_index[i] by b's b_index[i].
struct ProductDims {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  std::vector<int64_t> a_index;
  std::vector<int64_t> b_index;
};
ProductDims DimsOf(const ProductSpec& spec, const TensorArg& a, const TensorArg& b);

// Sums are made in double for float and double, in float for the 16-bit types, modulo 2^64 for
// integers.
template <typename T>
using ProductSum = std::conditional_t<std::is_integral_v<T>, uint64_t,
                                      std::conditional_t<kIsSmallFloat<T>, float, double>>;

// One element: the dot product of k elements, `a_step` and `b_step` apart.
template <typename T>
ProductSum<T> ReferenceDot(const T* a, int64_t a_step, const T* b, int64_t b_step, int64_t k) {
  using Sum = ProductSum<T>;
  Sum sum = 0;
  for (int64_t i = 0; i < k; ++i) {
    sum += static_cast<Sum>(a[i * a_step]) * static_cast<Sum>(b[i * b_step]);
  }
  return sum;
}

// The definition: plain loops, for every type.
absl::Status ReferenceProduct(KernelArgs& args, const ProductSpec& spec);

// float32, any spec.
absl::Status LinearProduct(KernelArgs& args, const ProductSpec& spec);

}  // namespace pagefuse
