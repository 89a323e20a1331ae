// SPDX-License-Identifier: Apache-2.0
// Decode over rows of 16-bit numbers or of codes of a byte: a warp computes one KV head of a page with all its query heads. Device code: for
// .cu files.
#pragma once

#include <cuda.h>

#include "pagefuse/ops/kernels/cuda/paged_decode_fragments.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_map.h"

namespace pagefuse::cuda {

// Factors of a call: of scores, and of values where the whole tensor has one.
struct DecodeFactors {
  float score, value, softcap;

  __device__ static DecodeFactors Of(const PagedAttention& p) {
    DecodeFactors factors = {p.batch.scale, 1, p.batch.rules.softcap};
    if (p.mode == KvQuantMode::kFp8PerTensor) {
      factors.score *= *p.k_scale;
      factors.value = *p.v_scale;
    }
    return factors;
  }
};

// One page: scores, weights, values.
template <class Traits>
__device__ void AttendPage(const QueryFragments<Traits>& query, const StagedPage& page,
                           PageMask mask, const DecodeFactors& factors, DecodeSoftmax& softmax,
                           OutputFragments<Traits>& output) {
  const int t = LaneId() % 4;
  float dots[2][2];
  Scores(query, page, dots);
  const bool row_scales = Traits::kIsCoded && page.key_scales != 0;
  float scores[2][2], weighed[2][2];  // without and with the value's scale
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int key = half * 8 + 2 * t + j;
      float factor = factors.score * query.factor;
      if (row_scales) {
        factor *= ptx::LoadShared<float>(page.key_scales + key * page.scale_row_bytes);
      }
      scores[half][j] = ScoreInLog2(dots[half][j], factor, factors.softcap);
      weighed[half][j] = scores[half][j];
      if (row_scales) {
        weighed[half][j] +=
            ptx::Log2(ptx::LoadShared<float>(page.value_scales + key * page.scale_row_bytes));
      }
      if (!mask.all() && !mask.Has(key)) scores[half][j] = weighed[half][j] = -INFINITY;
    }
  }
  float keep;
  if (softmax.Raise(weighed, keep)) {
    float of_columns[2];
    OfColumns(keep, of_columns);
    output.Scale(of_columns);
  }
  uint32_t weights[2], rest[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float w[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      w[j] = ptx::Exp2(weighed[half][j] - softmax.reference);
      softmax.sum += row_scales ? ptx::Exp2(scores[half][j] - softmax.reference) : w[j];
    }
    weights[half] = PackPair<Traits>(w[0], w[1]);
    if constexpr (Traits::kExact) {
      TakePair<Traits>(weights[half], w[0], w[1]);
      rest[half] = PackPair<Traits>(w[0], w[1]);
    }
  }
  output.AddPage(page, mask, weights, rest);
}

// What a warp of the CTA computes: one head of the pages of its phase.
template <class Traits>
__device__ void AttendPages(const PagedAttention& p, const DecodePlan& plan,
                            const PageSchedule& schedule, uint32_t queries,
                            StageBarriers barriers) {
  const uint32_t stages = queries + plan.query_bytes;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int head = warp % plan.heads, phase = warp / plan.heads;
  const int group = static_cast<int>(p.batch.group());
  const auto kv_heads = static_cast<uint32_t>(p.batch.num_kv_heads);
  const PageLayout layout = {Traits::kBytes, Traits::kHeadSize, plan.heads};
  const int cta = static_cast<int>(blockIdx.x);
  const int count = schedule.First(cta + 1) - schedule.First(cta);
  const DecodeFactors factors = DecodeFactors::Of(p);
  StageReader reader = {barriers, plan.stages, plan.phases, phase};
  int next = phase;
  for (int begin = 0; begin < count;) {
    const Piece piece = PieceAt(p.batch, schedule, begin);
    const int kv_head = piece.chunk * plan.heads + head;
    const int g = LaneId() / 4;
    QueryFragments<Traits> query;
    query.third = queries + (warp * Traits::kSteps * kWarp + LaneId()) * kThirdPartBytes;
    const int64_t row = p.batch.first_token(piece.b) * p.batch.num_heads + kv_head * group + g;
    query.Load(p, g < group ? row : -1);
    DecodeSoftmax softmax;
    OutputFragments<Traits> output;
    output.Clear();
    for (; next < piece.end; next += plan.phases) {
      reader.Wait();
      StagedPage page;
      const uint32_t base = stages + reader.stage * plan.stage_bytes;
      page.keys = base + head * layout.head_bytes();
      page.values = page.keys + layout.bytes();
      page.span_bytes = layout.span_bytes();
      page.scale_row_bytes = 4 * kv_heads;
      page.key_scales = p.keys.scales == nullptr ? 0 : base + 2 * layout.bytes() + 4 * kv_head;
      page.value_scales = page.key_scales + kPageTokens * page.scale_row_bytes;
      const PageMask mask = PageMask::Of(piece, next);
      AttendPage(query, page, mask, factors, softmax, output);
      reader.Release();
    }
    softmax.Join();
    const PartialResult to = PartialOf(p, plan, schedule.SlotOf(piece.owner, cta), warp);
    StoreSums(to, softmax, group);
    output.Store(to.values, group, factors.value);
    begin = piece.end;
  }
}

template <class Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1)
    PagedDecodeKernel(const __grid_constant__ PagedAttention p,
                      const __grid_constant__ DecodePlan plan,
                      const __grid_constant__ CUtensorMap keys,
                      const __grid_constant__ CUtensorMap values, int32_t* starts_out) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) uint8_t decode_shared[];
  ptx::WaitForKernelBefore();
  ptx::LetNextKernelBegin();
  const int sequences = static_cast<int>(p.batch.num_sequences);
  const uint32_t base = ptx::SharedAddress(decode_shared);
  const StageBarriers barriers = {base};
  if (threadIdx.x == 0) barriers.Init(plan.stages, plan.heads);
  auto* starts = reinterpret_cast<int32_t*>(decode_shared + kStartsOffset);
  CountPages(p.batch, starts);
  if (blockIdx.x == 0) {
    for (int b = static_cast<int>(threadIdx.x); b <= sequences; b += Traits::kThreads) {
      starts_out[b] = starts[b];
    }
  }
  const PageSchedule schedule = {starts, sequences, plan.chunks, plan.ctas};
  if (schedule.total() == 0) return;
  const uint32_t queries = base + DecodeHeaderBytes(sequences);
  const uint32_t stages = queries + plan.query_bytes;
  if (static_cast<int>(threadIdx.x) < Traits::kWarps * kWarp) {
    AttendPages<Traits>(p, plan, schedule, queries, barriers);
    return;
  }
  const PageLayout layout = {Traits::kBytes, Traits::kHeadSize, plan.heads};
  const int scale_bytes =
      p.keys.scales == nullptr ? 0 : 4 * kPageTokens * static_cast<int>(p.batch.num_kv_heads);
  LoadPages(p.batch, schedule, plan.stages, barriers, [&](ListedPage page, int stage) {
    const uint32_t to = stages + stage * plan.stage_bytes;
    const uint32_t full = barriers.full(stage);
    ptx::ArriveAndExpect(full, 2 * (layout.bytes() + scale_bytes));
    ptx::CopyPage(to, &keys, page.chunk * plan.heads, page.block, full);
    ptx::CopyPage(to + layout.bytes(), &values, page.chunk * plan.heads, page.block, full);
    if (scale_bytes == 0) return;
    const uint32_t scales = to + 2 * layout.bytes();
    ptx::CopyBulk(scales, p.keys.At(page.block, 0, 0).scale, scale_bytes, full);
    ptx::CopyBulk(scales + scale_bytes, p.values.At(page.block, 0, 0).scale, scale_bytes, full);
  });
#endif
}

template <class Traits>
Error LaunchDecodeOf(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                     Stream stream) {
  const PageLayout layout = {Traits::kBytes, Traits::kHeadSize, plan.heads};
  CUtensorMap keys, values;
  if (!DescribePages(p.keys, layout, p.batch.num_kv_heads, keys) ||
      !DescribePages(p.values, layout, p.batch.num_kv_heads, values)) {
    return cudaErrorNotSupported;
  }
  const auto kernel = PagedDecodeKernel<Traits>;
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const Error error = cudaFuncSetAttribute(kernel, attribute, kDecodeShared); error != 0) {
    return error;
  }
  const LaunchShape shape = {dim3(static_cast<unsigned>(plan.ctas)), dim3(Traits::kThreads),
                             kDecodeShared};
  return Launch(kernel, shape, stream, p, plan, keys, values, starts);
}

// The kernel for a format, by the size of heads.
template <DecodeFormat format, bool exact>
Error LaunchDecodeFor(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                      Stream stream) {
  switch (p.batch.head_size) {
    case 64:
      if constexpr (format == DecodeFormat::kBfloat16 || format == DecodeFormat::kFloat16) {
        return LaunchDecodeOf<DecodeTraits<format, 64, exact>>(p, plan, starts, stream);
      }
      return cudaErrorNotSupported;
    case 128:
      return LaunchDecodeOf<DecodeTraits<format, 128, exact>>(p, plan, starts, stream);
    case 256:
      return LaunchDecodeOf<DecodeTraits<format, 256, exact>>(p, plan, starts, stream);
    default:
      return cudaErrorNotSupported;
  }
}

}  // namespace pagefuse::cuda
