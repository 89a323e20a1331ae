// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/window_compress.h"
#include "pagefuse/ops/kernels/cuda/window_sum.h"

namespace pagefuse::cuda {
namespace {

// A block a window and as many columns as its lanes have.
template <int kVector>
__global__ void __launch_bounds__(kWindowThreads)
    WindowCompressKernel(const __grid_constant__ WindowCompress p) {
  using Floats = Vector<float, kVector>;
  extern __shared__ float4 window_sums[];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t sequence = blockIdx.x / p.windows, window = blockIdx.x % p.windows;
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVector;
  const bool is_one = column < p.size;
  const int64_t first_row = sequence * p.length + (window - p.overlap) * p.ratio;
  const auto load = [&](uint32_t i, Floats& scores, Floats& values) {
    const bool is_newer = p.overlap == 1 && i >= p.ratio;
    const int64_t d = is_newer ? p.size + column : column;
    const int64_t at = (first_row + i) * p.Width() + d;
    const int64_t bias_row = is_newer ? i - p.ratio : int64_t{i};
    scores = *reinterpret_cast<const Floats*>(p.gate + at);
    values = *reinterpret_cast<const Floats*>(p.kv + at);
    const auto bias = *reinterpret_cast<const Floats*>(p.bias + bias_row * p.Width() + d);
#pragma unroll
    for (int v = 0; v < kVector; ++v) scores.at[v] = __fadd_rn(scores.at[v], bias.at[v]);
  };
  WindowSum<kVector> sum;
  // The first window has none before it.
  const int64_t begin = p.overlap == 1 && window == 0 ? p.ratio : 0;
  const int64_t end = (1 + p.overlap) * p.ratio;
  if (is_one) {
    SumRows<kVector>(static_cast<uint32_t>(begin), static_cast<uint32_t>(end), load, sum);
  }
  JoinGroups<kVector>(sum, reinterpret_cast<WindowSum<kVector>*>(window_sums));
  if (!is_one || threadIdx.y > 0) return;
  Floats y;
#pragma unroll
  for (int v = 0; v < kVector; ++v) y.at[v] = sum.at[v].Result();
  *reinterpret_cast<Floats*>(p.rows + int64_t{blockIdx.x} * p.size + column) = y;
}

bool SuitsVectors(const WindowCompress& call) {
  constexpr int64_t kBytes = sizeof(float4);
  return call.size % 4 == 0 && IsAligned(call.kv, kBytes) && IsAligned(call.gate, kBytes) &&
         IsAligned(call.bias, kBytes) && IsAligned(call.rows, kBytes);
}

template <int kVector>
Error LaunchVectors(const WindowCompress& call, Stream stream) {
  const int64_t pieces = CeilDiv(call.size, kVector), rows = call.batch * call.windows;
  const dim3 block = WindowBlock(pieces, (1 + call.overlap) * call.ratio);
  const int64_t parts = CeilDiv(pieces, block.x);
  constexpr int64_t kMostRows = (int64_t{1} << 31) - 1, kMostParts = 65535;
  if (rows > kMostRows || parts > kMostParts) return kTooLarge;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(rows), static_cast<unsigned>(parts)),
                          .block = block,
                          .shared_bytes = JoinedBytes<kVector>(block)};
  return Launch(WindowCompressKernel<kVector>, shape, stream, call);
}

}  // namespace

Error LaunchWindowCompress(const WindowCompress& call, Stream stream) {
  if (call.batch == 0 || call.windows == 0 || call.size == 0) return 0;
  return SuitsVectors(call) ? LaunchVectors<4>(call, stream) : LaunchVectors<1>(call, stream);
}

}  // namespace pagefuse::cuda
