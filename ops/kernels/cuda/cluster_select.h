// SPDX-License-Identifier: Apache-2.0
// The best elements of a row of floats, in order, by a cluster of blocks of threads. Each block has a part of the row, which it
// reads once and keeps in shared memory, or reads where it needs it. A histogram, of a sample of long rows, says from where on
// elements are collected, in the first block of the cluster, which sorts them: they may be somewhat more than are wanted. Where
// the sample was wrong, all elements are counted. Device code, and the choice of clusters on the host.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/cuda/bucket_sort.h"
#include "pagefuse/ops/kernels/cuda/cluster.h"
#include "pagefuse/ops/kernels/cuda/cluster_writes.h"
#include "pagefuse/ops/kernels/cuda/radix_select.h"
#include "pagefuse/ops/kernels/cuda/row_part.h"

namespace pagefuse::cuda {

// What a device has.
struct ClusterLimits {
  int blocks = 1;  // of a cluster
  int multiprocessors = 1;
  int64_t shared_bytes = 0;  // of a block
};

inline constexpr int kMostSelectBlocks = 8;  // of a cluster

// The clusters for rows of `width` elements of which `wanted` are asked for.
struct ClusterSelectPlan {
  int blocks = 0;  // of a cluster; 0: shared memory does not hold what is sorted
  int threads = 0;
  uint32_t capacity =
      0;  // a power of two: elements that are sorted, at least as many as are wanted
  bool keeps_keys = true;  // of the rows in shared memory
  int64_t shared_bytes = 0;

  ClusterSelectPlan(int64_t rows, int64_t width, int64_t wanted, const ClusterLimits& limits) {
    constexpr int64_t kMostWanted = 4096, kFewestItems = 2048;
    constexpr int64_t kFewestThreads = 128;
    if (wanted > kMostWanted) return;
    const auto power = [](int64_t n) { return std::bit_ceil(static_cast<uint32_t>(n)); };
    const int64_t most_items = std::max<int64_t>(2 * power(wanted), kFewestItems);
    // Two at least, so that what lies behind them is aligned to 16 bytes.
    capacity = power(std::clamp<int64_t>(width, 2, most_items));
    const int count = BlocksFor(rows, width, limits);
    const int64_t columns = CeilDiv(width, count) + 8;  // with those beside them in pieces of four
    const int64_t item_bytes = capacity * static_cast<int64_t>(sizeof(Ranked<uint32_t>));
    const int64_t key_bytes = columns * int64_t{sizeof(float)};
    keeps_keys &= item_bytes + key_bytes <= limits.shared_bytes;
    shared_bytes = item_bytes + std::max(item_bytes, keeps_keys ? key_bytes : 0);
    if (shared_bytes > limits.shared_bytes) return;
    blocks = count;
    // Two blocks share a multiprocessor where there are many: one reads while the other sorts.
    const int64_t most = rows * count > limits.multiprocessors ? 512 : kMostSelectThreads;
    threads = static_cast<int>(std::clamp<int64_t>(power(columns / 4), kFewestThreads, most));
  }

 private:
  int BlocksFor(int64_t rows, int64_t width, const ClusterLimits& limits) {
    constexpr int64_t kMostOfBlock = 16384, kFewestOfBlock = 2048;  // columns
    constexpr int64_t kBlocksAtATime = 2;                           // on a multiprocessor
    const int most = std::min(limits.blocks, kMostSelectBlocks);
    const int64_t all = limits.multiprocessors;
    const auto is_idle = [&](int count) { return rows * count * 2 <= all; };
    int count = 1;
    while (count < most && (width > count * kMostOfBlock ||
                            (is_idle(count) && width > 2 * count * kFewestOfBlock))) {
      count *= 2;
    }
    // Where some rows would wait until others are done, fewer blocks read each one twice instead.
    keeps_keys = rows * count <= kBlocksAtATime * all || rows > all;
    if (keeps_keys) return count;
    count = 1;
    while (count < most && is_idle(count)) count *= 2;
    return count;
  }
};

#ifdef __CUDACC__

// In shared memory, of one block.
struct ClusterSelectSpace {
  BucketSpace sort;
  uint32_t of_blocks[kMostSelectBlocks];  // elements that each one collected
};

__device__ inline void ClearCounts(SelectSpace& space) {
  for (uint32_t i = threadIdx.x; i < kDigits; i += blockDim.x) space.counts[i] = 0;
}

// One block's place in its cluster.
struct ClusterPlace {
  int block, blocks;
};

// The digit of the `wanted`-th element by the counts of all blocks, which are cleared. All threads of the cluster
// come and have it in `space`.
__device__ inline void FindDigitOfCluster(const ClusterPlace& place, uint32_t wanted,
                                          SelectSpace& space) {
  __syncthreads();
  if (place.block != 0) {
    for (uint32_t i = threadIdx.x; i < kDigits; i += blockDim.x) {
      if (space.counts[i] != 0) ptx::AddInBlock(&space.counts[i], 0, space.counts[i]);
    }
  }
  ptx::WaitForCluster();
  if (place.block == 0) {
    FindDigit(wanted, space);
    const auto other = static_cast<int>(threadIdx.x);
    if (other > 0 && other < place.blocks) {
      ptx::StoreInBlock(&space.digit, other, space.digit);
      ptx::StoreInBlock(&space.above, other, space.above);
      ptx::StoreInBlock(&space.inside, other, space.inside);
    }
  }
  ClearCounts(space);
  ptx::WaitForCluster();
}

// f(key, index) of the block's elements, some of key 0, or of a sample of them.
template <class F>
__device__ void ForKeys(const RowPart& part, uint32_t every, const F& f) {
  ForPieceKeys<2>(part, every, [&](const uint4& keys, uint32_t index) {
    f(keys.x, index), f(keys.y, index + 1), f(keys.z, index + 2), f(keys.w, index + 3);
  });
}

// How many elements are looked for: in all of a row, or in a sample, one of `every`, about as many.
struct SelectGoal {
  uint32_t every, wanted, capacity;

  // Some deviations more than are wanted, and some less than there is room for.
  __device__ SelectGoal(uint32_t sampled, uint32_t of_all, uint32_t room)
      : every(sampled), wanted(of_all), capacity(room) {
    constexpr float kDeviations = 4;
    if (every == 1) return;
    const auto all = static_cast<float>(every);
    const float least = static_cast<float>(wanted) / all, most = static_cast<float>(capacity) / all;
    wanted = static_cast<uint32_t>(least + kDeviations * (sqrtf(least) + 1));
    capacity = static_cast<uint32_t>(most - kDeviations * sqrtf(most));
  }
};

// A range of words whose elements, with those above, are the `wanted` best and no more than `capacity`: of those of the goal.
__device__ inline WordRange FindRange(const RowPart& part, const WordOrder& order,
                                      const ClusterPlace& place, const SelectGoal& goal,
                                      SelectSpace& space) {
  const uint64_t one = uint64_t{1} << order.index_bits;  // of a key
  WordRange range = {.least = one, .most = (one << 32) - 1, .inside = part.count};
  if (range.inside <= goal.capacity) return range;
  ForKeys(part, goal.every, [&](uint32_t key, uint32_t) {
    if (key != 0) atomicAdd(&space.counts[FirstDigit::Of(key)], 1u);
  });
  FindDigitOfCluster(place, goal.wanted, space);
  range.least = max(FirstDigit::LeastKey(space.digit), uint64_t{1}) * one;
  range.most = FirstDigit::LeastKey(space.digit + 1) * one - 1;
  range.above = space.above, range.inside = space.inside;
  while (range.above + range.inside > goal.capacity) {
    const int shift = range.Shift();
    ForKeys(part, goal.every, [&](uint32_t key, uint32_t index) {
      const uint64_t word = order.Of(key, index);
      if (key == 0 || word < range.least || word > range.most) return;
      atomicAdd(&space.counts[(word - range.least) >> shift], 1u);
    });
    FindDigitOfCluster(place, goal.wanted - range.above, space);
    range.least += uint64_t{space.digit} << shift;
    range.most = min(range.most, range.least + (uint64_t{1} << shift) - 1);
    range.above += space.above, range.inside = space.inside;
  }
  return range;
}

// Writes the block's elements whose words are `least` or more to its items, in any order. Returns how many there are; those for
// which there is no room are not written.
__device__ inline uint32_t Collect(const RowPart& part, const WordOrder& order, uint64_t least,
                                   Ranked<uint32_t>* items, uint32_t capacity, SelectSpace& space) {
  const auto key_of_least = static_cast<uint32_t>(least >> order.index_bits);
  const uint32_t last = order.LastIndex() - (static_cast<uint32_t>(least) & order.LastIndex());
  const unsigned before = (1u << LaneId()) - 1;
  if (threadIdx.x == 0) space.taken = 0;
  __syncthreads();
  ForPieceKeys<4>(part, 1, [&](const uint4& four, uint32_t index) {
    const uint32_t keys[] = {four.x, four.y, four.z, four.w};
    unsigned lanes[4];
    uint32_t count = 0;
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      const bool reaches = keys[j] > key_of_least || (keys[j] == key_of_least && index + j <= last);
      lanes[j] = __ballot_sync(kAllLanes, reaches);
      count += static_cast<uint32_t>(__popc(lanes[j]));
    }
    if (count == 0) return;
    uint32_t at = 0;
    if (LaneId() == 0) at = atomicAdd(&space.taken, count);
    at = __shfl_sync(kAllLanes, at, 0);
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t to = at + static_cast<uint32_t>(__popc(lanes[j] & before));
      if ((lanes[j] >> LaneId() & 1) != 0 && to < capacity) items[to] = {keys[j], index + j};
      at += static_cast<uint32_t>(__popc(lanes[j]));
    }
  });
  __syncthreads();
  return space.taken;
}

// Brings what the blocks collected to the items of the first one. Returns how many these are; more than `capacity` stay where
// they are.
__device__ inline uint32_t JoinInFirst(const ClusterPlace& place, uint32_t own,
                                       Ranked<uint32_t>* items, uint32_t capacity,
                                       ClusterSelectSpace& space) {
  const auto other = static_cast<int>(threadIdx.x);
  if (other < place.blocks) ptx::StoreInBlock(&space.of_blocks[place.block], other, own);
  ptx::WaitForCluster();
  uint32_t before = 0, all = 0;
  for (int b = 0; b < place.blocks; ++b) {
    if (b == place.block) before = all;
    all += space.of_blocks[b];
  }
  if (place.block != 0 && all <= capacity) {
    for (uint32_t i = threadIdx.x; i < own; i += blockDim.x) {
      const Ranked<uint32_t> item = items[i];
      ptx::StoreInBlock(reinterpret_cast<uint2*>(&items[before + i]), 0, {item.key, item.index});
    }
  }
  ptx::WaitForCluster();
  return all;
}

// Before any block of the cluster selects.
__device__ inline void BeginSelect(ClusterSelectSpace& space) {
  ClearCounts(space.sort.select);
  ptx::WaitForCluster();
}

// The `wanted` best of the `count` elements of a row, not 0 and no more than these, in order: their indices to `to`, by the
// first block.
__device__ inline void SelectByCluster(const float* row, uint32_t count, uint32_t wanted,
                                       const ClusterPlace& place, uint32_t capacity,
                                       bool keeps_keys, ClusterSelectSpace& space, int32_t* to) {
  constexpr uint32_t kSampled = 8;  // one of so many; 1: all are counted at once
  extern __shared__ __align__(16) unsigned char cluster_items[];
  auto* items = reinterpret_cast<Ranked<uint32_t>*>(cluster_items);
  const RowPart part(row, count, place.block, place.blocks,
                     keeps_keys ? reinterpret_cast<uint4*>(items + capacity) : nullptr);
  const WordOrder order(count);
  if (keeps_keys) LoadKeys(part);
  uint32_t every = count >= kSampled * capacity ? kSampled : 1, found;
  while (true) {
    const WordRange range =
        FindRange(part, order, place, {every, wanted, capacity}, space.sort.select);
    const uint32_t own = Collect(part, order, range.least, items, capacity, space.sort.select);
    found = JoinInFirst(place, own, items, capacity, space);
    if (every == 1 || (found >= wanted && found <= capacity)) break;
    every = 1;
  }
  if (place.block != 0) return;
  // The keys are read no more.
  SortItems(items, items + capacity, found, order, space.sort);
  for (uint32_t i = threadIdx.x; i < wanted; i += blockDim.x) {
    to[i] = static_cast<int32_t>(items[i].index);
  }
}

#endif  // __CUDACC__

}  // namespace pagefuse::cuda
