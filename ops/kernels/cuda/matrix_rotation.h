// SPDX-License-Identifier: Apache-2.0
// Rotations of a row of floats in shared memory by a matrix, a warp a row. Device code: for .cu files.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {

// The Hadamard transform as a rotation (formats/hadamard.h). A lane sees its own elements afterwards.
__device__ inline void HadamardRotateOwn(float* x, int n) {
  HadamardTransform(x, n);
  const float entry = __fdiv_rn(1.0f, __fsqrt_rn(static_cast<float>(n)));
  for (int d = LaneId(); d < n; d += kWarp) x[d] = __fmul_rn(x[d], entry);
}
// All lanes see it.
__device__ inline void HadamardRotate(float* x, int n) {
  HadamardRotateOwn(x, n);
  __syncwarp();
}

// y = P x for a given matrix [n, n]; what is summed is of type Sum.
template <typename Sum>
__device__ void RotateByMatrix(const float* rotation, const float* x, int n, float* y) {
  for (int i = 0; i < n; ++i) {
    Sum sum = 0;
    for (int j = LaneId(); j < n; j += kWarp) {
      sum += static_cast<Sum>(rotation[static_cast<int64_t>(i) * n + j]) * x[j];
    }
    sum = SumOfLanes(sum);
    if (LaneId() == 0) y[i] = static_cast<float>(sum);
  }
  __syncwarp();
}

}  // namespace pagefuse::cuda
