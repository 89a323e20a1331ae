// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/indexer/indexer_topk_hwy.cc"
#include <algorithm>
#include <numeric>
#include <utility>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/indexer/indexer_topk.h"
#include "pagefuse/ops/kernels/numeric/compress_to-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using pagefuse::HWY_NAMESPACE::CompressTo;

// Appends the logits of row from `begin` on that exceed `threshold` to the candidates while there
// is room for eight vectors more. Returns where it stopped. May write past the last candidate.
int64_t Scan(const TopKRow& row, int64_t begin, float threshold, const TopKCandidates& candidates,
             int64_t capacity, int64_t* count) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const int64_t lanes = hn::Lanes(df);
  const auto least = hn::Set(df, threshold);
  const auto step = hn::Iota(di, 0);
  int64_t n = *count;
  const auto append = [&](int64_t i, hn::Vec<decltype(df)> v) HWY_ATTR {
    const auto better = hn::Gt(v, least);
    CompressTo(df, v, better, candidates.logits + n);
    const auto indices = hn::Add(hn::Set(di, static_cast<int32_t>(i)), step);
    n += CompressTo(di, indices, hn::RebindMask(di, better), candidates.indices + n);
  };
  int64_t i = begin;
  for (; i + 4 * lanes <= row.count && n + 8 * lanes <= capacity; i += 4 * lanes) {
    const float* HWY_RESTRICT p = row.logits + i;
    const auto a = hn::LoadU(df, p);
    const auto b = hn::LoadU(df, p + lanes);
    const auto c = hn::LoadU(df, p + 2 * lanes);
    const auto d = hn::LoadU(df, p + 3 * lanes);
    // Four comparisons and not one of the maximum, which could hide a number behind NaN.
    const auto any = hn::Or(hn::Or(hn::Gt(a, least), hn::Gt(b, least)),
                            hn::Or(hn::Gt(c, least), hn::Gt(d, least)));
    if (hn::AllFalse(df, any)) continue;
    append(i, a);
    append(i + lanes, b);
    append(i + 2 * lanes, c);
    append(i + 3 * lanes, d);
  }
  for (; i < row.count && i + 4 * lanes > row.count && n < capacity; ++i) {
    if (!(row.logits[i] > threshold)) continue;
    candidates.logits[n] = row.logits[i];
    candidates.indices[n++] = static_cast<int32_t>(i);
  }
  *count = n;
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(Scan);

namespace {

// Eight vectors of any target and more.
constexpr int64_t kSlack = 1024;

// Candidates that are collected before the threshold rises: few rises on random logits, and the
// arrays stay in the caches near the core.
int64_t Capacity(int64_t topk, int64_t count) {
  constexpr int64_t kMinSpare = 4096;
  return std::min(count, topk + std::max(3 * topk, kMinSpare)) + kSlack;
}

// Adds the logits from `next` on that may be among the best to the candidates, all those that
// exceed `threshold` or as many as there is room for at a time.
int64_t ScanRow(const TopKRow& row, int64_t next, float threshold, const TopKCandidates& candidates,
                int64_t count) {
  const int64_t capacity = Capacity(row.topk, row.count);
  while (true) {
    next = HWY_DYNAMIC_DISPATCH(Scan)(row, next, threshold, candidates, capacity, &count);
    if (next == row.count) return count;
    threshold = KeepTopK(candidates, count, row.topk);
    count = row.topk;
  }
}

// A guess of the threshold by a sample saves all rises. It is right if it leaves enough candidates.
int64_t CollectByGuess(const TopKRow& row, const TopKCandidates& candidates, float* sample) {
  if (row.count < 4 * kTopKSample || row.count < 4 * row.topk) return 0;
  return ScanRow(row, 0, GuessThreshold(row, sample), candidates, 0);
}

// The first candidates come without a comparison: -inf and NaN are among them where there is
// nothing better.
int64_t CollectFromFirst(const TopKRow& row, const TopKCandidates& candidates) {
  const int64_t count = std::min(row.count, Capacity(row.topk, row.count) - kSlack);
  std::copy_n(row.logits, count, candidates.logits);
  std::iota(candidates.indices, candidates.indices + count, 0);
  if (count == row.count) return count;
  const float threshold = KeepTopK(candidates, count, row.topk);
  return ScanRow(row, count, threshold, candidates, row.topk);
}

}  // namespace

size_t TopKScratchBytes(int64_t topk, int64_t count) {
  // Candidates, their other halves while they are sorted, and the histogram.
  return static_cast<size_t>(Capacity(topk, count)) * 5 * sizeof(uint32_t) +
         TopKCandidates::kBins * sizeof(uint32_t);
}

void SelectTopKHwy(const TopKRow& row, void* scratch) {
  if (row.topk == 0) return;
  const int64_t capacity = Capacity(row.topk, row.count);
  auto* words = static_cast<uint32_t*>(scratch);
  const auto take = [&](int64_t count) { return std::exchange(words, words + count); };
  TopKCandidates candidates{};
  candidates.histogram = take(TopKCandidates::kBins);
  candidates.logits = reinterpret_cast<float*>(take(capacity));
  candidates.indices = reinterpret_cast<int32_t*>(take(capacity));
  const TopKSortSpace space{take(capacity), take(capacity),
                            reinterpret_cast<int32_t*>(take(capacity))};
  int64_t count = CollectByGuess(row, candidates, reinterpret_cast<float*>(space.keys));
  if (count < row.topk) count = CollectFromFirst(row, candidates);
  // Sorting some more costs less than picking the best of them first.
  if (count > 2 * row.topk) {
    KeepTopK(candidates, count, row.topk);
    count = row.topk;
  }
  const int64_t kept = SortTopK(candidates, count, space, row);
  std::fill(row.indices + kept, row.indices + row.topk, -1);
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
