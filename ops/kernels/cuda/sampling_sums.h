// SPDX-License-Identifier: Apache-2.0
// What the blocks of a cluster that share a row of logits (sampling_row.h) tell each other, and sums in the row's order. Sums
// are of integers, so that the order they are made in does not matter. Device code alone.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/cluster.h"
#include "pagefuse/ops/kernels/cuda/cluster_writes.h"
#include "pagefuse/ops/kernels/cuda/radix_select.h"
#include "pagefuse/ops/kernels/cuda/sampling_row.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {

inline constexpr int kMostRowBlocks = 8;
// Pieces of a block's part, in order, whose sums lie in shared memory: one for each thread.
inline constexpr int kSums = kRowThreads;
// Digits of keys, one for each thread.
inline constexpr int kKeyDigitBits = 10, kKeyDigits = 1 << kKeyDigitBits;
static_assert(kKeyDigits == kRowThreads);
// Elements that one block can have as a row of their own.
inline constexpr uint32_t kMostListed = 1024;

// In shared memory, of one block.
struct RowSpace {
  uint32_t low[kKeyDigits], high[kKeyDigits];  // halves of the sums of digits
  uint64_t sums[kSums];
  uint64_t of_warps[kWarp];
  uint64_t of_blocks[2][kMostRowBlocks];  // what each block told, in turns
  uint64_t left, inside;                  // of a goal, and in the digit that reaches it
  uint32_t digit, index;
  uint32_t taken;
  Ranked<uint32_t> listed[kMostListed];  // complements of indices, and keys
  uint4 listed_keys[kMostListed / 4];
};

// The blocks that work on a row, as one of them sees it.
struct RowTeam {
  ClusterPlace place;
  RowSpace& space;
  int turn = 0;
};

// --- what blocks tell each other ---

__device__ inline void TellBlock(uint64_t* shared, int block, uint64_t value) {
  ptx::StoreInBlock(reinterpret_cast<uint2*>(shared), block,
                    {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)});
}

// op(a, b) over the values of all threads of the team; all have it. What each block came to is in OfBlocks until the
// call after the next. Threads see what others of the team wrote before.
template <class Op>
__device__ uint64_t OverCluster(uint64_t value, RowTeam& team, const Op& op) {
  RowSpace& space = team.space;
  team.turn ^= 1;
  uint64_t* const of_blocks = space.of_blocks[team.turn];
  value = OverLanes(value, op);
  if (LaneId() == 0) space.of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x < kWarp) {
    value = OverLanes(space.of_warps[threadIdx.x], op);
    if (LaneId() < team.place.blocks) TellBlock(&of_blocks[team.place.block], LaneId(), value);
  }
  ptx::WaitForCluster();
  value = of_blocks[0];
  for (int b = 1; b < team.place.blocks; ++b) value = op(value, of_blocks[b]);
  return value;
}
__device__ inline uint64_t SumOfCluster(uint64_t value, RowTeam& team) {
  return OverCluster(value, team, [](uint64_t a, uint64_t b) { return a + b; });
}
__device__ inline const uint64_t* OfBlocks(const RowTeam& team) {
  return team.space.of_blocks[team.turn];
}

// Of the lanes before this one.
__device__ inline uint64_t SumOfLanesBefore(uint64_t own) {
  uint64_t sum = own;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, sum, distance);
    if (LaneId() >= distance) sum += other;
  }
  return sum - own;
}

// Of the block's threads before this one.
__device__ inline uint64_t SumOfThreadsBefore(uint64_t own, RowSpace& space) {
  uint64_t before = SumOfLanesBefore(own);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (LaneId() == kWarp - 1) space.of_warps[warp] = before + own;
  __syncthreads();
  for (int w = 0; w < warp; ++w) before += space.of_warps[w];
  return before;
}

// --- sums in order ---

// Pieces of four that one sum is of.
__device__ inline uint32_t SumLength(const RowPart& part) {
  return (part.end - part.begin + kSums * kWarp - 1) / (kSums * kWarp) * kWarp;
}

// The sum of value(key, index) over the row; the block's sums are in `space.sums`.
template <class Value>
__device__ uint64_t SumInOrder(const RowPart& part, const Value& value, RowTeam& team) {
  const uint32_t length = SumLength(part);
  uint64_t own = 0;
  for (uint32_t s = threadIdx.x / kWarp; s < kSums; s += kRowWarps) {
    const uint32_t begin = min(part.begin + s * length, part.end);
    const uint32_t end = min(begin + length, part.end);
    uint64_t sum = 0;
    for (uint32_t piece = begin + LaneId(); piece < end; piece += kWarp) {
      uint4 keys[1];
      KeysOf(part, piece, keys);
      const uint32_t index = part.IndexOf(piece);
      sum += value(keys[0].x, index) + value(keys[0].y, index + 1) + value(keys[0].z, index + 2) +
             value(keys[0].w, index + 3);
    }
    own += sum;
    if (begin < end) sum = SumOfLanes(sum);
    if (LaneId() == 0) team.space.sums[s] = sum;
  }
  return SumOfCluster(own, team);
}

// The first index of pieces [begin, end) up to which the values sum to more than `left`, by one warp.
template <class Value>
__device__ void SearchPieces(const RowPart& part, const Value& value, uint32_t begin, uint32_t end,
                             uint64_t left, uint32_t& found) {
  for (uint32_t first = begin; first < end; first += kWarp) {
    const uint32_t piece = first + LaneId();
    uint4 keys[1] = {};
    if (piece < end) KeysOf(part, piece, keys);
    uint32_t index = part.IndexOf(piece);
    const uint64_t values[] = {value(keys[0].x, index), value(keys[0].y, index + 1),
                               value(keys[0].z, index + 2), value(keys[0].w, index + 3)};
    const uint64_t own = values[0] + values[1] + values[2] + values[3];
    uint64_t sum = SumOfLanesBefore(own);
    const unsigned passes = __ballot_sync(kAllLanes, sum + own > left);
    if (passes != 0) {
      if (LaneId() != __ffs(static_cast<int>(passes)) - 1) return;
      for (const uint64_t next : values) {
        sum += next;
        if (sum > left) break;
        ++index;
      }
      found = index;
      return;
    }
    left -= SumOfLanes(own);
  }
}

inline constexpr uint32_t kInOtherBlock = UINT32_MAX;

// The first index up to which the values sum to more than `sum`, which is less than SumInOrder, the call before, came to.
// The block that has it gets it.
template <class Value>
__device__ uint32_t IndexOfSum(const RowPart& part, const Value& value, uint64_t sum,
                               RowTeam& team) {
  RowSpace& space = team.space;
  const uint64_t* of_blocks = OfBlocks(team);
  for (int b = 0; b < team.place.block; ++b) {
    if (sum < of_blocks[b]) return kInOtherBlock;
    sum -= of_blocks[b];
  }
  if (sum >= of_blocks[team.place.block]) return kInOtherBlock;
  const uint64_t own = space.sums[threadIdx.x];
  const uint64_t before = SumOfThreadsBefore(own, space);
  if (before <= sum && sum - before < own) {
    space.digit = threadIdx.x;
    space.left = sum - before;
  }
  __syncthreads();
  if (threadIdx.x < kWarp) {
    const uint32_t length = SumLength(part), begin = part.begin + space.digit * length;
    SearchPieces(part, value, begin, min(begin + length, part.end), space.left, space.index);
  }
  __syncthreads();
  return space.index;
}

}  // namespace pagefuse::cuda
