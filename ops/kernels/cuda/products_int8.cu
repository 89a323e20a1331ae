// SPDX-License-Identifier: Apache-2.0
// Products of codes with rows that are rounded to int8: the rounding, and which kernel follows.
#include <cmath>
#include <limits>

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/int8_parts.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kOwn = 4, kLanes = kRoundBlock / kOwn;  // elements of a lane, lanes of a block
constexpr int64_t kSmallRows = 64;

template <typename F>
__device__ float OverBlock(float value, const F& f) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value = f(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
  }
  return value;
}

// What nbits_int8.h says, operation by operation.
template <int kBits>
__global__ void __launch_bounds__(kThreads)
    RoundKernel(const float* x, int64_t m, int64_t k, int blocks, int8_t* to, float* units) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t index = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t row = index / blocks, block = index % blocks;
  float own[kOwn] = {}, largest = 0, all = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int64_t at = block * kRoundBlock + lane * kOwn + i;
    if (row < m && at < k) own[i] = x[row * k + at];
    largest = fmaxf(largest, fabsf(own[i]));
    all += fabsf(own[i]) * 0x1p-5f;  // the largest may drop a NaN
  }
  largest = OverBlock(largest, [](float a, float b) { return fmaxf(a, b); });
  all = OverBlock(all, [](float a, float b) { return a + b; });
  if (row >= m) return;
  const bool usual = all <= std::numeric_limits<float>::max();
  const float unit = __fdiv_rn(largest, 127.0f);
  // Units that are subnormal have no reciprocal.
  const bool divides = usual && unit >= std::numeric_limits<float>::min();
  const float factor = divides ? __fdiv_rn(127.0f, largest) : 0.0f;
  int8_t* place = to + index * kRoundBlock;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int whole = divides ? __float2int_rn(__fmul_rn(own[i], factor)) : 0;
    place[RoundedPlace(kBits, lane * kOwn + i)] = static_cast<int8_t>(whole);
  }
  if (lane != 0) return;
  units[index] = usual ? (divides ? unit : 0.0f) : std::numeric_limits<float>::quiet_NaN();
}

int64_t BlocksOf(const ProductParams& params) { return CeilDiv(params.k, kRoundBlock); }

// Bytes of x, to which the units are behind.
int64_t RoundedBytes(const ProductParams& params) {
  return params.m * BlocksOf(params) * kRoundBlock;
}

bool Suits(const ProductWeight& w) {
  return (w.bits == 4 || (w.bits == 8 && w.zero_codes == nullptr)) && w.zeros == nullptr &&
         w.block % kRoundBlock == 0 && IsAligned(w.data, 16) && IsAligned(w.scales, 4);
}

Int8Call::Weight WeightOf(const ProductWeight& w) {
  return {static_cast<const uint8_t*>(w.data), static_cast<const float*>(w.scales), w.zero_codes};
}

}  // namespace

bool SuitsInt8(const ProductParams& params) {
  constexpr int64_t kMost = int64_t{1} << 31;
  return params.rounds_x && params.weight.is_codes() && params.type == DataType::kFloat &&
         !params.x_turned && params.batch.empty() && params.k > 0 && Suits(params.weight) &&
         params.m * BlocksOf(params) < kMost && params.n <= 65535 * 64 &&
         (!params.gated() || Suits(params.up));
}

size_t Int8ScratchBytes(const ProductParams& params) {
  return static_cast<size_t>(RoundedBytes(params) +
                             params.m * BlocksOf(params) * static_cast<int64_t>(sizeof(float)));
}

Error LaunchRoundToInt8(const FloatRows& rows, int bits, int8_t* to, float* units, Stream stream) {
  const int64_t blocks = CeilDiv(rows.k, kRoundBlock);
  const LaunchShape shape{
      .grid = static_cast<unsigned>(CeilDiv(rows.m * blocks * kLanes, kThreads)),
      .block = kThreads};
  return Launch(bits == 4 ? RoundKernel<4> : RoundKernel<8>, shape, stream, rows.x, rows.m, rows.k,
                static_cast<int>(blocks), to, units);
}

Error LaunchInt8(const ProductParams& params, Stream stream) {
  Int8Call call{.m = params.m, .n = params.n, .blocks = static_cast<int>(BlocksOf(params))};
  const int bits = params.weight.bits;
  auto* x = static_cast<int8_t*>(params.scratch);
  auto* units = reinterpret_cast<float*>(x + RoundedBytes(params));
  call.x = x;
  call.units = units;
  call.constant_weights = params.constant_weights;
  call.weight = WeightOf(params.weight);
  call.up = WeightOf(params.up);
  call.scale_blocks = static_cast<int>(CeilDiv(params.k, params.weight.block));
  call.row_bytes = call.scale_blocks * params.weight.block * bits / 8;
  call.zero_row_bytes = static_cast<int>(CeilDiv(int64_t{call.scale_blocks} * bits, 8));
  while (kRoundBlock << call.scale_shift < params.weight.block) ++call.scale_shift;
  const Error error =
      LaunchRoundToInt8({.x = static_cast<const float*>(params.x), .m = params.m, .k = params.k},
                        bits, x, units, stream);
  if (error != 0) return error;
  return params.m <= kSmallRows ? LaunchInt8Small(call, params, stream)
                                : LaunchInt8Tiles(call, params, stream);
}

}  // namespace pagefuse::cuda
