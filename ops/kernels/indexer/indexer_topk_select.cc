// SPDX-License-Identifier: Apache-2.0
// The parts of the top-k selection that do not scan the row: exact threshold by histograms, and the
// final order by a radix sort. Both are linear, whatever the logits are.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "pagefuse/ops/kernels/indexer/indexer_topk.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr int kBits = TopKCandidates::kBits;
constexpr int64_t kBins = TopKCandidates::kBins;
constexpr uint32_t kBinMask = kBins - 1;

// Where the digits of a key begin: 11, 11 and 10 bits, the highest first.
constexpr int kShifts[] = {32 - kBits, 32 - 2 * kBits, 0};

// The key of the topk-th best candidate; *above counts those with a larger key.
uint32_t FindThreshold(const TopKCandidates& c, int64_t count, int64_t topk, int64_t* above) {
  uint32_t prefix = 0;
  uint32_t prefix_mask = 0;
  *above = 0;
  for (const int shift : kShifts) {
    std::fill_n(c.histogram, kBins, 0u);
    // The last digit overlaps the one before; its upper bits are fixed by then.
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t key = TopKKey(c.logits[i]);
      if ((key & prefix_mask) == prefix) ++c.histogram[key >> shift & kBinMask];
    }
    int64_t bin = kBins - 1;
    while (*above + c.histogram[bin] < topk) *above += c.histogram[bin--];
    prefix |= static_cast<uint32_t>(bin) << shift;
    prefix_mask |= kBinMask << shift;
    // A single candidate is left: its key is the threshold.
    if (c.histogram[bin] == 1 && shift != 0) {
      for (int64_t i = 0; i < count; ++i) {
        const uint32_t key = TopKKey(c.logits[i]);
        if ((key & prefix_mask) == prefix) return key;
      }
    }
  }
  return prefix;
}

}  // namespace

uint32_t TopKKey(float logit) {
  // NaN is as small as -inf; +0 stands for -0.
  const float number = std::isnan(logit) ? -HUGE_VALF : logit + 0.0f;
  const uint32_t bits = std::bit_cast<uint32_t>(number);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

float KeepTopK(const TopKCandidates& c, int64_t count, int64_t topk) {
  int64_t above = 0;
  const uint32_t threshold = FindThreshold(c, count, topk, &above);
  int64_t ties = topk - above;  // the first of the candidates at the threshold
  int64_t kept = 0;
  float least = HUGE_VALF;
  for (int64_t i = 0; i < count; ++i) {
    const float logit = c.logits[i];
    const uint32_t key = TopKKey(logit);
    const bool tie = key == threshold;
    if (tie) least = std::isnan(logit) ? -HUGE_VALF : logit;
    // Written in any case: whether a candidate is kept cannot be foreseen by the processor.
    c.logits[kept] = logit;
    c.indices[kept] = c.indices[i];
    kept += key > threshold || (tie && ties-- > 0) ? 1 : 0;
  }
  return least;
}

int64_t SortTopK(const TopKCandidates& c, int64_t count, const TopKSortSpace& space,
                 const TopKRow& row) {
  // Rising order of the inverted key is falling order of the logit, and a stable sort keeps ties.
  for (int64_t i = 0; i < count; ++i) space.keys[i] = ~TopKKey(c.logits[i]);
  uint32_t* keys = space.keys;
  uint32_t* next_keys = space.other_keys;
  int32_t* indices = c.indices;
  int32_t* next_indices = space.other_indices;
  for (int shift = 0; shift < 32; shift += kBits) {
    std::fill_n(c.histogram, kBins, 0u);
    for (int64_t i = 0; i < count; ++i) ++c.histogram[keys[i] >> shift & kBinMask];
    uint32_t start = 0;
    for (int64_t bin = 0; bin < kBins; ++bin) start += std::exchange(c.histogram[bin], start);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t to = c.histogram[keys[i] >> shift & kBinMask]++;
      next_keys[to] = keys[i];
      next_indices[to] = indices[i];
    }
    std::swap(keys, next_keys);
    std::swap(indices, next_indices);
  }
  const int64_t kept = std::min(count, row.topk);
  std::copy_n(indices, kept, row.indices);
  return kept;
}

float GuessThreshold(const TopKRow& row, float* sample) {
  const int64_t stride = row.count / kTopKSample;
  for (int64_t i = 0; i < kTopKSample; ++i) {
    const float logit = row.logits[i * stride];
    sample[i] = std::isnan(logit) ? -HUGE_VALF : logit;
  }
  const double expected = static_cast<double>(row.topk) * kTopKSample / row.count;
  const auto rank = static_cast<int64_t>(expected + 3 * std::sqrt(expected) + 1);
  if (rank >= kTopKSample) return -HUGE_VALF;
  std::nth_element(sample, sample + rank, sample + kTopKSample, std::greater<>());
  return std::nextafterf(sample[rank], -HUGE_VALF);  // equal ones are candidates too
}

void SelectTopK(const TopKRow& row) {
  std::vector<int32_t> order(row.count);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](int32_t a, int32_t b) { return TopKKey(row.logits[a]) > TopKKey(row.logits[b]); });
  const int64_t kept = std::min(row.topk, row.count);
  std::copy_n(order.begin(), kept, row.indices);
  std::fill(row.indices + kept, row.indices + row.topk, -1);
}

}  // namespace pagefuse::pagefuse_ops
