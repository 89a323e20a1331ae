// SPDX-License-Identifier: Apache-2.0
// MergeAttnStates: a thread four elements of a row, or one where rows do not come in fours.
#include <cmath>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/merge_attn_states.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/row_types.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse::cuda {
namespace {

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

template <typename T, int count>
struct alignas(count * sizeof(T)) Elements {
  T at[count];
};

template <typename From, typename To, int count>
__global__ void MergeKernel(const __grid_constant__ MergeAttnStates p, int64_t pieces) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t piece = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (piece >= pieces) return;
  const int64_t row = piece * count / p.head_size;
  const int64_t token = row / p.heads;
  const int64_t head = row % p.heads;
  const Weights weights = WeightsOf(p, token, head);
  if (p.output_lse != nullptr && piece * count % p.head_size == 0) {
    p.output_lse[head * p.tokens + token] = weights.lse;
  }
  const float inverse = p.output_scale != nullptr ? __fdiv_rn(1.0f, *p.output_scale) : 1.0f;
  const auto a = static_cast<const Elements<From, count>*>(p.prefix)[piece];
  const auto b = static_cast<const Elements<From, count>*>(p.suffix)[piece];
  Elements<To, count> out;
  for (int i = 0; i < count; ++i) {
    // A part without weight may hold anything, NaN included. -0 changes no sum.
    const float x =
        weights.prefix == 0 ? -0.0f : __fmul_rn(static_cast<float>(a.at[i]), weights.prefix);
    const float y =
        weights.suffix == 0 ? -0.0f : __fmul_rn(static_cast<float>(b.at[i]), weights.suffix);
    out.at[i] = To(__fmul_rn(__fadd_rn(x, y), inverse));
  }
  static_cast<Elements<To, count>*>(p.output)[piece] = out;
}

template <typename From, typename To>
Error LaunchTo(const MergeAttnStates& p, Stream stream) {
  constexpr int kThreads = 256;
  const int64_t elements = p.tokens * p.heads * p.head_size;
  const bool fours = p.head_size % 4 == 0;
  const int64_t pieces = fours ? elements / 4 : elements;
  const auto ctas = static_cast<unsigned>((pieces + kThreads - 1) / kThreads);
  const LaunchShape shape = {dim3(ctas), dim3(kThreads)};
  return fours ? Launch(MergeKernel<From, To, 4>, shape, stream, p, pieces)
               : Launch(MergeKernel<From, To, 1>, shape, stream, p, pieces);
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
