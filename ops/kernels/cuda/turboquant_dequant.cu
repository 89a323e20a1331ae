// SPDX-License-Identifier: Apache-2.0
// TurboQuantDequant: a warp the key and the value of a position.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/turboquant.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {
namespace {

// The key rounded to float16, in the space of the rotation where it has one.
__device__ void DecodeKey(const TurboQuantDequant& p, const uint8_t* slot, float* x) {
  const int n = static_cast<int>(p.format.head_size);
  if (!p.format.has_centroids()) {
    for (int d = LaneId(); d < n; d += kWarp) x[d] = DecodeFloat<E4M3FNFormat>(slot[d]);
    __syncwarp();
    return;
  }
  const float* centroids = p.centroids.values();
  for (int d = LaneId(); d < n; d += kWarp) {
    x[d] = centroids[StreamCode(slot, p.format.key_bits, d)];
  }
  __syncwarp();
  float length = 1;
  if (p.norm_correction) {
    length = __fsqrt_rn(__fadd_rn(SumOfSquares(x, n), kTurboQuantSquareFloor));
  }
  const float norm = LoadHalfBytes(slot + p.format.KeyDataBytes());
  __syncwarp();
  for (int d = LaneId(); d < n; d += kWarp) {
    x[d] = static_cast<float>(Float16(__fmul_rn(__fdiv_rn(x[d], length), norm)));
  }
  __syncwarp();
}

// A row vector times the rotation rounded to float16.
__device__ void RotateBack(const TurboQuantDequant& p, float* x, float* y) {
  const int n = static_cast<int>(p.format.head_size);
  if (p.rotation == nullptr) {
    HadamardTransform(x, n);
    const float root = __fsqrt_rn(static_cast<float>(n));
    const float entry = static_cast<float>(Float16(__fdiv_rn(1.0f, root)));
    for (int d = LaneId(); d < n; d += kWarp) y[d] = x[d] * entry;
    return;
  }
  for (int d = LaneId(); d < n; d += kWarp) {
    float sum = 0;
    for (int i = 0; i < n; ++i) {
      sum += x[i] * static_cast<float>(Float16(p.rotation[static_cast<int64_t>(i) * n + d]));
    }
    y[d] = sum;
  }
}

__global__ void TurboQuantDequantKernel(const __grid_constant__ TurboQuantDequant p, int64_t rows) {
  extern __shared__ float4 dequant_rows[];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int n = static_cast<int>(p.format.head_size);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * warps + warp;
  if (row >= rows) return;
  const int64_t position = row % p.positions;
  const int64_t head = row / p.positions % p.heads;
  const int64_t b = row / p.positions / p.heads;
  Float16* key = static_cast<Float16*>(p.key) + row * n;
  Float16* value = static_cast<Float16*>(p.value) + row * n;
  int64_t block = -1;
  const int64_t column = position / p.slots.block_size;
  if (position < p.seq_lens[b] && column < p.table_columns) {
    block = p.block_table[b * p.table_columns + column];
  }
  if (block < 0 || block >= p.slots.num_blocks) {
    const auto zero = [](int) { return Float16::FromBits(0); };
    StoreRow(key, n, zero);
    StoreRow(value, n, zero);
    return;
  }
  const int stride = (n + 3) / 4 * 4;
  float* x = reinterpret_cast<float*>(dequant_rows) + warp * 2 * stride;
  float* y = x + stride;
  const uint8_t* slot = p.slots.At(block, position % p.slots.block_size, head).data;
  DecodeKey(p, slot, x);
  float* result = x;
  if (p.inverse_rotate && p.format.has_centroids()) {
    RotateBack(p, x, y);
    result = y;
    __syncwarp();
  }
  StoreRow(key, n, [=](int d) { return Float16(result[d]); });
  const uint8_t* codes = slot + p.format.KeyBytes();
  const float scale = LoadHalfBytes(codes + p.format.ValueDataBytes());
  const float zero = LoadHalfBytes(codes + p.format.ValueDataBytes() + 2);
  StoreRow(value, n, [=](int d) {
    const int code = StreamCode(codes, p.format.value_bits, d);
    return Float16(__fadd_rn(__fmul_rn(static_cast<float>(code), scale), zero));
  });
}

}  // namespace

Error LaunchTurboQuantDequant(const TurboQuantDequant& p, Stream stream) {
  const int64_t rows = p.sequences * p.heads * p.positions;
  if (rows == 0) return 0;
  constexpr int kSharedBytes = 48 << 10;
  const int row_bytes = static_cast<int>((p.format.head_size + 3) / 4 * 4 * 2 * 4);
  if (row_bytes > kSharedBytes) return cudaErrorInvalidValue;
  const int warps = std::clamp(kSharedBytes / row_bytes, 1, 8);
  const auto ctas = static_cast<unsigned>((rows + warps - 1) / warps);
  const LaunchShape shape = {dim3(ctas), dim3(static_cast<unsigned>(warps * kWarp)),
                             static_cast<size_t>(warps) * row_bytes};
  return Launch(TurboQuantDequantKernel, shape, stream, p, rows);
}

}  // namespace pagefuse::cuda
