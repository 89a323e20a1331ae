// SPDX-License-Identifier: Apache-2.0
// From which key on the elements of a row that a cluster shares reach a goal, and those elements as a row of their own. Device
// code alone.
#pragma once

#include <cstdint>
#include <type_traits>

#include "pagefuse/ops/kernels/cuda/sampling_row.h"
#include "pagefuse/ops/kernels/cuda/sampling_sums.h"

namespace pagefuse::cuda {

struct KeyRange {
  uint32_t least, most;

  // Of keys to digits.
  __device__ int Shift() const {
    return max(32 - __clz(static_cast<int>(most - least)) - kKeyDigitBits, 0);
  }
};

// The value of elements that are counted.
struct One {
  __device__ uint64_t operator()(uint32_t) const { return 1; }
};

// Adds without 64-bit atomics, which shared memory does not have.
__device__ inline void AddToDigit(uint64_t value, uint32_t digit, RowSpace& space) {
  const auto low = static_cast<uint32_t>(value);
  auto high = static_cast<uint32_t>(value >> 32);
  if (low != 0 && atomicAdd(&space.low[digit], low) > UINT32_MAX - low) ++high;
  if (high != 0) atomicAdd(&space.high[digit], high);
}
// The same to that of the first block.
__device__ inline void AddToFirst(int digit, RowSpace& space) {
  const uint32_t low = space.low[digit];
  uint32_t high = space.high[digit];
  if (low != 0 && ptx::AddInBlock(&space.low[digit], 0, low) > UINT32_MAX - low) ++high;
  if (high != 0) ptx::AddInBlock(&space.high[digit], 0, high);
}

// Narrows the range to the keys of one digit: with that, values of larger keys of the range reach the goal; with none, the
// smallest digit. space.left is what is left of the goal for the digit, space.inside its own sum. for_keys(f) calls f(key)
// for elements of this thread, of all keys.
template <class ForKeys, class Value>
__device__ void Narrow(const ForKeys& for_keys, const Value& value, uint64_t goal, KeyRange& range,
                       RowTeam& team) {
  RowSpace& space = team.space;
  const int shift = range.Shift();
  for_keys([&](uint32_t key) {
    if (key < range.least || key > range.most) return;
    const uint32_t digit = (key - range.least) >> shift;
    if constexpr (std::is_same_v<Value, One>) {
      atomicAdd(&space.low[digit],
                1u);  // of a warp's equal digits at a time: nothing asks what there was
    } else {
      AddToDigit(value(key), digit, space);
    }
  });
  __syncthreads();
  const int digit = kKeyDigits - 1 - static_cast<int>(threadIdx.x);
  if (team.place.block != 0) AddToFirst(digit, space);
  ptx::WaitForCluster();
  if (team.place.block == 0) {
    const uint64_t own = uint64_t{space.high[digit]} << 32 | space.low[digit];
    const uint64_t before = SumOfThreadsBefore(own, space);
    if (before < goal && (goal - before <= own || digit == 0)) {
      for (int b = 0; b < team.place.blocks; ++b) {
        TellBlock(&space.left, b, goal - before);
        TellBlock(&space.inside, b, own);
        ptx::StoreInBlock(&space.digit, b, static_cast<uint32_t>(digit));
      }
    }
  }
  space.low[digit] = space.high[digit] = 0;
  ptx::WaitForCluster();
  range.least += space.digit << shift;
  range.most = min(range.most, range.least + (uint32_t{1} << shift) - 1);
}

// Narrows the range until the elements of its least key or more are the fewest that reach the goal: all of them, or, where one
// key is left, some of those that have it.
template <class Value>
__device__ void NarrowToGoal(const RowPart& part, const Value& value, uint64_t goal,
                             KeyRange& range, RowTeam& team) {
  const auto for_keys = [&](const auto& f) {
    ForElements(part, [&](uint32_t key, uint32_t) { f(key); });
  };
  do {
    Narrow(for_keys, value, goal, range, team);
    goal = team.space.left;
  } while (range.least != range.most && goal != team.space.inside);
}

// f(key, index) of all elements of the threads of a warp of which `sought` says so, and of some others. All its lanes come; each thread has
// those that ForElements gives it.
template <class F>
__device__ void ForElementsOf(const RowPart& part, bool sought, const F& f) {
  constexpr int kFewThreads =
      8;  // whose pieces, which lie far from each other, the lanes read at a time
  unsigned lanes = __ballot_sync(kAllLanes, sought);
  if (lanes == 0) return;
  if (part.keys != nullptr || __popc(lanes) > kFewThreads) return ForElements(part, f);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(__ffs(static_cast<int>(lanes)) - 1);
    const uint32_t thread = threadIdx.x / kWarp * kWarp + lane;
    for (uint32_t piece = part.begin + thread + LaneId() * kRowThreads; piece < part.end;
         piece += kWarp * kRowThreads) {
      const uint32_t index = part.IndexOf(piece);
#pragma unroll 1
      for (uint32_t j = 0; j < 4; ++j) {
        if (index + j < part.count) f(KeyOfLogit(part.from[index + j]), index + j);
      }
    }
  }
}

// Puts elements of key `least` or more into `listed` of the first block, in any order; returns how many there are. More than
// kMostListed do not come there. `best` is the largest key of this thread's elements.
__device__ inline uint32_t Collect(const RowPart& part, uint32_t least, uint32_t best,
                                   RowTeam& team) {
  RowSpace& space = team.space;
  ForElementsOf(part, best >= least, [&](uint32_t key, uint32_t index) {
    if (key < least) return;
    const uint32_t at = atomicAdd(&space.taken, 1u);
    if (at < kMostListed) space.listed[at] = {~index, key};
  });
  __syncthreads();
  const uint32_t own = space.taken;
  const auto count = static_cast<uint32_t>(SumOfCluster(threadIdx.x == 0 ? own : 0, team));
  if (count > kMostListed) return count;
  uint64_t before = 0;
  for (int b = 0; b < team.place.block; ++b) before += OfBlocks(team)[b];
  if (team.place.block != 0 && threadIdx.x < own) {
    const Ranked<uint32_t> item = space.listed[threadIdx.x];
    ptx::StoreInBlock(reinterpret_cast<uint2*>(&space.listed[before + threadIdx.x]), 0,
                      {item.key, item.index});
  }
  ptx::WaitForCluster();
  return count;
}

// What was collected as a row, in order, by the first block.
__device__ inline RowPart ListedRow(uint32_t count, RowSpace& space) {
  uint32_t sorted = 1;
  while (sorted < count) sorted *= 2;
  for (uint32_t i = count + threadIdx.x; i < sorted; i += kRowThreads) space.listed[i] = {0, 0};
  SortRanked(space.listed, sorted);
  auto* keys = reinterpret_cast<uint32_t*>(space.listed_keys);
  keys[threadIdx.x] = threadIdx.x < count ? space.listed[threadIdx.x].index : 0;
  __syncthreads();
  return {nullptr, count, 0, 1, space.listed_keys};
}
static_assert(kMostListed == kRowThreads);

}  // namespace pagefuse::cuda
