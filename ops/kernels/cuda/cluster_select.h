// SPDX-License-Identifier: Apache-2.0
// The best elements of a row of floats, in order, by a cluster of blocks of threads. Each block reads a part of the row
// once and keeps it in shared memory. A histogram of all of them says from where on elements are collected, in the first
// block of the cluster, which sorts them: they may be somewhat more than are wanted. Device code, and the choice of
// clusters on the host.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/cuda/bucket_sort.h"
#include "pagefuse/ops/kernels/cuda/cluster.h"
#include "pagefuse/ops/kernels/cuda/cluster_writes.h"
#include "pagefuse/ops/kernels/cuda/radix_select.h"

namespace pagefuse::cuda {

// What a device has.
struct ClusterLimits {
  int blocks = 1;  // of a cluster
  int multiprocessors = 1;
  int64_t shared_bytes = 0;  // of a block
};

// The clusters for rows of `width` elements of which `wanted` are asked for.
struct ClusterSelectPlan {
  int blocks = 0;  // of a cluster; 0: the rows do not fit into shared memory
  int threads = 0;
  uint32_t capacity =
      0;  // a power of two: elements that are sorted, at least as many as are wanted
  int64_t shared_bytes = 0;

  ClusterSelectPlan(int64_t rows, int64_t width, int64_t wanted, const ClusterLimits& limits) {
    constexpr int64_t kMostWanted = 4096, kFewestItems = 2048;
    constexpr int64_t kMostOfBlock = 16384, kFewestOfBlock = 2048;  // columns
    constexpr int64_t kFewestThreads = 128;
    if (wanted > kMostWanted) return;
    const auto power = [](int64_t n) { return std::bit_ceil(static_cast<uint32_t>(n)); };
    const int64_t most_items = std::max<int64_t>(2 * power(wanted), kFewestItems);
    // Two at least, so that what lies behind them is aligned to 16 bytes.
    capacity = power(std::clamp<int64_t>(width, 2, most_items));
    int count = 1;
    const auto is_idle = [&] { return rows * count * 2 <= limits.multiprocessors; };
    while (count < limits.blocks &&
           (width > count * kMostOfBlock || (is_idle() && width > 2 * count * kFewestOfBlock))) {
      count *= 2;
    }
    const int64_t columns = CeilDiv(width, count) + 8;  // with those beside them in pieces of four
    const int64_t item_bytes = capacity * static_cast<int64_t>(sizeof(Ranked<uint32_t>));
    shared_bytes = item_bytes + std::max(item_bytes, columns * int64_t{sizeof(float)});
    if (shared_bytes > limits.shared_bytes) return;
    blocks = count;
    // Two blocks share a multiprocessor where there are many: one reads while the other sorts.
    const int64_t most = rows * count > limits.multiprocessors ? 512 : kMostSelectThreads;
    threads = static_cast<int>(std::clamp<int64_t>(power(columns / 4), kFewestThreads, most));
  }
};

#ifdef __CUDACC__

// The elements of a row that a block has: pieces [begin, end) of four, which are aligned in memory.
struct RowPart {
  const float* from = nullptr;  // the row
  uint32_t count = 0;           // of its elements
  uint32_t skipped = 0;         // places of the first piece in front of the row
  uint32_t begin = 0, end = 0;
  uint4* keys = nullptr;  // of the pieces, in shared memory; of what is not there 0

  __device__ RowPart(const float* row, uint32_t elements, int block, int blocks, uint4* shared)
      : from(row), count(elements), keys(shared) {
    skipped = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row) / sizeof(float) % 4);
    const uint32_t pieces = (skipped + count + 3) / 4;
    const uint32_t of_block =
        (pieces + static_cast<uint32_t>(blocks) - 1) / static_cast<uint32_t>(blocks);
    begin = min(static_cast<uint32_t>(block) * of_block, pieces);
    end = min(begin + of_block, pieces);
  }
  // Of the first element of a piece; in front of the row more than any.
  __device__ uint32_t IndexOf(uint32_t piece) const { return 4 * piece - skipped; }
};

// Larger for larger numbers, and not 0; those of either zero are equal, NaN is as small as -inf.
__device__ inline uint32_t KeyOfFloat(float x) {
  constexpr uint32_t kSign = 0x80000000u, kMinusInfinity = 0xFF800000u;
  const uint32_t bits = __float_as_uint(__fadd_rn(fmaxf(x, __uint_as_float(kMinusInfinity)), 0.0f));
  return bits ^ (static_cast<uint32_t>(static_cast<int>(bits) >> 31) | kSign);
}

__device__ inline uint4 LoadPiece(const RowPart& part, uint32_t piece) {
  const uint32_t index = part.IndexOf(piece);
  const auto key = [&](uint32_t i) { return i < part.count ? KeyOfFloat(part.from[i]) : 0; };
  return {key(index), key(index + 1), key(index + 2), key(index + 3)};
}

// Reads the block's part. Each thread reads back what it has read alone.
__device__ inline void LoadKeys(const RowPart& part) {
  constexpr uint32_t kBatch = 4;  // on their way at a time
  for (uint32_t first = part.begin + threadIdx.x; first < part.end; first += kBatch * blockDim.x) {
    float4 pieces[kBatch] = {};
    bool whole[kBatch];
#pragma unroll
    for (uint32_t j = 0; j < kBatch; ++j) {
      const uint32_t piece = first + j * blockDim.x, index = part.IndexOf(piece);
      whole[j] = piece < part.end && index < part.count && part.count - index >= 4;
      if (whole[j]) pieces[j] = *reinterpret_cast<const float4*>(part.from + index);
    }
#pragma unroll
    for (uint32_t j = 0; j < kBatch; ++j) {
      const uint32_t piece = first + j * blockDim.x;
      if (piece >= part.end) break;
      const float4& x = pieces[j];
      part.keys[piece - part.begin] =
          whole[j] ? uint4{KeyOfFloat(x.x), KeyOfFloat(x.y), KeyOfFloat(x.z), KeyOfFloat(x.w)}
                   : LoadPiece(part, piece);
    }
  }
}

// f(key, index) of the block's part, some of key 0.
template <class F>
__device__ void ForKeys(const RowPart& part, const F& f) {
  for (uint32_t piece = part.begin + threadIdx.x; piece < part.end; piece += blockDim.x) {
    const uint4 keys = part.keys[piece - part.begin];
    const uint32_t index = part.IndexOf(piece);
    f(keys.x, index), f(keys.y, index + 1), f(keys.z, index + 2), f(keys.w, index + 3);
  }
}

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

// A range of words whose elements, with those above, are the `wanted` best and no more than `capacity`.
__device__ inline WordRange FindRange(const RowPart& part, const WordOrder& order,
                                      const ClusterPlace& place, uint32_t wanted, uint32_t capacity,
                                      SelectSpace& space) {
  const uint64_t one = uint64_t{1} << order.index_bits;  // of a key
  WordRange range = {.least = one, .most = (one << 32) - 1, .inside = part.count};
  if (range.inside <= capacity) return range;
  ForKeys(part, [&](uint32_t key, uint32_t) {
    if (key != 0) atomicAdd(&space.counts[FirstDigit::Of(key)], 1u);
  });
  FindDigitOfCluster(place, wanted, space);
  range.least = max(FirstDigit::LeastKey(space.digit), uint64_t{1}) * one;
  range.most = FirstDigit::LeastKey(space.digit + 1) * one - 1;
  range.above = space.above, range.inside = space.inside;
  while (range.above + range.inside > capacity) {
    const int shift = range.Shift();
    ForKeys(part, [&](uint32_t key, uint32_t index) {
      const uint64_t word = order.Of(key, index);
      if (key == 0 || word < range.least || word > range.most) return;
      atomicAdd(&space.counts[(word - range.least) >> shift], 1u);
    });
    FindDigitOfCluster(place, wanted - range.above, space);
    range.least += uint64_t{space.digit} << shift;
    range.most = min(range.most, range.least + (uint64_t{1} << shift) - 1);
    range.above += space.above, range.inside = space.inside;
  }
  return range;
}

// Writes the elements of all blocks whose words are `least` or more to the items of the first one, in any order.
__device__ inline void CollectInFirst(const RowPart& part, const WordOrder& order, uint64_t least,
                                      Ranked<uint32_t>* items, SelectSpace& space) {
  const auto key_of_least = static_cast<uint32_t>(least >> order.index_bits);
  const uint32_t last = order.LastIndex() - (static_cast<uint32_t>(least) & order.LastIndex());
  const auto reaches = [&](uint32_t key, uint32_t index) {
    return key > key_of_least || (key == key_of_least && index <= last);
  };
  uint32_t own = 0;
  ForKeys(part, [&](uint32_t key, uint32_t index) { own += reaches(key, index) ? 1 : 0; });
  const uint32_t before = SumBefore(own, space.warp_sums);
  if (threadIdx.x == blockDim.x - 1) space.digit = ptx::AddInBlock(&space.taken, 0, before + own);
  __syncthreads();
  uint32_t at = space.digit + before;
  ForKeys(part, [&](uint32_t key, uint32_t index) {
    if (!reaches(key, index)) return;
    ptx::StoreInBlock(reinterpret_cast<uint2*>(&items[at++]), 0, {key, index});
  });
  ptx::WaitForCluster();
}

// Before any block of the cluster selects.
__device__ inline void BeginSelect(BucketSpace& space) {
  ClearCounts(space.select);
  if (threadIdx.x == 0) space.select.taken = 0;
  ptx::WaitForCluster();
}

// The `wanted` best of the `count` elements of a row, not 0 and no more than these, in order: their indices to `to`, by the first
// block.
__device__ inline void SelectByCluster(const float* row, uint32_t count, uint32_t wanted,
                                       const ClusterPlace& place, uint32_t capacity,
                                       BucketSpace& space, int32_t* to) {
  extern __shared__ __align__(16) unsigned char cluster_items[];
  auto* items = reinterpret_cast<Ranked<uint32_t>*>(cluster_items);
  const RowPart part(row, count, place.block, place.blocks,
                     reinterpret_cast<uint4*>(items + capacity));
  const WordOrder order(count);
  LoadKeys(part);
  const WordRange range = FindRange(part, order, place, wanted, capacity, space.select);
  CollectInFirst(part, order, range.least, items, space.select);
  if (place.block != 0) return;
  // The keys are read no more.
  SortItems(items, items + capacity, range.above + range.inside, order, space);
  for (uint32_t i = threadIdx.x; i < wanted; i += blockDim.x) {
    to[i] = static_cast<int32_t>(items[i].index);
  }
}

#endif  // __CUDACC__

}  // namespace pagefuse::cuda
