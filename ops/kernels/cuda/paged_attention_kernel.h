// SPDX-License-Identifier: Apache-2.0
// The plain attention kernel and its launch, for .cu files with some of its instances.
#pragma once

#include "pagefuse/ops/kernels/cuda/attention_sums.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/shared_memory.h"

namespace pagefuse::cuda {

// A row's result, o[0, D) and sums, to the outputs or to the partial results; rows as FinishRow takes them.
template <typename Row>
__device__ void StoreRowResult(const PagedAttention& p, int splits, Row row, RowSums sums,
                               float* o) {
  const int n = static_cast<int>(p.batch.head_size);
  if (splits == 1) return FinishRow(p, row, sums, o);
  const int64_t at = blockIdx.z * p.batch.num_tokens * p.batch.num_heads + row;
  if (LaneId() == 0) {
    p.partial_sums[2 * at] = sums.max;
    p.partial_sums[2 * at + 1] = sums.sum;
  }
  if (sums.sum == 0) return;
  for (int d = LaneId(); d < n; d += kWarp) p.partial_values[at * n + d] = o[d];
}

template <int chunks>
__global__ void __launch_bounds__(tiles::kMostWarps* kWarp)
    PagedAttentionKernel(const __grid_constant__ PagedAttention p, const AttentionCut cut,
                         const tiles::TileShape shape) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  tiles::Task task;
  if (!tiles::FindTask(p, cut, blockIdx.x, task)) return;
  const int n = static_cast<int>(p.batch.head_size);
  const tiles::SharedTile shared = tiles::PlaceShared(shape);
  tiles::LoadRows(p, task, shared);
  tiles::Accumulators<chunks> sums;
  sums.Clear();
  const KeyInterval keys = tiles::KeysOf(p, task, cut.splits);
  if (!keys.empty()) tiles::AttendTiles(p, shape, task, keys, shared, sums);
  // The tile's memory is free, whatever warps have in it.
  const int first = static_cast<int>(threadIdx.x) / kWarp * tiles::kRows;
  auto* row_sums = reinterpret_cast<RowSums*>(shared.weights) + first;
#pragma unroll
  for (int i = 0; i < tiles::kRows; ++i) {
    sums.Store(i, n, shared.tile + (first + i) * tiles::TileStride(n));
    if (LaneId() == 0) row_sums[i] = sums.sums[i];
  }
  __syncwarp();
#pragma unroll 1
  for (int i = 0; i < tiles::kRows; ++i) {
    const int64_t row = shared.rows[first + i].output;
    if (row < 0) continue;
    StoreRowResult(p, cut.splits, row, row_sums[i],
                   shared.tile + (first + i) * tiles::TileStride(n));
  }
}

template <int chunks>
Error LaunchChunks(const PagedAttention& p, const AttentionCut& cut, Stream stream) {
  const int most = MostShared();
  const auto shape = tiles::TileShape::Within(most, p, cut.warps, tiles::kLeastCopies<chunks>);
  const auto kernel = PagedAttentionKernel<chunks>;
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const Error error = cudaFuncSetAttribute(kernel, attribute, most); error != 0) return error;
  const dim3 grid(static_cast<unsigned>(cut.tiles),
                  static_cast<unsigned>(p.batch.num_kv_heads * cut.parts),
                  static_cast<unsigned>(cut.splits));
  const LaunchShape launch = {grid, dim3(cut.warps * kWarp), static_cast<size_t>(shape.bytes())};
  return Launch(kernel, launch, stream, p, cut, shape);
}

}  // namespace pagefuse::cuda
