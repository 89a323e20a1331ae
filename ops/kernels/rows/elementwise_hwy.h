// SPDX-License-Identifier: Apache-2.0
// Float32 rows of elementwise ops with Highway.
#pragma once

#include <cstdint>

namespace pagefuse::onnx_ops {

// y[i] = f(x[i]) for i in [0, n). `alpha` is the op's parameter, where it has one. x and y may be
// the same, or not overlap; any alignment.
using UnaryRow = void (*)(const float* x, float* y, int64_t n, float alpha);

// At most 1 ulp from the exact value.
void NegRow(const float* x, float* y, int64_t n, float alpha);
void AbsRow(const float* x, float* y, int64_t n, float alpha);
void SqrtRow(const float* x, float* y, int64_t n, float alpha);
void ReciprocalRow(const float* x, float* y, int64_t n, float alpha);
void SquareRow(const float* x, float* y, int64_t n, float alpha);
void CubeRow(const float* x, float* y, int64_t n, float alpha);
void ReluRow(const float* x, float* y, int64_t n, float alpha);
void FloorRow(const float* x, float* y, int64_t n, float alpha);
void CeilRow(const float* x, float* y, int64_t n, float alpha);
void RoundRow(const float* x, float* y, int64_t n, float alpha);    // halves to even
void PowHalfRow(const float* x, float* y, int64_t n, float alpha);  // x^0.5
void PowRow(const float* x, float* y, int64_t n, float alpha);      // x^alpha
void LeakyReluRow(const float* x, float* y, int64_t n, float alpha);
// At most 4 ulp from the exact value where that is not tiny: exp-based functions of Highway's math
// library, sine and cosine by the scalar library where |x| > 39000.
void ExpRow(const float* x, float* y, int64_t n, float alpha);
void LogRow(const float* x, float* y, int64_t n, float alpha);
void EluRow(const float* x, float* y, int64_t n, float alpha);
void SoftplusRow(const float* x, float* y, int64_t n, float alpha);
void MishRow(const float* x, float* y, int64_t n, float alpha);
void SinRow(const float* x, float* y, int64_t n, float alpha);
void CosRow(const float* x, float* y, int64_t n, float alpha);
void TanhRow(const float* x, float* y, int64_t n, float alpha);
void SigmoidRow(const float* x, float* y, int64_t n, float alpha);
void SwishRow(const float* x, float* y, int64_t n, float alpha);  // x * sigmoid(alpha * x)
void ErfRow(const float* x, float* y, int64_t n, float alpha);
void GeluRow(const float* x, float* y, int64_t n, float alpha);
void GeluTanhRow(const float* x, float* y, int64_t n, float alpha);

// The row for x^exponent with this exponent for all elements, which is its `alpha` too; at most 1
// ulp off.
UnaryRow PowRowFor(float exponent);

// Element addresses and distances (0 or 1) of a row of operands.
struct RowOperands {
  const void* a;
  int64_t a_stride;
  const void* b;
  int64_t b_stride;
};
// y[i] = f(a[i * a_stride], b[i * b_stride]) for i in [0, n).
using BinaryRowFn = void (*)(const RowOperands& operands, void* y, int64_t n);

// Rows of floats; an operand of stride 1 may be y. Exact: one rounding.
void AddRow(const RowOperands& operands, void* y, int64_t n);
void SubRow(const RowOperands& operands, void* y, int64_t n);
void MulRow(const RowOperands& operands, void* y, int64_t n);
void DivRow(const RowOperands& operands, void* y, int64_t n);
// NaN wins.
void MaxRow(const RowOperands& operands, void* y, int64_t n);
void MinRow(const RowOperands& operands, void* y, int64_t n);

}  // namespace pagefuse::onnx_ops
