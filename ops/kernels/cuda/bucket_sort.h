// SPDX-License-Identifier: Apache-2.0
// Sorts the best elements of a row by one block of threads: they are put into small buckets, in which each is compared with
// all. Device code alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/cuda/radix_select.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {

// Elements that part all of them into buckets where digits do not.
inline constexpr uint32_t kSplitters = 512;

// In shared memory, of one block.
struct BucketSpace {
  SelectSpace select;
  uint64_t lowest[kMostSelectThreads / kWarp], highest[kMostSelectThreads / kWarp];
  Ranked<uint32_t> splitters[kSplitters];
};

// Digits of keys for a first histogram: 32 of each octave from 2^-16 to 2^16, of either sign.
struct FirstDigit {
  static constexpr int kShift = 18, kMost = kDigits / 2 - 1, kSmallest = (127 - 16) << 23;

  __device__ static uint32_t Of(uint32_t key) {
    const int sign = ~(static_cast<int>(key) >> 31);  // -1 of negative numbers
    const int magnitude = (static_cast<int>(key) ^ sign) & INT32_MAX;
    const int digit = min(max((magnitude - kSmallest) >> kShift, 0), kMost);
    return static_cast<uint32_t>((digit ^ sign) + kMost + 1);
  }
  // The least key of a digit, or of a larger one.
  __device__ static uint64_t LeastKey(uint32_t digit) {
    constexpr uint32_t kZero = 0x80000000u;
    if (digit == 0) return 0;
    if (digit >= kDigits) return uint64_t{1} << 32;
    const int above = static_cast<int>(digit) - kMost - 1;
    if (above == 0) return kZero;
    const int magnitude = kSmallest + ((above > 0 ? above : -above) << kShift);
    return above > 0 ? kZero + static_cast<uint32_t>(magnitude)
                     : kZero - static_cast<uint32_t>(magnitude);
  }
};

// Elements as one number each, no two the same, larger for better ones.
struct WordOrder {
  int index_bits = 0;

  __device__ explicit WordOrder(uint32_t count) {
    index_bits = 32 - __clz(static_cast<int>(count - 1));
  }
  __device__ uint32_t LastIndex() const { return (uint32_t{1} << index_bits) - 1; }
  __device__ uint64_t Of(uint32_t key, uint32_t index) const {
    return uint64_t{key} << index_bits | (LastIndex() - index);
  }
  __device__ uint64_t Of(const Ranked<uint32_t>& item) const { return Of(item.key, item.index); }
};

// Elements of words from `least` to `most`, and those above.
struct WordRange {
  uint64_t least = 0, most = 0;
  uint32_t inside = 0, above = 0;

  // How far words are shifted so that differences from the least one are digits.
  __device__ int Shift() const {
    return max(64 - __clzll(static_cast<long long>(most - least)) - kDigitBits, 0);
  }
};

// Puts elements into buckets, the best first.
struct Buckets {
  WordOrder order;
  WordRange range = {};
  int shift = 0;
  bool by_octave = false;
  const Ranked<uint32_t>* splitters = nullptr;  // in order; where there are any, they alone decide

  // How many splitters come before it.
  __device__ uint32_t BySplitters(const Ranked<uint32_t>& item) const {
    uint32_t before = 0;
#pragma unroll 1
    for (uint32_t step = kSplitters / 2; step > 0; step /= 2) {
      if (ComesBefore(splitters[before + step - 1], item)) before += step;
    }
    return before + (ComesBefore(splitters[before], item) ? 1 : 0);
  }
  __device__ uint32_t Of(const Ranked<uint32_t>& item) const {
    if (splitters != nullptr) return BySplitters(item);
    const uint32_t digit = by_octave
                               ? FirstDigit::Of(item.key)
                               : static_cast<uint32_t>((order.Of(item) - range.least) >> shift);
    return kDigits - 1 - digit;
  }
};

__device__ inline Buckets BucketsOf(const Ranked<uint32_t>* items, uint32_t n,
                                    const WordOrder& order, BucketSpace& space) {
  const auto less = [](uint64_t a, uint64_t b) { return min(a, b); };
  const auto more = [](uint64_t a, uint64_t b) { return max(a, b); };
  uint64_t lowest = UINT64_MAX, highest = 0;
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
    const uint64_t word = order.Of(items[i]);
    lowest = min(lowest, word), highest = max(highest, word);
  }
  lowest = OverLanes(lowest, less), highest = OverLanes(highest, more);
  const uint32_t warp = threadIdx.x / kWarp;
  if (LaneId() == 0) space.lowest[warp] = lowest, space.highest[warp] = highest;
  __syncthreads();
  const bool there = LaneId() < static_cast<int>(blockDim.x) / kWarp;
  Buckets buckets = {.order = order};
  buckets.range.least = OverLanes(there ? space.lowest[LaneId()] : UINT64_MAX, less);
  buckets.range.most = OverLanes(there ? space.highest[LaneId()] : 0, more);
  buckets.shift = buckets.range.Shift();
  // Numbers of about zero take most keys of a wide range.
  buckets.by_octave = buckets.shift > FirstDigit::kShift + order.index_bits;
  return buckets;
}

// Makes counts of buckets their begins. Whether all are small.
__device__ inline bool BeginBuckets(SelectSpace& space) {
  constexpr uint32_t kMostInBucket = 256;
  const uint32_t of_thread = kDigits / blockDim.x;
  uint32_t* counts = space.counts + threadIdx.x * of_thread;
  uint32_t own = 0, most = 0;
  for (uint32_t j = 0; j < of_thread; ++j) own += counts[j], most = max(most, counts[j]);
  uint32_t begin = SumBefore(own, space.warp_sums);
  for (uint32_t j = 0; j < of_thread; ++j) {
    const uint32_t count = counts[j];
    counts[j] = begin;
    begin += count;
  }
  return __syncthreads_or(most > kMostInBucket ? 1 : 0) == 0;
}

// Makes `buckets` those between elements that are taken evenly from all: whatever they are, few come to be in one. Clears counts.
__device__ inline void SplitEvenly(const Ranked<uint32_t>* items, uint32_t n, Buckets& buckets,
                                   BucketSpace& space) {
  for (uint32_t i = threadIdx.x; i < kSplitters; i += blockDim.x) {
    space.splitters[i] = items[uint64_t{n} * i / kSplitters];
  }
  for (uint32_t i = threadIdx.x; i < kDigits; i += blockDim.x) space.select.counts[i] = 0;
  SortRanked(space.splitters, kSplitters);
  buckets.splitters = space.splitters;
}

// Counts of the buckets of items[0, n), as their begins. Whether all are small. The counts are 0.
__device__ inline bool FillBuckets(const Ranked<uint32_t>* items, uint32_t n,
                                   const Buckets& buckets, SelectSpace& space) {
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
    atomicAdd(&space.counts[buckets.Of(items[i])], 1u);
  }
  __syncthreads();
  return BeginBuckets(space);
}

// Puts items[0, n) in order; there is room for `n` more at `other`. The counts are 0. Each element is compared with
// those of its bucket. Where many are in one, elements part them; where that fails too, all are sorted by exchanges.
__device__ inline void SortItems(Ranked<uint32_t>* items, Ranked<uint32_t>* other, uint32_t n,
                                 const WordOrder& order, BucketSpace& space) {
  Buckets buckets = BucketsOf(items, n, order, space);
  uint32_t* ends = space.select.counts;
  bool small = false;
#pragma unroll 1
  for (int turn = 0; turn < 2 && !small; ++turn) {
    if (turn > 0) SplitEvenly(items, n, buckets, space);
    small = FillBuckets(items, n, buckets, space.select);
  }
  if (!small) {
    uint32_t sorted = 1;
    while (sorted < n) sorted *= 2;
    for (uint32_t i = n + threadIdx.x; i < sorted; i += blockDim.x) items[i] = {0, UINT32_MAX};
    return SortRanked(items, sorted);
  }
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
    other[atomicAdd(&ends[buckets.Of(items[i])], 1u)] = items[i];
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
    const Ranked<uint32_t> item = other[i];
    const uint32_t bucket = buckets.Of(item), end = ends[bucket];
    uint32_t at = bucket == 0 ? 0 : ends[bucket - 1];
    for (uint32_t j = at; j < end; ++j) at += ComesBefore(other[j], item) ? 1 : 0;
    items[at] = item;
  }
  __syncthreads();
}

}  // namespace pagefuse::cuda
