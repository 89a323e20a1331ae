// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/rows/top_k.h"

#include <algorithm>
#include <functional>

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"
#include "pagefuse/ops/kernels/rows/top_k_hwy.h"

namespace pagefuse::onnx_ops {
namespace {

constexpr int64_t kBlock = 64;
// Up to here keys are kept in order as they come.
constexpr int64_t kFew = 32;
static_assert(kFew <= kMostOfRanked);

uint64_t KeyOfRank(uint32_t rank, int64_t i) {
  return (uint64_t{rank} << 32) | static_cast<uint32_t>(~static_cast<uint32_t>(i));
}
uint32_t RankOfKey(uint64_t key) { return static_cast<uint32_t>(key >> 32); }

}  // namespace

uint32_t TopK::RankOf(float x) const { return RankOfFloat(x, largest_); }

uint64_t TopK::KeyOf(float x, int64_t i) const { return KeyOfRank(RankOf(x), i); }

void TopK::Collect(const float* x, int64_t begin, int64_t end, uint32_t least) {
  if (k_ > kFew) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t key = KeyOf(x[i], i);
      if (static_cast<uint32_t>(key >> 32) >= least) keys_.push_back(key);
    }
    return;
  }
  // Kept in order; the last one is the mark to pass once there are k. Equals come later, and lose.
  RankedElements ranked;
  for (; begin < end; begin += kRankedElements) {
    if (static_cast<int64_t>(keys_.size()) == k_) {
      const uint32_t mark = RankOfKey(keys_.back());
      if (mark == ~uint32_t{0}) return;
      least = std::max(least, mark + 1);
    }
    const int64_t count =
        FewRanked(x + begin, std::min(kRankedElements, end - begin), {largest_, k_, least}, ranked);
    for (int64_t i = 0; i < count; ++i) {
      Insert(KeyOfRank(ranked.ranks[i], begin + ranked.indices[i]));
    }
  }
}

void TopK::Insert(uint64_t key) {
  if (static_cast<int64_t>(keys_.size()) < k_) {
    keys_.push_back(0);
  } else if (key < keys_.back()) {
    return;
  }
  uint64_t* at = keys_.data() + keys_.size() - 1;
  for (; at > keys_.data() && at[-1] < key; --at) *at = at[-1];
  *at = key;
}

uint32_t TopK::Threshold(const float* x, int64_t n) {
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  if (blocks < 4 * k_) return 0;
  best_.resize(static_cast<size_t>(blocks));
  const auto best_of = largest_ ? MaxOfRow : MinOfRow;
  ParallelFor(blocks, kBlock * 8, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const float best = best_of(x + b * kBlock, std::min(kBlock, n - b * kBlock));
      // NaN hides the numbers beside it: such a block is looked at, and counts for nothing where
      // NaN is last.
      best_[b] = best != best && !largest_ ? ~uint32_t{0} : RankOf(best);
    }
  });
  sorted_.clear();
  for (uint32_t rank : best_) {
    if (largest_ || rank != ~uint32_t{0}) sorted_.push_back(rank);
  }
  if (static_cast<int64_t>(sorted_.size()) < k_) return 0;
  const auto kth = sorted_.begin() + (k_ - 1);
  std::nth_element(sorted_.begin(), kth, sorted_.end(), std::greater<>());
  return *kth;
}

void TopK::Order() {
  if (k_ <= kFew) return;
  const auto end = keys_.begin() + k_;
  if (end != keys_.end()) std::nth_element(keys_.begin(), end, keys_.end(), std::greater<>());
  std::sort(keys_.begin(), end, std::greater<>());
}

const std::vector<uint32_t>& TopK::Of(const float* x, int64_t n) {
  keys_.clear();
  order_.clear();
  if (k_ == 0) return order_;
  const uint32_t least = Threshold(x, n);
  if (least == 0) {
    Collect(x, 0, n, 0);
  } else {
    for (size_t b = 0; b < best_.size(); ++b) {
      const int64_t begin = static_cast<int64_t>(b) * kBlock;
      if (best_[b] >= least) Collect(x, begin, std::min(begin + kBlock, n), least);
    }
  }
  Order();
  for (int64_t i = 0; i < k_; ++i) order_.push_back(~static_cast<uint32_t>(keys_[i]));
  return order_;
}

}  // namespace pagefuse::onnx_ops
