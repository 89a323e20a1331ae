// SPDX-License-Identifier: Apache-2.0
// What inserts into paged caches share: which tokens are written, and the launch of a warp a row. Device code: for .cu files.
#pragma once

#include <algorithm>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/row_codec.h"

namespace pagefuse::cuda {

// Rows of one token: a CTA of `warps` takes as many, blockIdx.x is the token.
inline LaunchShape InsertGridFor(int64_t tokens, int rows, int longest_row) {
  constexpr int kSharedBytes = 48 << 10;
  const int row_bytes = (longest_row + 3) / 4 * 16;
  const int warps = std::clamp(kSharedBytes / row_bytes, 1, 8);
  const int parts = (rows + warps - 1) / warps;
  return {dim3(static_cast<unsigned>(tokens), static_cast<unsigned>(parts)),
          dim3(static_cast<unsigned>(warps * kWarp)), static_cast<size_t>(warps) * row_bytes};
}

// This warp's row of the token, and its floats in shared memory.
__device__ inline int RowOfWarp() {
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  return static_cast<int>(blockIdx.y) * warps + static_cast<int>(threadIdx.x) / kWarp;
}
__device__ inline float* FloatsOfWarp(int longest_row) {
  extern __shared__ float4 insert_rows[];
  const int fours = (longest_row + 3) / 4;
  return reinterpret_cast<float*>(insert_rows + static_cast<int>(threadIdx.x) / kWarp * fours);
}

// The slot to write for a token, or -1; the same for all threads of the CTA.
__device__ inline int64_t SlotToWrite(const SlotMapping& slots, int64_t token, int64_t num_slots) {
  const int64_t slot = slots[token];
  if (slot < 0 || slot >= num_slots) return -1;
  if (slots.unique) return slot;
  bool later = false;
  for (int64_t t = token + 1 + threadIdx.x; t < slots.tokens; t += blockDim.x) {
    later = later || slots[t] == slot;
  }
  return __syncthreads_or(later) ? -1 : slot;
}

constexpr int64_t NumSlots(const CacheRows& rows) { return rows.num_blocks * rows.block_size; }

// Loads the row, lets `change` change it, and writes it to its slot.
template <typename T, class F>
__device__ void InsertRow(const InsertSide& side, int64_t token, int head, int64_t slot, float* x,
                          F change) {
  const T* source = reinterpret_cast<const T*>(side.source) +
                    (token * side.heads + head) * static_cast<int64_t>(side.head_size);
  LoadRow(source, side.head_size, x);
  change(x);
  EncodeCacheRow(side, head, x, side.rows.AtSlot(slot, head));
}

// The row as it is. A float is its own code: it may pass through a register whatever it holds.
template <typename T>
__device__ void CopyRowToSlot(const InsertSide& side, int64_t token, int head, int64_t slot) {
  const T* source = reinterpret_cast<const T*>(side.source) +
                    (token * side.heads + head) * static_cast<int64_t>(side.head_size);
  T* to = reinterpret_cast<T*>(side.rows.AtSlot(slot, head).data);
  const int n = side.head_size;
  if (ComesInFours(source, n) && ComesInFours(to, n)) {
    for (int d = 4 * LaneId(); d < n; d += 4 * kWarp) {
      *reinterpret_cast<Four<T>*>(to + d) = *reinterpret_cast<const Four<T>*>(source + d);
    }
  } else {
    for (int d = LaneId(); d < n; d += kWarp) to[d] = source[d];
  }
}

// A row that nothing changes on its way.
template <typename T>
__device__ void InsertUnchangedRow(const InsertSide& side, int64_t token, int head, int64_t slot,
                                   float* x) {
  if (side.CopiesBytes()) return CopyRowToSlot<T>(side, token, head, slot);
  InsertRow<T>(side, token, head, slot, x, [](float*) {});
}

}  // namespace pagefuse::cuda
