// SPDX-License-Identifier: Apache-2.0
// MergeAttnStates: threads side by side have a row of a token and head, in pieces of 16 bytes where rows lie so. Each computes the row's
// weights while its pieces are on their way.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "pagefuse/ops/kernels/cuda/convert.h"
#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/merge_attn_states.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/register_rows.h"
#include "pagefuse/ops/kernels/cuda/row_types.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kAtOnce = 2;  // pieces of each part that a thread has on their way

struct Weights {
  float prefix, suffix, lse;
};

// WeightsOf of attention/merge_attn_states.h.
__device__ Weights WeightsOf(const MergeAttnStates& p, int64_t token, int64_t head) {
  const int64_t at = head * p.tokens + token;
  const float suffix_lse = p.suffix_lse[at];
  if (token >= p.context_tokens) return {0, 1, suffix_lse};
  const float a = p.prefix_lse[at] == INFINITY ? -INFINITY : p.prefix_lse[at];
  const float b = suffix_lse == INFINITY ? -INFINITY : suffix_lse;
  const float max = a < b ? b : a;
  if (a == -INFINITY && b == -INFINITY) return {1, 0, -INFINITY};
  const float wa = expf(a - max);
  const float wb = expf(b - max);
  const float w = wa + wb;
  return {__fdiv_rn(wa, w), __fdiv_rn(wb, w), logf(w) + max};
}

// Most rows are few enough for a division of 32 bits, which takes a fraction of one of 64.
__device__ int64_t TokenOf(int64_t row, int64_t heads) {
  if ((row | heads) >> 32 != 0) return row / heads;
  return static_cast<uint32_t>(row) / static_cast<uint32_t>(heads);
}

// --- pieces: an element, or words of some ---

template <typename T>
inline constexpr int kWordNumbers = sizeof(uint32_t) / sizeof(T);

template <typename T, int kCount>
using Piece =
    std::conditional_t<kCount == 1, Vector<T, 1>, Vector<uint32_t, kCount / kWordNumbers<T>>>;

// The word of numbers. Their NaNs are computed.
template <typename T>
__device__ uint32_t PackWord(const float* x) {
  if constexpr (std::is_same_v<T, float>) {
    return __float_as_uint(x[0]);
  } else if constexpr (std::is_same_v<T, Bfloat16>) {
    return PackBfloats(x[0], x[1]);
  } else if constexpr (std::is_same_v<T, Float16>) {
    return PackHalves(x[0], x[1]);
  } else {
    return PackE4m3(x[0], x[1], x[2], x[3]);
  }
}

template <typename T, int kCount>
__device__ Vector<float, kCount> Widen(const Piece<T, kCount>& piece) {
  Vector<float, kCount> x;
  if constexpr (kCount == 1) {
    x.at[0] = static_cast<float>(piece.at[0]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount / kWordNumbers<T>; ++i) {
      WidenWord<T>(piece.at[i], x.at + i * kWordNumbers<T>);
    }
  }
  return x;
}

template <typename T, int kCount>
__device__ Piece<T, kCount> Narrow(const Vector<float, kCount>& x) {
  Piece<T, kCount> piece;
  if constexpr (kCount == 1) {
    piece.at[0] = T(x.at[0]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount / kWordNumbers<T>; ++i) {
      piece.at[i] = PackWord<T>(x.at + i * kWordNumbers<T>);
    }
  }
  return piece;
}

// --- rows ---

// Pieces of a row that a thread has at once: its own one and those so many threads behind.
template <typename From, int kCount>
struct Parts {
  Piece<From, kCount> prefix[kAtOnce], suffix[kAtOnce];

  __device__ Parts(const MergeAttnStates& p, int64_t row_begin, int piece, int pieces) {
    const auto* from_prefix = static_cast<const Piece<From, kCount>*>(p.prefix) + row_begin;
    const auto* from_suffix = static_cast<const Piece<From, kCount>*>(p.suffix) + row_begin;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k, piece += static_cast<int>(blockDim.x)) {
      if (piece >= pieces) break;
      prefix[k] = from_prefix[piece];
      suffix[k] = from_suffix[piece];
    }
  }
};

// `inverse`: of the scale, 1 where there is none.
template <typename From, typename To, int kCount>
__device__ Piece<To, kCount> Merged(const Piece<From, kCount>& prefix,
                                    const Piece<From, kCount>& suffix, const Weights& weights,
                                    float inverse) {
  const Vector<float, kCount> a = Widen<From, kCount>(prefix);
  const Vector<float, kCount> b = Widen<From, kCount>(suffix);
  Vector<float, kCount> merged;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    // A part without weight may hold anything, NaN included. -0 changes no sum.
    const float x = weights.prefix == 0 ? -0.0f : __fmul_rn(a.at[i], weights.prefix);
    const float y = weights.suffix == 0 ? -0.0f : __fmul_rn(b.at[i], weights.suffix);
    merged.at[i] = __fmul_rn(__fadd_rn(x, y), inverse);
  }
  return Narrow<To, kCount>(merged);
}

// A block takes blockDim.y rows of `pieces` each.
template <typename From, typename To, int kCount>
__global__ void __launch_bounds__(kThreads)
    MergeKernel(const __grid_constant__ MergeAttnStates p, int pieces) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= p.tokens * p.heads) return;
  const int64_t row_begin = row * pieces;
  int piece = static_cast<int>(threadIdx.x);
  Parts<From, kCount> parts(p, row_begin, piece, pieces);
  const float inverse = p.output_scale != nullptr ? __fdiv_rn(1.0f, *p.output_scale) : 1.0f;
  const int64_t token = TokenOf(row, p.heads);
  const int64_t head = row - token * p.heads;
  const Weights weights = WeightsOf(p, token, head);
  if (p.output_lse != nullptr && piece == 0) p.output_lse[head * p.tokens + token] = weights.lse;
  auto* output = static_cast<Piece<To, kCount>*>(p.output) + row_begin;
  while (true) {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k, piece += static_cast<int>(blockDim.x)) {
      if (piece >= pieces) return;
      output[piece] = Merged<From, To, kCount>(parts.prefix[k], parts.suffix[k], weights, inverse);
    }
    parts = Parts<From, kCount>(p, row_begin, piece, pieces);
  }
}

template <typename From, typename To, int kCount>
Error LaunchPieces(const MergeAttnStates& p, Stream stream) {
  const int64_t pieces = p.head_size / kCount;
  const int64_t row_threads = std::min<int64_t>(CeilDiv(pieces, kAtOnce), kThreads);
  const int64_t rows = kThreads / row_threads;
  const LaunchShape shape = {dim3(static_cast<unsigned>(CeilDiv(p.tokens * p.heads, rows))),
                             dim3(static_cast<unsigned>(row_threads), static_cast<unsigned>(rows))};
  return Launch(MergeKernel<From, To, kCount>, shape, stream, p, static_cast<int>(pieces));
}

// Whether rows of all three tensors lie in pieces of so many elements.
template <typename From, typename To>
bool ComesInPieces(const MergeAttnStates& p, int count) {
  const auto from_bytes = static_cast<int64_t>(count * sizeof(From));
  return p.head_size % count == 0 && IsAligned(p.prefix, from_bytes) &&
         IsAligned(p.suffix, from_bytes) &&
         IsAligned(p.output, static_cast<int64_t>(count * sizeof(To)));
}

template <typename From, typename To>
Error LaunchTo(const MergeAttnStates& p, Stream stream) {
  constexpr int kWide = 16 / sizeof(From);
  if (ComesInPieces<From, To>(p, kWide)) return LaunchPieces<From, To, kWide>(p, stream);
  if (ComesInPieces<From, To>(p, 4)) return LaunchPieces<From, To, 4>(p, stream);
  return LaunchPieces<From, To, 1>(p, stream);
}

template <typename T>
Error LaunchFrom(const MergeAttnStates& p, Stream stream) {
  return p.output_scale != nullptr ? LaunchTo<T, Float8E4M3FN>(p, stream)
                                   : LaunchTo<T, T>(p, stream);
}

}  // namespace

Error LaunchMergeAttnStates(const MergeAttnStates& p, Stream stream) {
  if (p.tokens * p.heads * p.head_size == 0) return 0;
  return ForRowType(p.type, [&]<typename T>() { return LaunchFrom<T>(p, stream); });
}

}  // namespace pagefuse::cuda
