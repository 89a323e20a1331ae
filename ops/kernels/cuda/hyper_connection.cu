// SPDX-License-Identifier: Apache-2.0
// HyperConnectionMix: of few streams every element of a token's matrix has a lane of its own, of many every line has a thread. Sums are made in
// the order of the elements, as the host makes them.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/hyper_connection.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {
namespace {

constexpr int kFewStreams = 5;  // whose matrices fit a warp
constexpr int kWarps = 4;       // of a block

// Logit i of a token, scaled and moved.
struct Move {
  float scale, base;

  __device__ Move(const HyperConnectionParams& p, int i, int part)
      : scale(p.scale[part]), base(p.base[i]) {}
  __device__ float operator()(float logit) const {
    return __fadd_rn(__fmul_rn(logit, scale), base);
  }
};
__device__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// pre and post of stream i, whose logits are moved.
__device__ void WriteGates(const HyperConnectionParams& p, int64_t token, int i, float pre,
                           float post) {
  p.pre[token * p.streams + i] = __fadd_rn(Sigmoid(pre), p.epsilon);
  p.post[token * p.streams + i] = __fmul_rn(Sigmoid(post), p.post_factor);
}

// --- few streams ---

// f over the values of kStreams lanes from `first` on, `step` apart, in order.
template <int kStreams, typename F>
__device__ float OverLine(float value, int first, int step, const F& f) {
  float result = __shfl_sync(kAllLanes, value, first);
#pragma unroll
  for (int i = 1; i < kStreams; ++i) {
    result = f(result, __shfl_sync(kAllLanes, value, first + i * step));
  }
  return result;
}

template <int kStreams>
__global__ void __launch_bounds__(kWarps* kWarp)
    FewStreamsKernel(const __grid_constant__ HyperConnectionParams p) {
  constexpr int kCells = kStreams * kStreams, kTokens = kWarp / kCells;  // of a warp
  ptx::LetNextKernelBegin();
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = LaneId();
  const int own = min(lane / kCells, kTokens - 1), cell = lane % kCells;
  const int64_t token = (int64_t{blockIdx.x} * kWarps + warp) * kTokens + own;
  const bool there = token < p.tokens && lane < kTokens * kCells;
  const float* logits = p.logits + (there ? token : 0) * (2 + kStreams) * kStreams;
  if (!p.constant_weights) ptx::WaitForKernelBefore();
  const int stream = cell % kStreams;
  const Move pre(p, stream, 0), post(p, kStreams + stream, 1), comb(p, 2 * kStreams + cell, 2);
  if (p.constant_weights) ptx::WaitForKernelBefore();
  const float pre_logit = logits[stream], post_logit = logits[kStreams + stream];
  float value = comb(logits[2 * kStreams + cell]);
  if (there && cell < kStreams) WriteGates(p, token, stream, pre(pre_logit), post(post_logit));
  // Lanes of this one's row, and of its column.
  const int row = own * kCells + cell / kStreams * kStreams,
            column = own * kCells + cell % kStreams;
  const auto add = [](float a, float b) { return __fadd_rn(a, b); };
  const auto divide = [&](float value, int first, int step) {
    return value / __fadd_rn(OverLine<kStreams>(value, first, step, add), p.epsilon);
  };
  value =
      expf(value - OverLine<kStreams>(value, row, 1, [](float a, float b) { return max(a, b); }));
  value = __fadd_rn(value / OverLine<kStreams>(value, row, 1, add), p.epsilon);
  value = divide(value, column, kStreams);
  for (int round = 1; round < p.rounds; ++round) {
    value = divide(value, row, 1);
    value = divide(value, column, kStreams);
  }
  if (there) p.comb[token * kCells + cell] = value;
}

template <int kStreams>
Error LaunchFewStreams(const HyperConnectionParams& params, Stream stream) {
  if (params.streams < kStreams) return LaunchFewStreams<kStreams - 1>(params, stream);
  constexpr int kTokens = kWarp / (kStreams * kStreams) * kWarps;
  const LaunchShape shape{.grid = static_cast<unsigned>(CeilDiv(params.tokens, kTokens)),
                          .block = kWarps * kWarp};
  return Launch(FewStreamsKernel<kStreams>, shape, stream, params);
}
template <>
Error LaunchFewStreams<0>(const HyperConnectionParams&, Stream) {
  return kTooLarge;
}

// --- many streams: a block makes a token's matrix where it is to lie ---

// The lines of a matrix, `step` apart, whose elements are `stride` apart: each thread takes some.
template <typename F>
__device__ void ForOwnLines(int lines, float* matrix, int step, const F& change) {
  for (int i = static_cast<int>(threadIdx.x); i < lines; i += static_cast<int>(blockDim.x)) {
    change(matrix + static_cast<int64_t>(i) * step);
  }
  __syncthreads();
}

__device__ void SoftmaxLine(float* line, int size, float epsilon) {
  float largest = line[0], sum = 0;
  for (int i = 1; i < size; ++i) largest = max(largest, line[i]);
  for (int i = 0; i < size; ++i) sum = __fadd_rn(sum, line[i] = expf(line[i] - largest));
  for (int i = 0; i < size; ++i) line[i] = __fadd_rn(line[i] / sum, epsilon);
}

__device__ void DivideLine(float* line, int size, int64_t stride, float epsilon) {
  float sum = 0;
  for (int i = 0; i < size; ++i) sum = __fadd_rn(sum, line[i * stride]);
  sum = __fadd_rn(sum, epsilon);
  for (int i = 0; i < size; ++i) line[i * stride] /= sum;
}

__global__ void ManyStreamsKernel(const __grid_constant__ HyperConnectionParams p) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int m = p.streams;
  const int64_t token = blockIdx.x;
  const float* logits = p.logits + token * (2 + m) * m;
  float* matrix = p.comb + token * m * m;
  const int threads = static_cast<int>(blockDim.x);
  for (int i = static_cast<int>(threadIdx.x); i < m; i += threads) {
    WriteGates(p, token, i, Move(p, i, 0)(logits[i]), Move(p, m + i, 1)(logits[m + i]));
  }
  for (int i = static_cast<int>(threadIdx.x); i < m * m; i += threads) {
    matrix[i] = Move(p, 2 * m + i, 2)(logits[2 * m + i]);
  }
  __syncthreads();
  const auto rows = [&](float* line) { DivideLine(line, m, 1, p.epsilon); };
  const auto columns = [&](float* line) { DivideLine(line, m, m, p.epsilon); };
  ForOwnLines(m, matrix, m, [&](float* line) { SoftmaxLine(line, m, p.epsilon); });
  ForOwnLines(m, matrix, 1, columns);
  for (int round = 1; round < p.rounds; ++round) {
    ForOwnLines(m, matrix, m, rows);
    ForOwnLines(m, matrix, 1, columns);
  }
}

}  // namespace

Error LaunchHyperConnection(const HyperConnectionParams& params, Stream stream) {
  if (params.tokens == 0) return 0;
  if (params.tokens > INT32_MAX) return kTooLarge;
  if (params.streams <= kFewStreams) return LaunchFewStreams<kFewStreams>(params, stream);
  const int64_t threads = std::min<int64_t>(CeilDiv(params.streams, kWarp) * kWarp, 1024);
  return Launch(
      ManyStreamsKernel,
      {.grid = static_cast<unsigned>(params.tokens), .block = static_cast<unsigned>(threads)},
      stream, params);
}

}  // namespace pagefuse::cuda
