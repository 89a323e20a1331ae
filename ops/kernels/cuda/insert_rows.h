// SPDX-License-Identifier: Apache-2.0
// What inserts into paged caches share: which tokens are written, and the launch of a warp a row. Device code: for .cu files.
//
// A step of one token is as long as its loads that wait one for the other: rows, slots and positions are all on their way before one is used.
#pragma once

#include <algorithm>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/row_codec.h"

namespace pagefuse::cuda {

inline constexpr int kMostInsertWarps = 8;

// Rows of one token: a CTA of `warps` takes as many, blockIdx.x is the token.
inline LaunchShape InsertGridFor(int64_t tokens, int rows, int longest_row,
                                 int most_warps = kMostInsertWarps) {
  constexpr int kSharedBytes = 48 << 10;
  const int row_bytes = (longest_row + 3) / 4 * 16;
  const int warps = std::clamp(kSharedBytes / row_bytes, 1, most_warps);
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

// Element i of indices of int32 or int64 on its way, without a branch, which would wait for what it loads. So does Get.
class IndexAhead {
 public:
  __device__ IndexAhead(const void* indices, bool is_int64, int64_t i) : is_int64_(is_int64) {
    const int32_t* words = static_cast<const int32_t*>(indices) + (is_int64 ? 2 * i : i);
    low_ = words[0], high_ = words[is_int64 ? 1 : 0];
  }
  __device__ int64_t Get() const {
    return is_int64_ ? int64_t{high_} << 32 | static_cast<uint32_t>(low_) : int64_t{low_};
  }

 private:
  bool is_int64_;
  int32_t low_, high_;
};
__device__ inline int64_t FetchIndex(const void* indices, bool is_int64, int64_t i) {
  return IndexAhead(indices, is_int64, i).Get();
}

// Of a slot that is one; most fit a division of 32 bits, which takes a fraction of one of 64.
__device__ inline RowAddress RowOfSlot(const CacheRows& rows, int64_t slot) {
  if ((slot | rows.block_size) >> 32 != 0) return rows.AtSlot(slot, 0);
  const auto index = static_cast<uint32_t>(slot), size = static_cast<uint32_t>(rows.block_size);
  return rows.At(index / size, index % size, 0);
}

constexpr int64_t NumSlots(const CacheRows& rows) { return rows.num_blocks * rows.block_size; }

// The slot of the CTA's token. Later tokens with the same one win: few of them each warp that writes looks at, as late as it writes; many the
// whole CTA, at the start.
class TokenSlot {
 public:
  // For all threads of the CTA.
  __device__ TokenSlot(const SlotMapping& slots, int64_t token, int64_t num_slots)
      : slots_(slots),
        token_(token),
        num_slots_(num_slots),
        slot_(slots.slots, slots.is_int64, token) {
    if (slots.unique || slots.tokens <= kFewTokens) return;
    // Its slot is read anew: to look at the one that is on its way, all would wait here.
    is_lost_ = __syncthreads_or(ComesLater(slots[token], threadIdx.x, blockDim.x)) != 0;
  }

  // The slot to write, or -1. For all lanes of a warp.
  __device__ int64_t ToWrite() const {
    const int64_t slot = slot_.Get();
    if (is_lost_ || slot < 0 || slot >= num_slots_) return -1;
    if (slots_.unique || slots_.tokens > kFewTokens) return slot;
    return __any_sync(kAllLanes, ComesLater(slot, LaneId(), kWarp)) ? -1 : slot;
  }

 private:
  static constexpr int kFewTokens = 256;

  // Whether one of every `threads`-th of the later tokens has the slot.
  __device__ bool ComesLater(int64_t slot, unsigned thread, unsigned threads) const {
    bool later = false;
#pragma unroll 1
    for (int64_t t = token_ + 1 + thread; t < slots_.tokens; t += threads) {
      later = later || slots_[t] == slot;
    }
    return later;
  }

  const SlotMapping& slots_;
  int64_t token_, num_slots_;
  IndexAhead slot_;
  bool is_lost_ = false;  // to a later token
};

// use(d, from[d, d + 4)) for the lane's fours, of which some are on their way at once.
template <typename T, class F>
__device__ void ForEachFour(const T* from, int n, const F& use) {
  constexpr int kAtOnce = 4;
#pragma unroll 1
  for (int first = 4 * LaneId(); first < n; first += kAtOnce * 4 * kWarp) {
    Four<T> fours[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int d = first + k * 4 * kWarp;
      if (d < n) fours[k] = *reinterpret_cast<const Four<T>*>(from + d);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int d = first + k * 4 * kWarp;
      if (d < n) use(d, fours[k]);
    }
  }
}

// LoadRow with loads at once.
template <typename T>
__device__ void LoadInsertRow(const T* from, int n, float* x) {
  if (!ComesInFours(from, n)) return LoadRow(from, n, x);
  ForEachFour(from, n, [=](int d, const Four<T>& four) {
    *reinterpret_cast<float4*>(x + d) =
        make_float4(static_cast<float>(four.at[0]), static_cast<float>(four.at[1]),
                    static_cast<float>(four.at[2]), static_cast<float>(four.at[3]));
  });
  __syncwarp();
}

template <typename T>
__device__ const T* SourceRow(const InsertSide& side, int64_t token, int head) {
  return reinterpret_cast<const T*>(side.source) +
         (token * side.heads + head) * static_cast<int64_t>(side.head_size);
}

// Writes a row in shared memory, which may change.
__device__ inline void StoreInSlot(const InsertSide& side, int head, const TokenSlot& slot,
                                   float* x) {
  const int64_t to = slot.ToWrite();
  if (to >= 0) EncodeCacheRow(side, head, x, side.rows.AtSlot(to, head));
}

// The row as it is. A float is its own code: it may pass through a register whatever it holds.
template <typename T>
__device__ void CopyRowToSlot(const InsertSide& side, int64_t token, int head, int64_t slot) {
  const T* source = SourceRow<T>(side, token, head);
  T* to = reinterpret_cast<T*>(side.rows.AtSlot(slot, head).data);
  const int n = side.head_size;
  if (ComesInFours(source, n) && ComesInFours(to, n)) {
    ForEachFour(source, n,
                [=](int d, const Four<T>& four) { *reinterpret_cast<Four<T>*>(to + d) = four; });
  } else {
    for (int d = LaneId(); d < n; d += kWarp) to[d] = source[d];
  }
}

// A row that nothing changes on its way.
template <typename T>
__device__ void InsertUnchangedRow(const InsertSide& side, int64_t token, int head,
                                   const TokenSlot& slot, float* x) {
  if (side.CopiesBytes()) {
    const int64_t to = slot.ToWrite();
    if (to >= 0) CopyRowToSlot<T>(side, token, head, to);
    return;
  }
  LoadInsertRow(SourceRow<T>(side, token, head), side.head_size, x);
  StoreInSlot(side, head, slot, x);
}

}  // namespace pagefuse::cuda
