// SPDX-License-Identifier: Apache-2.0
// Norm and rotation of a row of floats in shared memory, a warp a row: the numbers of rows/rope_row.h. Device code: for .cu files.
//
// The CPU multiplies and adds apart, so these do.
#pragma once

#include "pagefuse/ops/kernels/cuda/row_rotation.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {

// Element i of float, float16 or bfloat16 elements.
__device__ inline float LoadElement(DataType type, const void* from, int64_t i) {
  switch (type) {
    case DataType::kFloat16:
      return static_cast<float>(static_cast<const Float16*>(from)[i]);
    case DataType::kBfloat16:
      return static_cast<float>(static_cast<const Bfloat16*>(from)[i]);
    default:
      return static_cast<const float*>(from)[i];
  }
}

// x / sqrt(mean of x^2 + epsilon) * weight(d). All lanes have the row, and have it afterwards.
template <class F>
__device__ void NormFloats(float* x, int n, float epsilon, const F& weight) {
  const float mean = __fdiv_rn(SumOfSquares(x, n), static_cast<float>(n));
  const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, epsilon)));
  __syncwarp();
  for (int d = LaneId(); d < n; d += kWarp) x[d] = __fmul_rn(__fmul_rn(x[d], inverse), weight(d));
  __syncwarp();
}

// Rotates x by that row of the table.
__device__ inline void RotateFloats(const RowRotation& r, int64_t table_row, float* x) {
  const int64_t cosines = table_row * 2 * r.pairs;
  for (int i = LaneId(); i < r.pairs; i += kWarp) {
    const int first = r.offset + (r.interleaved ? 2 * i : i);
    const int second = first + (r.interleaved ? 1 : r.pairs);
    const float cos = LoadElement(r.table_type, r.table, cosines + i);
    const float sin = LoadElement(r.table_type, r.table, cosines + r.pairs + i);
    const float s = r.inverse ? -sin : sin;
    const float a = x[first];
    const float b = x[second];
    x[first] = __fsub_rn(__fmul_rn(a, cos), __fmul_rn(b, s));
    x[second] = __fadd_rn(__fmul_rn(b, cos), __fmul_rn(a, s));
  }
  __syncwarp();
}

// Rotates a row of that token.
__device__ inline void RotateByPosition(const RotatedRows& rows, int64_t token, float* x) {
  const int64_t position = rows.positions[token];
  if (position >= 0 && position < rows.rotation.table_rows) {
    return RotateFloats(rows.rotation, position, x);
  }
  if (LaneId() == 0) rows.errors.Tell(rows.positions_input, token, position);
}

// The Hadamard transform as a rotation (formats/hadamard.h).
__device__ inline void HadamardRotate(float* x, int n) {
  HadamardTransform(x, n);
  const float entry = __fdiv_rn(1.0f, __fsqrt_rn(static_cast<float>(n)));
  for (int d = LaneId(); d < n; d += kWarp) x[d] = __fmul_rn(x[d], entry);
  __syncwarp();
}

}  // namespace pagefuse::cuda
