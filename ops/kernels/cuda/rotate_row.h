// SPDX-License-Identifier: Apache-2.0
// Norm and rotation of a row of floats in shared memory, a warp a row: the numbers of rows/rope_row.h. Device code: for .cu files.
//
// The CPU multiplies and adds apart, so these do.
#pragma once

#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/matrix_rotation.h"
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

// Cosine and sine that a pair is rotated by.
struct Turn {
  float cos, sin;
};
__device__ inline Turn TurnOf(const RowRotation& r, int64_t table_row, int pair) {
  const int64_t cosines = table_row * 2 * r.pairs;
  return {LoadElement(r.table_type, r.table, cosines + pair),
          LoadElement(r.table_type, r.table, cosines + r.pairs + pair)};
}
__device__ inline Turn FirstTurnOf(const RowRotation& r, int64_t table_row) {
  return LaneId() < r.pairs ? TurnOf(r, table_row, LaneId()) : Turn{};
}

// Rotates x by that row of the table, each lane its first pair by `turn`.
__device__ inline void RotateFloats(const RowRotation& r, int64_t table_row, Turn turn, float* x) {
#pragma unroll 1
  for (int i = LaneId(); i < r.pairs; i += kWarp) {
    if (i >= kWarp) turn = TurnOf(r, table_row, i);
    const int first = r.offset + (r.interleaved ? 2 * i : i);
    const int second = first + (r.interleaved ? 1 : r.pairs);
    const float s = r.inverse ? -turn.sin : turn.sin;
    const float a = x[first];
    const float b = x[second];
    x[first] = __fsub_rn(__fmul_rn(a, turn.cos), __fmul_rn(b, s));
    x[second] = __fadd_rn(__fmul_rn(b, turn.cos), __fmul_rn(a, s));
  }
  __syncwarp();
}
__device__ inline void RotateFloats(const RowRotation& r, int64_t table_row, float* x) {
  RotateFloats(r, table_row, FirstTurnOf(r, table_row), x);
}

// The rotation of a token's rows. What it loads is on its way while they are.
class TokenRotation {
 public:
  __device__ TokenRotation(const RotatedRows& rows, int64_t token)
      : rows_(rows),
        token_(token),
        position_(FetchIndex(rows.positions.data, rows.positions.is_int64, token)) {}

  // Waits for the position.
  __device__ void LoadTurns() {
    if (IsKnown()) turn_ = FirstTurnOf(rows_.rotation, position_);
  }

  // After LoadTurns().
  __device__ void Rotate(float* x) const {
    if (IsKnown()) return RotateFloats(rows_.rotation, position_, turn_, x);
    if (LaneId() == 0) rows_.errors.Tell(rows_.positions_input, token_, position_);
  }

 private:
  __device__ bool IsKnown() const {
    return position_ >= 0 && position_ < rows_.rotation.table_rows;
  }

  const RotatedRows& rows_;
  int64_t token_, position_;
  Turn turn_ = {};
};

// Rotates a row of that token.
__device__ inline void RotateByPosition(const RotatedRows& rows, int64_t token, float* x) {
  TokenRotation rotation(rows, token);
  rotation.LoadTurns();
  rotation.Rotate(x);
}

}  // namespace pagefuse::cuda
