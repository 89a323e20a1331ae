// SPDX-License-Identifier: Apache-2.0
// The decode kernel over TurboQuant slots of one format. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_slots.h"
#include "pagefuse/ops/kernels/cuda/shared_memory.h"

namespace pagefuse::cuda {

template <class Format>
__global__ void __launch_bounds__(slots::kThreads, 1)
    TurboQuantDecodeKernel(const __grid_constant__ PagedAttention p,
                           const __grid_constant__ DecodePlan plan, int32_t* starts_out) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) uint8_t decode_shared[];
  const uint32_t base = ptx::SharedAddress(decode_shared);
  const StageBarriers barriers = {base};
  const auto places = slots::StagePlaces::Of<Format>(base, plan);
  barriers.Init(plan.stages, plan.heads);
  FetchLists(p.batch, plan);
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const CtaPages pages = ListAllPages(p.batch, plan, decode_shared, starts_out);
  if (pages.count == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp < slots::kWarps) {
    ptx::MoveRegisters<true>();
    if constexpr (Format::kHasCentroids) {
      slots::FillTable<Format>(p.centroids.values(), places.table);  // while the first pages come
    }
    return slots::AttendPages<Format>(p, plan, pages, places, barriers);
  }
  ptx::MoveRegisters<false>();
  if (warp > slots::kWarps) return;
  LoadPages(p.batch, pages, plan.stages, barriers, [&](ListedPage page, int stage) {
    const uint32_t full = barriers.full(stage);
    ptx::ArriveAndExpect(full, plan.stage_bytes);
    ptx::CopyBulk(places.At(stage), p.keys.At(page.block, 0, 0).data, plan.stage_bytes, full);
  });
#endif
}

template <int key_bits, int value_bits>
Error LaunchDecodeSlots(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                        Stream stream) {
  const auto kernel = TurboQuantDecodeKernel<slots::SlotFormat<key_bits, value_bits>>;
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const Error error = cudaFuncSetAttribute(kernel, attribute, MostShared()); error != 0) {
    return error;
  }
  const LaunchShape shape = {dim3(static_cast<unsigned>(plan.ctas)), dim3(slots::kThreads),
                             static_cast<size_t>(plan.shared_bytes)};
  return Launch(kernel, shape, stream, p, plan, starts);
}

}  // namespace pagefuse::cuda
