// SPDX-License-Identifier: Apache-2.0
// The best elements of a row, in order, by one block of threads: a radix select finds the key of the last one, those
// that reach it are collected, and a bitonic sort puts them in order. Larger keys are better, of equal ones that of
// the lower index. Device code, and the choice of a block on the host.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {

template <typename Key>
struct alignas(2 * sizeof(Key)) Ranked {
  Key key;
  uint32_t index;
};

inline constexpr int kMostSelectThreads = 1024;
// Rows and numbers of wanted elements that can be sorted.
inline constexpr int64_t kMostRanked = int64_t{1} << 30;

// The blocks for rows of `width` elements of which `wanted` are asked for: threads, and room for how many elements
// each has. Where shared memory does not hold them, the workspace does.
struct SelectPlan {
  int threads = 0;
  uint32_t capacity = 0;  // a power of two
  size_t shared_bytes = 0, workspace_bytes = 0;

  SelectPlan(int64_t width, int64_t wanted, size_t item_bytes) {
    // Shorter rows are sorted as a whole: that costs less than a selection.
    constexpr int64_t kShortRow = 2048, kFewestThreads = 32;
    constexpr size_t kMostShared = 32 << 10;
    const bool is_short = width <= kShortRow;
    const int64_t kept = std::max<int64_t>(is_short ? width : std::min(wanted, width), 1);
    capacity = std::bit_ceil(static_cast<uint32_t>(kept));
    threads = is_short ? static_cast<int>(
                             std::clamp<int64_t>(capacity / 2, kFewestThreads, kMostSelectThreads))
                       : kMostSelectThreads;
    const size_t bytes = capacity * item_bytes;
    (bytes <= kMostShared ? shared_bytes : workspace_bytes) = bytes;
  }
};

#ifdef __CUDACC__

inline constexpr int kDigitBits = 11, kDigits = 1 << kDigitBits;

// In shared memory, of one block.
struct SelectSpace {
  uint32_t counts[kDigits];
  uint32_t warp_sums[kMostSelectThreads / kWarp];
  uint32_t digit, above, inside;  // what FindDigit found
  uint32_t taken;
};

// f(i, there, word) for all i < count and some more, which are not there: word_at(i, word) says whether i is and
// sets its word. The lanes of a warp come together; a few loads are on their way at a time.
template <typename Word, typename WordAt, typename F>
__device__ void ForWords(uint32_t count, const WordAt& word_at, const F& f) {
  constexpr int kBatch = 4;
  for (uint32_t base = threadIdx.x; base - threadIdx.x < count; base += kBatch * blockDim.x) {
    Word words[kBatch];
    bool there[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const uint32_t i = base + j * blockDim.x;
      words[j] = 0;
      there[j] = i < count && word_at(i, words[j]);
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) f(base + j * blockDim.x, there[j], words[j]);
  }
}

// One more of `digit`, in the lanes that have one. Most lanes have the same where keys are alike: they count as one.
__device__ inline void CountDigit(bool there, uint32_t digit, uint32_t* counts) {
  const unsigned lanes = __ballot_sync(kAllLanes, there);
  if (lanes == 0) return;
  const int leader = __ffs(static_cast<int>(lanes)) - 1;
  const uint32_t first = __shfl_sync(kAllLanes, digit, leader);
  const unsigned same = __ballot_sync(kAllLanes, there && digit == first);
  if (LaneId() == leader) {
    atomicAdd(&counts[first], static_cast<uint32_t>(__popc(same)));
  } else if (there && digit != first) {
    atomicAdd(&counts[digit], 1u);
  }
}

// The sum over the threads before this one.
__device__ inline uint32_t SumBefore(uint32_t own, uint32_t* warp_sums) {
  uint32_t sum = own;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, sum, distance);
    if (LaneId() >= distance) sum += other;
  }
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (LaneId() == kWarp - 1) warp_sums[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += warp_sums[w];
  return sum - own;
}

// The digit of the `wanted`-th largest word by the counts of digits, how many words have a larger one, and how many
// this one.
__device__ inline void FindDigit(uint32_t wanted, SelectSpace& space) {
  const auto per_thread = static_cast<int>(kDigits / blockDim.x);
  int digit = kDigits - 1 - static_cast<int>(threadIdx.x) * per_thread;
  uint32_t own = 0;
  for (int j = 0; j < per_thread; ++j) own += space.counts[digit - j];
  uint32_t above = SumBefore(own, space.warp_sums);
  if (above < wanted && wanted - above <= own) {
    while (wanted - above > space.counts[digit]) above += space.counts[digit--];
    space.digit = static_cast<uint32_t>(digit);
    space.above = above;
    space.inside = space.counts[digit];
  }
  __syncthreads();
}

// The `wanted` largest words: those above `least`, and `equal` of those that equal it; where `all`, these are all.
template <typename Word>
struct Bound {
  Word least = 0;
  uint32_t equal = 0;
  bool all = false;
};

// Of words of `bits` bits, of which there are as many as are wanted, and not 0 are.
template <typename Word, typename WordAt>
__device__ Bound<Word> FindBound(uint32_t count, const WordAt& word_at, int bits, uint32_t wanted,
                                 SelectSpace& space) {
  Bound<Word> bound{.equal = wanted};
  Word known = 0;  // the bits that are found
  for (int end = bits; end > 0 && !bound.all;) {
    const int shift = max(end - kDigitBits, 0);
    const Word digits = (Word{1} << (end - shift)) - 1;
    for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += static_cast<int>(blockDim.x)) {
      space.counts[i] = 0;
    }
    __syncthreads();
    ForWords<Word>(count, word_at, [&](uint32_t, bool there, Word word) {
      CountDigit(there && (word & known) == bound.least,
                 static_cast<uint32_t>(word >> shift & digits), space.counts);
    });
    __syncthreads();
    FindDigit(bound.equal, space);
    bound.least |= Word{space.digit} << shift;
    bound.equal -= space.above;
    bound.all = space.inside == bound.equal;
    known |= digits << shift;
    end = shift;
  }
  return bound;
}

// The last element of the `wanted` best: those with a larger key, and of those with an equal one up to the index.
template <typename Key, typename KeyAt>
__device__ Ranked<Key> FindLast(uint32_t count, const KeyAt& key_at, int bits, uint32_t wanted,
                                SelectSpace& space) {
  const auto keys = [&](uint32_t i, Key& key) {
    key = key_at(i);
    return true;
  };
  const Bound<Key> bound = FindBound<Key>(count, keys, bits, wanted, space);
  if (bound.all) return {bound.least, UINT32_MAX};
  // Of the equal ones, those of the lowest indices: the largest in complement.
  const int index_bits = 32 - __clz(static_cast<int>(count - 1));
  const uint32_t most = (uint32_t{1} << index_bits) - 1;
  const auto indices = [&](uint32_t i, uint32_t& word) {
    word = most - i;
    return key_at(i) == bound.least;
  };
  const Bound<uint32_t> last = FindBound<uint32_t>(count, indices, index_bits, bound.equal, space);
  return {bound.least, most - last.least};
}

template <typename Key>
__device__ bool ComesBefore(const Ranked<Key>& a, const Ranked<Key>& b) {
  return a.key > b.key || (a.key == b.key && a.index < b.index);
}

// Puts items[0, n), n a power of two, in order. Steps between neighbours stay within a warp's elements.
template <typename Key>
__device__ void SortRanked(Ranked<Key>* items, uint32_t n) {
  __syncthreads();
  for (uint32_t size = 2; size <= n; size *= 2) {
    for (uint32_t distance = size / 2; distance > 0; distance /= 2) {
      for (uint32_t pair = threadIdx.x; pair < n / 2; pair += blockDim.x) {
        const uint32_t i = 2 * pair - (pair & (distance - 1));
        const Ranked<Key> a = items[i], b = items[i + distance];
        const bool best_first = (i & size) == 0;
        if (ComesBefore(b, a) == best_first) items[i] = b, items[i + distance] = a;
      }
      const bool next_is_far = distance == 1 && size > kWarp;
      if (distance > kWarp || next_is_far) {
        __syncthreads();
      } else {
        __syncwarp();
      }
    }
  }
  __syncthreads();
}

// Writes the elements that are not behind `last` to items, in any order.
template <typename Key, typename KeyAt>
__device__ void Collect(uint32_t count, const KeyAt& key_at, const Ranked<Key>& last,
                        Ranked<Key>* items, SelectSpace& space) {
  if (threadIdx.x == 0) space.taken = 0;
  __syncthreads();
  const auto taken = [&](uint32_t i, Key& key) {
    key = key_at(i);
    return !ComesBefore(last, Ranked<Key>{key, i});
  };
  ForWords<Key>(count, taken, [&](uint32_t i, bool there, Key key) {
    const unsigned lanes = __ballot_sync(kAllLanes, there);
    if (lanes == 0) return;
    const int lane = LaneId();
    uint32_t at = 0;
    if (lane == 0) at = atomicAdd(&space.taken, static_cast<uint32_t>(__popc(lanes)));
    at = __shfl_sync(kAllLanes, at, 0) + static_cast<uint32_t>(__popc(lanes & ((1u << lane) - 1)));
    if (there) items[at] = {key, i};
  });
}

// Of the `count` elements of a row, with keys key_at(i) of `bits` bits, the `wanted` best in order: to items, which
// have room for `capacity`, at least as many as are wanted. Returns how many there are; all threads see them.
template <typename Key, typename KeyAt>
__device__ uint32_t SelectBest(uint32_t count, const KeyAt& key_at, int bits, uint32_t wanted,
                               Ranked<Key>* items, uint32_t capacity, SelectSpace& space) {
  uint32_t kept = count;
  if (count <= capacity) {
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) items[i] = {key_at(i), i};
  } else {
    kept = wanted;
    Collect(count, key_at, FindLast<Key>(count, key_at, bits, wanted, space), items, space);
  }
  uint32_t sorted = 1;
  while (sorted < kept) sorted *= 2;
  // What fills up comes behind every element.
  for (uint32_t i = kept + threadIdx.x; i < sorted; i += blockDim.x) items[i] = {0, UINT32_MAX};
  SortRanked(items, sorted);
  return min(kept, wanted);
}

// Where the elements of this block are: in shared memory, or where there is a workspace, in its part of that.
template <typename Key>
__device__ Ranked<Key>* ItemsOfBlock(void* workspace, uint32_t capacity) {
  extern __shared__ __align__(16) unsigned char select_items[];
  if (workspace == nullptr) return reinterpret_cast<Ranked<Key>*>(select_items);
  return static_cast<Ranked<Key>*>(workspace) + static_cast<size_t>(blockIdx.x) * capacity;
}

#endif  // __CUDACC__

}  // namespace pagefuse::cuda
