// SPDX-License-Identifier: Apache-2.0
// SampleTokens: a cluster of blocks a row, of which each has a part. What stays of a row is what has a larger key than a bound,
// or the bound's own up to an index; where that is little, the first block alone has it as a row of its own.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/cluster.h"
#include "pagefuse/ops/kernels/cuda/exp_weight.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/sampling.h"
#include "pagefuse/ops/kernels/cuda/sampling_row.h"
#include "pagefuse/ops/kernels/cuda/sampling_select.h"
#include "pagefuse/ops/kernels/cuda/sampling_sums.h"
#include "pagefuse/ops/kernels/cuda/shared_memory.h"
#include "pagefuse/ops/kernels/numeric/share_of.h"
#include "pagefuse/ops/kernels/rows/logit_edit.h"
#include "pagefuse/ops/kernels/rows/sample_settings.h"

namespace pagefuse::cuda {
namespace {

constexpr int64_t kNone = -1;
// Another block has the token.
constexpr int64_t kNotHere = -2;

// What may come of a row.
struct Kept {
  WeightScale scale;
  uint64_t least_weight;  // 1 or more
  uint32_t least_key;
  uint32_t last_index = UINT32_MAX;  // of those with the least key

  // 0 where it may not come.
  __device__ uint64_t WeightOf(uint32_t key) const {
    if (key < least_key) return 0;
    const uint64_t weight = ExpWeight(LogitOfKey(key), scale);
    return weight >= least_weight ? weight : 0;
  }
  __device__ uint64_t WeightAt(uint32_t key, uint32_t index) const {
    return key == least_key && index > last_index ? 0 : WeightOf(key);
  }
};

// No logit of a smaller key has so much weight. A little less than the least that has: roundings do not decide here.
__device__ uint32_t KeyBelowWeight(uint64_t weight, const WeightScale& scale) {
  constexpr double kUnit = 1.0 / (uint64_t{1} << kWeightBits);
  const double x = log((static_cast<double>(weight) - 0.5) * kUnit);
  const double bound = scale.largest + x / scale.inverse_temperature;
  return max(KeyOfLogit(static_cast<float>(bound - fabs(bound) * 1e-5 - 1e-5)), kMinusInfinityKey);
}

// --- the row ---

// The largest of some elements, of equal ones the first, which come in the order of their indices.
struct Best {
  uint32_t key = 0, index = 0;

  __device__ void See(uint32_t other, uint32_t i) {
    if (other > key) key = other, index = i;
  }
  __device__ uint64_t Word() const { return uint64_t{key} << 32 | (UINT32_MAX - index); }
};

// The edits of a row.
struct RowEdits {
  const SampleTokens& call;
  int64_t row;
  int32_t begin, end;

  __device__ RowEdits(const SampleTokens& c, int64_t r) : call(c), row(r) {
    const auto most = static_cast<int32_t>(min(call.edits, int64_t{INT32_MAX}));
    const auto within = [&](int32_t edit) { return min(max(edit, 0), most); };
    begin = within(call.edit_starts[row]), end = within(call.edit_starts[row + 1]);
  }
  __device__ bool Exist() const { return begin < end; }

  // Those of the block's part, in shared memory or `edited`.
  __device__ void Apply(const RowPart& part, float* edited) const {
    const float* logits = call.logits + row * call.columns;
    const double* settings = call.settings + row * kSampleSettings;
    const LogitPenalties penalties = {settings[kRepetition], settings[kFrequency],
                                      settings[kPresence]};
    auto* keys = reinterpret_cast<uint32_t*>(part.keys);
    for (int64_t e = begin + int64_t{threadIdx.x}; e < end; e += kRowThreads) {
      const int64_t token = call.edit_tokens[e];
      const int64_t place = token + part.skipped;
      if (token < 0 || token >= call.columns || place < 4 * int64_t{part.begin} ||
          place >= 4 * int64_t{part.end}) {
        continue;
      }
      const LogitEdit edit = {call.edit_bias[e], call.edit_counts[e]};
      const float logit = EditedLogit(logits[token], edit, penalties);
      if (keys != nullptr) {
        keys[place - 4 * int64_t{part.begin}] = KeyOfLogit(logit);
      } else {
        edited[token] = logit;
      }
    }
  }
};

// Reads the block's part, into `keys` of shared memory unless that is null, and edits it. Returns the best of this thread;
// where not all logits were numbers, one above all.
__device__ Best ReadRow(const RowEdits& edits, uint4* keys, RowPart& part) {
  const SampleTokens& call = edits.call;
  // Aligned as the row is.
  float* edited = call.edited + reinterpret_cast<uintptr_t>(call.logits) / sizeof(float) % 4 +
                  edits.row * call.columns;
  const bool copies = keys == nullptr && edits.Exist();
  Best best;
  ForPieces<4>(part, [&](uint32_t piece, const uint4& four) {
    const uint32_t index = part.IndexOf(piece);
    const auto see = [&](uint32_t key, uint32_t i) {
      best.See(key, i);
      if (copies && key != 0) edited[i] = LogitOfKey(key);
    };
    see(four.x, index), see(four.y, index + 1), see(four.z, index + 2), see(four.w, index + 3);
    if (keys != nullptr && piece < part.end) keys[piece - part.begin] = four;
  });
  part.keys = keys;
  if (!edits.Exist()) return best;
  if (keys == nullptr) part.from = edited;
  __syncthreads();
  edits.Apply(part, edited);
  __syncthreads();
  if (best.key >= kInfinityKey) return best;
  best = {};
  ForElements(part, [&](uint32_t key, uint32_t index) { best.See(key, index); });
  return best;
}

// --- what may come ---

// The k largest, with those equal to the last.
__device__ void KeepTopK(const RowPart& part, uint32_t k, uint32_t largest, Kept& kept,
                         RowTeam& team) {
  if (k >= part.count) return;
  KeyRange range = {kept.least_key, largest};
  NarrowToGoal(part, One{}, k, range, team);
  kept.least_key = range.least;
}

// The fewest of the largest, of equal ones the first, whose weights reach `share` of all.
__device__ void KeepTopP(const RowPart& part, double share, uint32_t largest, Kept& kept,
                         RowTeam& team) {
  const auto weight_of = [&](uint32_t key) { return kept.WeightOf(key); };
  uint64_t own = 0;
  ForElements(part, [&](uint32_t key, uint32_t) { own += weight_of(key); });
  const uint64_t total = SumOfCluster(own, team);
  if (total == 0) return;
  const uint64_t goal = max(ShareOf(share, total), uint64_t{1});
  // All that weigh less than this do not come to what is behind the goal.
  const uint64_t least = max((total - goal) / part.count, uint64_t{1});
  KeyRange range = {max(kept.least_key, KeyBelowWeight(least, kept.scale)), largest};
  NarrowToGoal(part, weight_of, goal, range, team);
  const uint64_t left = team.space.left, inside = team.space.inside;
  const uint64_t weight = weight_of(range.least);
  kept.least_key = range.least;
  if (left == inside || weight == 0) return;
  // Equal logits have equal weights: so many of them.
  const uint64_t count = (left + weight - 1) / weight;
  if (count * weight >= inside) return;
  const auto is_equal = [&](uint32_t key, uint32_t) -> uint64_t {
    return key == range.least ? 1 : 0;
  };
  SumInOrder(part, is_equal, team);
  const uint64_t last = IndexOfSum(part, is_equal, count - 1, team);
  kept.last_index = static_cast<uint32_t>(
      OverCluster(last, team, [](uint64_t a, uint64_t b) { return min(a, b); }));
}

// The k-th best of all is no less than that of the bests of the threads: about where that is, none of them too low.
__device__ void KeepNearTopK(uint32_t k, uint32_t best, uint32_t largest, Kept& kept,
                             RowTeam& team) {
  constexpr uint64_t kMostMore = kMostListed / 8;  // bests than k
  const auto for_best = [&](const auto& f) { f(best); };
  KeyRange range = {kept.least_key, largest};
  do {
    Narrow(for_best, One{}, k, range, team);
    k = static_cast<uint32_t>(team.space.left);
  } while (range.least != range.most && team.space.inside > k + kMostMore);
  kept.least_key = range.least;
}

// Where few may come, makes them the row, in the first block. `best` is this thread's. False in blocks that have nothing left.
__device__ bool KeepFew(uint32_t k, uint32_t best, uint32_t largest, Kept& kept, RowPart& part,
                        RowTeam& team) {
  if (k > 0) KeepNearTopK(k, best, largest, kept, team);
  const uint32_t count = Collect(part, kept.least_key, best, team);
  if (count > kMostListed) return true;
  if (team.place.block != 0) return false;
  team.place.blocks = 1;
  part = ListedRow(count, team.space);
  return true;
}

__device__ int64_t Draw(const double* settings, uint64_t random, uint32_t best, uint32_t largest,
                        RowPart& part, RowTeam& team) {
  constexpr double kMost = 1.7976931348623157e308;
  Kept kept = {.scale = {LogitOfKey(largest), fmin(__ddiv_rn(1.0, settings[kTemperature]), kMost)},
               .least_weight = 1};
  const bool has_min = settings[kMinP] > 0;
  if (has_min) kept.least_weight = ShareOf(settings[kMinP], uint64_t{1} << kWeightBits);
  kept.least_key = KeyBelowWeight(kept.least_weight, kept.scale);
  const bool has_k = settings[kTopK] >= 1 && settings[kTopK] < part.count;
  const auto k = has_k ? static_cast<uint32_t>(settings[kTopK]) : 0;
  const bool seems_few = has_min || (has_k && k < kMostListed);
  if (seems_few && !KeepFew(k, best, largest, kept, part, team)) return kNotHere;
  if (has_k) KeepTopK(part, k, largest, kept, team);
  if (settings[kTopP] < 1) KeepTopP(part, settings[kTopP], largest, kept, team);
  const auto weight_at = [&](uint32_t key, uint32_t i) { return kept.WeightAt(key, i); };
  const uint64_t total = SumInOrder(part, weight_at, team);
  if (total == 0) return kNone;
  const uint32_t index = IndexOfSum(part, weight_at, __umul64hi(random, total), team);
  if (index == kInOtherBlock) return kNotHere;
  return part.from != nullptr ? index : ~team.space.listed[index].key;
}

__device__ int64_t TokenOf(const SampleTokens& call, int64_t row, uint4* keys, RowTeam& team) {
  const double* settings = call.settings + row * kSampleSettings;
  RowPart part(call.logits + row * call.columns, static_cast<uint32_t>(call.columns),
               team.place.block, team.place.blocks, nullptr);
  const Best own = ReadRow(RowEdits(call, row), keys, part);
  const uint64_t best =
      OverCluster(own.Word(), team, [](uint64_t a, uint64_t b) { return max(a, b); });
  const auto largest = static_cast<uint32_t>(best >> 32);
  if (largest >= kInfinityKey || largest <= kMinusInfinityKey) return kNone;
  if (settings[kTemperature] == 0) return UINT32_MAX - static_cast<uint32_t>(best);
  if (part.count >= uint32_t{1} << (64 - kWeightBits)) return kNone;
  return Draw(settings, static_cast<uint64_t>(call.random[row]), own.key, largest, part, team);
}

__global__ void __launch_bounds__(kRowThreads)
    SampleKernel(const __grid_constant__ SampleTokens call, int blocks, bool keeps_keys) {
  extern __shared__ __align__(16) unsigned char row_keys[];
  __shared__ RowSpace space;
  ptx::LetNextKernelBegin();
  space.low[threadIdx.x] = space.high[threadIdx.x] = 0;
  if (threadIdx.x == 0) space.taken = 0;
  ptx::WaitForCluster();
  ptx::WaitForKernelBefore();
  RowTeam team = {.place = {static_cast<int>(blockIdx.x) % blocks, blocks}, .space = space};
  const int64_t row = static_cast<int>(blockIdx.x) / blocks;
  const int64_t token =
      TokenOf(call, row, keeps_keys ? reinterpret_cast<uint4*>(row_keys) : nullptr, team);
  // Some or all blocks that have it have the same.
  if (threadIdx.x == 0 && token != kNotHere) call.tokens[row] = token;
}

// --- the choice of clusters ---

// Shared memory that a block may have beside RowSpace.
int MostKeyBytes() { return MostShared() - static_cast<int>(sizeof(RowSpace)); }

struct SamplePlan {
  int blocks = 1;            // of a cluster
  int64_t shared_bytes = 0;  // for the keys of a part; 0: they are read from memory each time

  explicit SamplePlan(const SampleTokens& call) {
    constexpr int64_t kFewestOfBlock = 4096;  // columns
    const int most = std::min(MostClusterBlocks(), kMostRowBlocks);
    while (blocks < most && call.rows * blocks * 2 <= Multiprocessors() &&
           call.columns > blocks * kFewestOfBlock) {
      blocks *= 2;
    }
    const int64_t pieces = CeilDiv(call.columns + 3, 4);
    const int64_t bytes = CeilDiv(pieces, blocks) * static_cast<int64_t>(sizeof(uint4));
    if (bytes <= MostKeyBytes()) shared_bytes = bytes;
  }
};

}  // namespace

size_t SampleWorkspace(const SampleTokens& call) {
  if (call.edits == 0 || SamplePlan(call).shared_bytes > 0) return 0;
  return static_cast<size_t>(call.rows * call.columns + 3) * sizeof(float);
}

Error LaunchSampleTokens(const SampleTokens& call, Stream stream) {
  if (call.rows == 0) return 0;
  const SamplePlan plan(call);
  if (call.rows > INT32_MAX / plan.blocks || call.columns > INT32_MAX - 4) return kTooLarge;
  // The same for all sizes: captured launches stay valid.
  constexpr auto kAttribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  const Error error = cudaFuncSetAttribute(SampleKernel, kAttribute, MostKeyBytes());
  if (error != 0) return error;
  const LaunchShape shape = {.grid = static_cast<unsigned>(call.rows * plan.blocks),
                             .block = kRowThreads,
                             .shared_bytes = static_cast<size_t>(plan.shared_bytes)};
  return LaunchClusters(SampleKernel, shape, plan.blocks, stream, call, plan.blocks,
                        plan.shared_bytes > 0);
}

}  // namespace pagefuse::cuda
