// SPDX-License-Identifier: Apache-2.0
// SampleTokens: a block of threads a row. What stays of a row is what has a larger key than a bound, or the bound's own
// up to an index; sums of integer weights are exact, so that their order does not matter.
#include "pagefuse/ops/kernels/cuda/exp_weight.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/radix_select.h"
#include "pagefuse/ops/kernels/cuda/sampling.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"
#include "pagefuse/ops/kernels/numeric/share_of.h"
#include "pagefuse/ops/kernels/rows/logit_edit.h"
#include "pagefuse/ops/kernels/rows/sample_settings.h"

namespace pagefuse::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / kWarp;
// Pieces of a row, in order, whose sums lie in shared memory.
constexpr int kPieces = 1024;
constexpr uint32_t kNoBits = 0;

// In shared memory, of one block.
struct Space {
  SelectSpace select;
  uint64_t sums[kPieces];  // of pieces, or of digits
  uint64_t warp_sums[kWarps];
  uint64_t best;
  uint64_t found;
  int32_t index;
};
static_assert(kPieces <= kDigits);

// Larger for larger logits; those of either zero are equal.
__device__ uint32_t KeyOf(float logit) {
  const uint32_t bits = __float_as_uint(__fadd_rn(logit, 0.0f));
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ float LogitOf(uint32_t key) {
  return __uint_as_float(key >> 31 != 0 ? key & 0x7FFFFFFFu : ~key);
}

// What may come of a row.
struct Kept {
  const float* logits;
  uint32_t columns;
  WeightScale scale = {};
  uint64_t least_weight = 0;
  uint32_t least_key = kNoBits, last_index = UINT32_MAX;

  __device__ bool Reaches(uint32_t i) const {
    const uint32_t key = KeyOf(logits[i]);
    return key > least_key || (key == least_key && i <= last_index);
  }
  // 0 where it may not come.
  __device__ uint64_t WeightAt(uint32_t i) const {
    if (!Reaches(i)) return 0;
    const uint64_t weight = ExpWeight(logits[i], scale);
    return weight >= least_weight ? weight : 0;
  }
};

// The block's sum; all threads have it.
__device__ uint64_t SumOfBlock(uint64_t value, Space& space) {
  value = SumOfLanes(value);
  __syncthreads();
  if (LaneId() == 0) space.warp_sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  uint64_t sum = 0;
  for (const uint64_t of_warp : space.warp_sums) sum += of_warp;
  return sum;
}

// --- edits ---

// Whether all are numbers, and none is infinity.
__device__ bool AreNumbers(const float* logits, uint32_t columns) {
  bool wrong = false;
  for (uint32_t i = threadIdx.x; i < columns; i += kThreads) {
    wrong = wrong || !(logits[i] < __uint_as_float(0x7F800000u));
  }
  return __syncthreads_or(wrong ? 1 : 0) == 0;
}

// The row itself, or where it has edits, a copy with these.
__device__ const float* EditedRow(const SampleTokens& call, int64_t row) {
  const float* logits = call.logits + row * call.columns;
  const auto within = [&](int64_t edit) { return min(max(edit, int64_t{0}), call.edits); };
  const int64_t begin = within(call.edit_starts[row]), end = within(call.edit_starts[row + 1]);
  if (begin >= end) return logits;
  float* edited = call.edited + row * call.columns;
  for (int64_t i = threadIdx.x; i < call.columns; i += kThreads) edited[i] = logits[i];
  __syncthreads();
  const double* settings = call.settings + row * kSampleSettings;
  const LogitPenalties penalties = {settings[kRepetition], settings[kFrequency],
                                    settings[kPresence]};
  for (int64_t e = begin + threadIdx.x; e < end; e += kThreads) {
    const int64_t token = call.edit_tokens[e];
    if (token < 0 || token >= call.columns) continue;
    const LogitEdit edit = {call.edit_bias[e], call.edit_counts[e]};
    edited[token] = EditedLogit(logits[token], edit, penalties);
  }
  __syncthreads();
  return edited;
}

// --- the largest ---

// Its key, and below that the complement of its index: of equal ones the first.
__device__ uint64_t BestOf(const float* logits, uint32_t columns, Space& space) {
  uint64_t best = 0;
  for (uint32_t i = threadIdx.x; i < columns; i += kThreads) {
    best = max(best, uint64_t{KeyOf(logits[i])} << 32 | (UINT32_MAX - i));
  }
  best = OverLanes(best, [](uint64_t a, uint64_t b) { return max(a, b); });
  if (LaneId() == 0) space.warp_sums[threadIdx.x / kWarp] = best;
  __syncthreads();
  for (const uint64_t of_warp : space.warp_sums) best = max(best, of_warp);
  __syncthreads();
  return best;
}

// --- sums in order ---

__device__ uint32_t PieceLength(uint32_t columns) {
  return (columns + kPieces * kWarp - 1) / (kPieces * kWarp) * kWarp;
}

// space.sums = sums of value(i) by pieces.
template <class Value>
__device__ void SumPieces(uint32_t columns, const Value& value, Space& space) {
  const uint32_t length = PieceLength(columns);
  __syncthreads();
  for (uint32_t piece = threadIdx.x / kWarp; piece < kPieces; piece += kWarps) {
    const uint32_t begin = min(piece * length, columns), end = min(begin + length, columns);
    uint64_t sum = 0;
    for (uint32_t i = begin + LaneId(); i < end; i += kWarp) sum += value(i);
    sum = SumOfLanes(sum);
    if (LaneId() == 0) space.sums[piece] = sum;
  }
  __syncthreads();
}

// Of the lanes before this one.
__device__ uint64_t SumOfLanesBefore(uint64_t own) {
  uint64_t sum = own;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, sum, distance);
    if (LaneId() >= distance) sum += other;
  }
  return sum - own;
}

// The first index up to which the values sum to more than `sum`, which is less than all of them. SumPieces came before.
template <class Value>
__device__ uint32_t IndexOf(uint32_t columns, const Value& value, uint64_t sum, Space& space) {
  if (threadIdx.x == 0) {
    uint32_t piece = 0;
    for (; piece + 1 < kPieces && sum >= space.sums[piece]; ++piece) sum -= space.sums[piece];
    space.found = sum;
    space.index = static_cast<int32_t>(piece);
  }
  __syncthreads();
  if (threadIdx.x < kWarp) {
    const uint32_t length = PieceLength(columns);
    const uint32_t begin = static_cast<uint32_t>(space.index) * length;
    uint64_t left = space.found;
    for (uint32_t base = begin; base < min(begin + length, columns); base += kWarp) {
      const uint32_t i = base + LaneId();
      const uint64_t own = i < columns ? value(i) : 0;
      const uint64_t before = SumOfLanesBefore(own);
      const unsigned passes = __ballot_sync(kAllLanes, own > 0 && before + own > left);
      if (passes != 0) {
        if (LaneId() == 0)
          space.index = static_cast<int32_t>(base + __ffs(static_cast<int>(passes)) - 1);
        break;
      }
      left -= SumOfLanes(own);
    }
  }
  __syncthreads();
  return static_cast<uint32_t>(space.index);
}

// --- what may come ---

// The k largest, with those equal to the last.
__device__ void KeepTopK(double k, Kept& kept, Space& space) {
  if (k >= kept.columns) return;
  const auto key_at = [&](uint32_t i, uint32_t& key) {
    key = KeyOf(kept.logits[i]);
    return true;
  };
  const Bound<uint32_t> bound =
      FindBound<uint32_t>(kept.columns, key_at, 32, static_cast<uint32_t>(k), space.select);
  kept.least_key = bound.least;
  if (!bound.all) return;
  // All of the digits that were looked at stay: the least of these.
  uint32_t least = UINT32_MAX;
  for (uint32_t i = threadIdx.x; i < kept.columns; i += kThreads) {
    const uint32_t key = KeyOf(kept.logits[i]);
    if (key >= bound.least) least = min(least, key);
  }
  least = OverLanes(least, [](uint32_t a, uint32_t b) { return min(a, b); });
  if (LaneId() == 0) space.warp_sums[threadIdx.x / kWarp] = least;
  __syncthreads();
  for (const uint64_t of_warp : space.warp_sums) least = min(least, static_cast<uint32_t>(of_warp));
  __syncthreads();
  kept.least_key = least;
}

// Adds the weights of a warp's elements to those of their digits, one digit after the other.
__device__ void AddToDigit(uint64_t weight, uint32_t digit, uint64_t* sums) {
  unsigned lanes = __ballot_sync(kAllLanes, weight > 0);
  while (lanes != 0) {
    const int leader = __ffs(static_cast<int>(lanes)) - 1;
    const bool is_same = digit == __shfl_sync(kAllLanes, digit, leader);
    const uint64_t sum = SumOfLanes(is_same ? weight : 0);
    if (LaneId() == leader) atomicAdd(reinterpret_cast<unsigned long long*>(&sums[digit]), sum);
    lanes &= ~__ballot_sync(kAllLanes, is_same);
  }
}

// The fewest of the largest, of equal ones the first, whose weights reach `part` of all.
__device__ void KeepTopP(double part, Kept& kept, Space& space) {
  constexpr int kBits = 8, kBins = 1 << kBits;
  uint64_t own = 0;
  for (uint32_t i = threadIdx.x; i < kept.columns; i += kThreads) own += kept.WeightAt(i);
  uint64_t goal = ShareOf(part, SumOfBlock(own, space));
  uint32_t key = 0;
  const uint32_t rounds = (kept.columns + kThreads - 1) / kThreads;
  for (int shift = 32 - kBits; shift >= 0; shift -= kBits) {
    if (threadIdx.x < kBins) space.sums[threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t round = 0; round < rounds; ++round) {
      const uint32_t i = round * kThreads + threadIdx.x;
      const uint32_t of_logit = i < kept.columns ? KeyOf(kept.logits[i]) : 0;
      const bool is_known = i < kept.columns && uint64_t{of_logit ^ key} >> (shift + kBits) == 0;
      const uint64_t weight = is_known ? kept.WeightAt(i) : 0;
      AddToDigit(weight, of_logit >> shift & (kBins - 1), space.sums);
    }
    __syncthreads();
    int digit = kBins - 1;
    for (; digit > 0 && space.sums[digit] < goal; --digit) goal -= space.sums[digit];
    key |= static_cast<uint32_t>(digit) << shift;
    __syncthreads();
  }
  // Equal logits have equal weights: so many of them.
  const uint64_t weight = ExpWeight(LogitOf(key), kept.scale);
  const uint64_t count = weight == 0 ? 1 : (goal + weight - 1) / weight;
  const auto is_equal = [&](uint32_t i) -> uint64_t {
    return KeyOf(kept.logits[i]) == key && kept.WeightAt(i) > 0 ? 1 : 0;
  };
  SumPieces(kept.columns, is_equal, space);
  const uint32_t last = IndexOf(kept.columns, is_equal, count - 1, space);
  kept.least_key = key;
  kept.last_index = last;
}

__device__ int64_t Draw(const double* settings, uint64_t random, Kept& kept, Space& space) {
  if (settings[kTopK] > 0) KeepTopK(settings[kTopK], kept, space);
  if (settings[kMinP] > 0) {
    kept.least_weight = ShareOf(settings[kMinP], uint64_t{1} << kWeightBits);
  }
  if (settings[kTopP] < 1) KeepTopP(settings[kTopP], kept, space);
  const auto weight_at = [&](uint32_t i) { return kept.WeightAt(i); };
  SumPieces(kept.columns, weight_at, space);
  const uint64_t total = SumOfBlock(space.sums[threadIdx.x], space);
  return IndexOf(kept.columns, weight_at, __umul64hi(random, total), space);
}

__device__ int64_t TokenOf(const SampleTokens& call, int64_t row, Space& space) {
  constexpr int64_t kNone = -1;
  const auto columns = static_cast<uint32_t>(call.columns);
  const double* settings = call.settings + row * kSampleSettings;
  if (!AreNumbers(call.logits + row * call.columns, columns)) return kNone;
  Kept kept = {.logits = EditedRow(call, row), .columns = columns};
  if (!AreNumbers(kept.logits, columns)) return kNone;
  const uint64_t best = BestOf(kept.logits, columns, space);
  const float largest = LogitOf(static_cast<uint32_t>(best >> 32));
  if (isinf(largest)) return kNone;
  if (settings[kTemperature] == 0) return UINT32_MAX - static_cast<uint32_t>(best);
  if (columns >= uint32_t{1} << (64 - kWeightBits)) return kNone;
  constexpr double kMost = 1.7976931348623157e308;
  kept.scale = {largest, fmin(__ddiv_rn(1.0, settings[kTemperature]), kMost)};
  return Draw(settings, static_cast<uint64_t>(call.random[row]), kept, space);
}

__global__ void __launch_bounds__(kThreads)
    SampleKernel(const __grid_constant__ SampleTokens call) {
  __shared__ Space space;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t row = blockIdx.x;
  const int64_t token = TokenOf(call, row, space);
  if (threadIdx.x == 0) call.tokens[row] = token;
}

}  // namespace

size_t SampleWorkspace(const SampleTokens& call) {
  return call.edits == 0 ? 0 : static_cast<size_t>(call.rows * call.columns) * sizeof(float);
}

Error LaunchSampleTokens(const SampleTokens& call, Stream stream) {
  if (call.rows == 0) return 0;
  if (call.rows > INT32_MAX || call.columns > INT32_MAX - kPieces * kWarp) return kTooLarge;
  return Launch(SampleKernel, {.grid = static_cast<uint32_t>(call.rows), .block = kThreads}, stream,
                call);
}

}  // namespace pagefuse::cuda
