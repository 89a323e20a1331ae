// SPDX-License-Identifier: Apache-2.0
// Decode over rows of floats, of 16-bit numbers or of codes of a byte: a warp computes one KV head of a page with all its query heads. Device code: for
// .cu files.
#pragma once

#include <cuda.h>

#include "pagefuse/ops/kernels/cuda/cluster.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_fragments.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_map.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_results.h"
#include "pagefuse/ops/kernels/cuda/shared_memory.h"

namespace pagefuse::cuda {

// Factors of a call: of scores, and of values where the whole tensor has one.
struct DecodeFactors {
  float score, value, softcap;

  template <class Traits>
  __device__ static DecodeFactors Of(const PagedAttention& p) {
    DecodeFactors factors = {p.batch.scale, 1, p.batch.rules.softcap};
    if (Traits::kFormat == DecodeFormat::kE4M3 && p.mode == KvQuantMode::kFp8PerTensor) {
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
  constexpr float kLeastScale = 0x1p-60f;
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
      scales[half] = ScaleOfValue(ptx::LoadShared<float>(page.value_scales + at), kLeastScale);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      scores[half][j] *= row_scales ? key_scale * query.factors[j] : query.factors[j];
    }
  }
  if (factors.softcap > 0) CapInLog2(scores, factors.softcap);
  if (!mask.all()) HideKeys<Traits>(page, mask, scores, scales);
  float weights[2][2], weighed[2][2], keep[2];
  if (softmax.Weigh(scores, scales, weights, weighed, keep)) output.Scale(keep);
  output.AddPage(page, WeightFragments<Traits>::Of(weighed));
}

// What a warp of the CTA computes: one head of the pages of its phase.
template <class Traits>
__device__ void AttendPages(const PagedAttention& p, const DecodePlan& plan, const CtaPages& pages,
                            uint32_t shared, const CtaResults& results, StageBarriers barriers) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int head = warp & (plan.heads - 1), phase = warp >> plan.heads_log2;
  const PageLayout layout = {Traits::kBytes, Traits::kHeadSize, plan.heads};
  const DecodeFactors factors = DecodeFactors::Of<Traits>(p);
  StageReader reader = {barriers, plan.stages, plan.phases, phase};
  int next = phase;
#pragma unroll 1
  for (int begin = 0; begin < pages.count;) {
    const Piece piece = PieceAt(pages, begin);
    const int kv_head = piece.chunk * plan.heads + head;
    const int g = LaneId() / 4;
    QueryFragments<Traits> query;
    query.shared = shared + plan.queries_at +
                   (warp * Traits::kSteps * kWarp + LaneId()) * Traits::kSharedPartBytes;
    const int row = FirstRow(p.batch, piece.b) + kv_head * plan.group + g;
    query.Load(p, g < plan.group ? row : -1);
    for (float& factor : query.factors) factor *= factors.score * kLog2E;
    DecodeSoftmax softmax;
    OutputFragments<Traits> output;
    output.Clear();
#pragma unroll 1
    for (; next < piece.end; next += plan.phases) {
      reader.Wait();
      StagedPage page = {};
      const uint32_t base = shared + plan.stages_at + reader.stage * plan.stage_bytes;
      page.keys = base + head * layout.head_bytes();
      page.values = page.keys + layout.bytes();
      page.span_bytes = layout.span_bytes();
      if (Traits::kIsCoded && p.keys.scales != nullptr) {
        page.scale_row_bytes = 4 * static_cast<uint32_t>(p.batch.num_kv_heads);
        page.key_scales = base + 2 * layout.bytes() + 4 * kv_head;
        page.value_scales = page.key_scales + kPageTokens * page.scale_row_bytes;
      }
      AttendPage<Traits>(query, page, PageMask::Of(piece, next), factors, softmax, output);
      reader.Release();
    }
    softmax.Join();
    LeaveResult<Traits::kWarps, Traits::kHeadSize>(
        p, plan, results, piece, begin, softmax,
        [&](float* to) { output.Store(to, plan.group, factors.value); });
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
  const uint32_t base = ptx::SharedAddress(decode_shared);
  const StageBarriers barriers = {base};
  const auto results =
      CtaResults::Of(decode_shared + plan.results_at, Traits::kWarps, Traits::kHeadSize, plan);
  barriers.Init(plan.stages, plan.heads);
  if (plan.cluster > 0) MeetCluster<Traits::kHeadSize>(plan, base + kReceivedBarrier);
  if (threadIdx.x == 0) ptx::FetchTensorMap(&keys), ptx::FetchTensorMap(&values);
  FetchLists(p.batch, plan);
  __syncthreads();
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const CtaPages pages = plan.cluster > 0 ? ListOwnPages(p.batch, plan)
                                          : ListAllPages(p.batch, plan, decode_shared, starts_out);
  if (static_cast<int>(threadIdx.x) < Traits::kWarps * kWarp) {
    AttendPages<Traits>(p, plan, pages, base, results, barriers);
    if (plan.cluster > 0) {
      JoinCluster<Traits::kWarps, Traits::kHeadSize>(p, plan, pages, results,
                                                     base + kReceivedBarrier);
    }
    return;
  }
  const uint32_t stages = base + plan.stages_at;
  const PageLayout layout = {Traits::kBytes, Traits::kHeadSize, plan.heads};
  const int scale_bytes = !Traits::kIsCoded || p.keys.scales == nullptr
                              ? 0
                              : 4 * kPageTokens * static_cast<int>(p.batch.num_kv_heads);
  LoadPages(p.batch, pages, plan.stages, barriers, [&](ListedPage page, int stage) {
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
  if (const Error error = cudaFuncSetAttribute(kernel, attribute, MostShared()); error != 0) {
    return error;
  }
  const auto ctas = static_cast<unsigned>(plan.ctas);
  const auto cluster = static_cast<unsigned>(plan.cluster);
  const dim3 grid = cluster == 0 ? dim3(ctas)
                                 : dim3(cluster, static_cast<unsigned>(p.batch.num_sequences),
                                        static_cast<unsigned>(plan.chunks));
  const LaunchShape shape = {grid, dim3(Traits::kThreads), static_cast<size_t>(plan.shared_bytes)};
  return LaunchClusters(kernel, shape, std::max(plan.cluster, 1), stream, p, plan, keys, values,
                        starts);
}

// The kernel for a format, by the size of heads.
template <DecodeFormat format, bool exact>
Error LaunchDecodeFor(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                      Stream stream) {
  switch (p.batch.head_size) {
    case 64:
      if constexpr (DecodeTraits<format, 64, exact>::kBytes > 1) {
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
