// SPDX-License-Identifier: Apache-2.0
// Queries in the space in which keys are stored: a warp a row.
#include "pagefuse/ops/kernels/cuda/attention_rows.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/matrix_rotation.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {
namespace {

__global__ void QueryTransformKernel(const __grid_constant__ PagedAttention p, int64_t rows) {
  extern __shared__ float4 query_rows[];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int n = static_cast<int>(p.batch.head_size);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + warp;
  if (row >= rows) return;
  float* x = reinterpret_cast<float*>(query_rows) + warp * 2 * kLongestAttentionHead;
  float* y = x + kLongestAttentionHead;
  LoadQuery(p, row, x);
  const float* result = x;
  if (p.transforms_rows()) {
    for (int d = LaneId(); d < n; d += kWarp) x[d] = __fmul_rn(x[d], p.rht_signs[d]);
    __syncwarp();
    HadamardTransform(x, n);
    for (int d = LaneId(); d < n; d += kWarp) x[d] = RoundThrough(p.compute_type, x[d]);
  } else if (p.rotation == nullptr) {
    HadamardRotateOwn(x, n);
  } else {
    RotateByMatrix<float>(p.rotation, x, n, y);
    result = y;
  }
  __syncwarp();
  for (int d = LaneId(); d < n; d += kWarp) p.rotated_query[row * n + d] = result[d];
}

}  // namespace

Error LaunchQueryTransform(const PagedAttention& p, Stream stream) {
  constexpr int kWarps = 4;
  const int64_t rows = p.batch.num_tokens * p.batch.num_heads;
  const auto ctas = static_cast<unsigned>((rows + kWarps - 1) / kWarps);
  constexpr size_t kShared = kWarps * 2 * kLongestAttentionHead * sizeof(float);
  return Launch(QueryTransformKernel, {dim3(ctas), dim3(kWarps * kWarp), kShared}, stream, p, rows);
}

}  // namespace pagefuse::cuda
