// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_slots.h"

namespace pagefuse::cuda {
namespace {

using slots::kThreads;
using slots::kWarps;

__global__ void __launch_bounds__(kThreads, 1)
    TurboQuantDecodeKernel(const __grid_constant__ PagedAttention p,
                           const __grid_constant__ DecodePlan plan, int32_t* starts_out) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) uint8_t decode_shared[];
  const int sequences = static_cast<int>(p.batch.num_sequences);
  const uint32_t base = ptx::SharedAddress(decode_shared);
  const StageBarriers barriers = {base};
  const auto places = slots::StagePlaces::Of(base, sequences, plan.query_bytes, plan.stage_bytes);
  if (threadIdx.x == 0) barriers.Init(plan.stages, plan.heads);
  ptx::WaitForKernelBefore();
  ptx::LetNextKernelBegin();
  const SequenceTable table = SequenceTable::Of(decode_shared, sequences);
  CountPages(p.batch, table);
  if (blockIdx.x == 0) {
    for (int b = static_cast<int>(threadIdx.x); b <= sequences; b += kThreads) {
      starts_out[b] = table.starts[b];
    }
  }
  const PageSchedule schedule = {table.starts, sequences, plan.chunks, plan.ctas};
  if (schedule.total() == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp < kWarps) {
    ptx::MoveRegisters<true>();
    slots::FillTable(p.centroids.values(), places.table);  // while the first pages come
    return slots::AttendPages(p, plan, schedule, table.keys, places, barriers);
  }
  ptx::MoveRegisters<false>();
  if (warp > kWarps) return;
  LoadPages(p.batch, schedule, table.keys, plan.stages, barriers, [&](ListedPage page, int stage) {
    const uint32_t full = barriers.full(stage);
    ptx::ArriveAndExpect(full, plan.stage_bytes);
    ptx::CopyBulk(places.At(stage), p.keys.At(page.block, 0, 0).data, plan.stage_bytes, full);
  });
#endif
}

}  // namespace

Error LaunchDecodeTurboQuant(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                             Stream stream) {
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const Error error = cudaFuncSetAttribute(TurboQuantDecodeKernel, attribute, kDecodeShared);
      error != 0) {
    return error;
  }
  const LaunchShape shape = {dim3(static_cast<unsigned>(plan.ctas)), dim3(kThreads), kDecodeShared};
  return Launch(TurboQuantDecodeKernel, shape, stream, p, plan, starts);
}

}  // namespace pagefuse::cuda
