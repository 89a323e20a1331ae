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

// One page: scores, weights, values. kPlain: all its keys are seen, and scores have no cap.
template <class Traits, bool kPlain>
__device__ void AttendPage(const QueryFragments<Traits>& query, const StagedPage& page,
                           PageMask mask, const DecodeFactors& factors, DecodeSoftmax& softmax,
                           OutputFragments<Traits>& output) {
  constexpr float kLeastScale = 0x1p-60f;  // a scale may be 0
  const int g = LaneId() / 4;
  float scores[2][2];
  Scores(query, page, scores);
  const bool row_scales = Traits::kFormat == DecodeFormat::kInt8 ||
                          (Traits::kFormat == DecodeFormat::kE4M3 && page.key_scales != 0);
  float scales[2] = {1, 1};  // of values
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float key_scale = 1;
    if (row_scales) {
      const uint32_t at = (half * 8 + g) * page.scale_row_bytes;
      key_scale = ptx::LoadShared<float>(page.key_scales + at);
      scales[half] = fmaxf(ptx::LoadShared<float>(page.value_scales + at), kLeastScale);
    }
    const bool seen = kPlain || mask.Has(half * 8 + g);
    if (!seen) scales[half] = 1;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      scores[half][j] *= row_scales ? key_scale * query.factors[j] : query.factors[j];
      if constexpr (!kPlain) {
        scores[half][j] = seen ? CapInLog2(scores[half][j], factors.softcap) : -INFINITY;
      }
    }
  }
  float weights[2][2], weighed[2][2], keep[2];
  if (softmax.Weigh(scores, scales, weights, weighed, keep)) output.Scale(keep);
  uint32_t pairs[2], rest[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float* w = weighed[half];
    const uint32_t pair = PackPair<Traits>(w[0], w[1]);
    pairs[half] = ptx::Transpose(pair);
    if constexpr (Traits::kExact) {
      TakePair<Traits>(pair, w[0], w[1]);
      rest[half] = ptx::Transpose(PackPair<Traits>(w[0], w[1]));
    }
  }
  output.template AddPage<kPlain>(page, mask, pairs, rest);
}

// What a warp of the CTA computes: one head of the pages of its phase.
template <class Traits>
__device__ void AttendPages(const PagedAttention& p, const DecodePlan& plan,
                            const PageSchedule& schedule, const KeySpan* keys, uint32_t queries,
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
    const Piece piece = PieceAt(schedule, keys, begin);
    const int kv_head = piece.chunk * plan.heads + head;
    const int g = LaneId() / 4;
    QueryFragments<Traits> query;
    query.third = queries + (warp * Traits::kSteps * kWarp + LaneId()) * kThirdPartBytes;
    const int64_t row = p.batch.first_token(piece.b) * p.batch.num_heads + kv_head * group + g;
    query.Load(p, g < group ? row : -1);
    for (float& factor : query.factors) factor *= factors.score * kLog2E;
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
      if (factors.softcap <= 0 && mask.all()) {
        AttendPage<Traits, true>(query, page, mask, factors, softmax, output);
      } else {
        AttendPage<Traits, false>(query, page, mask, factors, softmax, output);
      }
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
  const SequenceTable table = SequenceTable::Of(decode_shared, sequences);
  CountPages(p.batch, table);
  if (blockIdx.x == 0) {
    for (int b = static_cast<int>(threadIdx.x); b <= sequences; b += Traits::kThreads) {
      starts_out[b] = table.starts[b];
    }
  }
  const PageSchedule schedule = {table.starts, sequences, plan.chunks, plan.ctas};
  if (schedule.total() == 0) return;
  const uint32_t queries = base + DecodeHeaderBytes(sequences);
  const uint32_t stages = queries + plan.query_bytes;
  if (static_cast<int>(threadIdx.x) < Traits::kWarps * kWarp) {
    if constexpr (Traits::kWarps == 16) ptx::MoveRegisters<true>();
    AttendPages<Traits>(p, plan, schedule, table.keys, queries, barriers);
    return;
  }
  if constexpr (Traits::kWarps == 16) ptx::MoveRegisters<false>();
  if (static_cast<int>(threadIdx.x) >= (Traits::kWarps + 1) * kWarp) return;
  const PageLayout layout = {Traits::kBytes, Traits::kHeadSize, plan.heads};
  const int scale_bytes =
      p.keys.scales == nullptr ? 0 : 4 * kPageTokens * static_cast<int>(p.batch.num_kv_heads);
  LoadPages(p.batch, schedule, table.keys, plan.stages, barriers, [&](ListedPage page, int stage) {
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
