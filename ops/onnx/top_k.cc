#include "pagefuse/ops/onnx/top_k.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "pagefuse/ops/onnx/rows_hwy.h"
#include "pagefuse/ops/parallel.h"

namespace pagefuse::onnx_ops {
namespace {

constexpr int64_t kBlock = 64;
// Up to here keys are kept in order as they come.
constexpr int64_t kFew = 32;

}  // namespace

uint32_t TopK::RankOf(float x) const {
  uint32_t bits = std::bit_cast<uint32_t>(x == 0 ? 0.0f : x);
  bits = x != x ? ~uint32_t{0} : (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return largest_ ? bits : ~bits;
}

uint64_t TopK::KeyOf(float x, int64_t i) const {
  return (uint64_t{RankOf(x)} << 32) | static_cast<uint32_t>(~static_cast<uint32_t>(i));
}

void TopK::Collect(const float* x, int64_t begin, int64_t end, uint32_t least) {
  if (k_ > kFew) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t key = KeyOf(x[i], i);
      if (static_cast<uint32_t>(key >> 32) >= least) keys_.push_back(key);
    }
    return;
  }
  for (int64_t i = begin; i < end; ++i) {
    const uint64_t key = KeyOf(x[i], i);
    const bool full = static_cast<int64_t>(keys_.size()) == k_;
    if (static_cast<uint32_t>(key >> 32) < least || (full && key <= keys_.back())) continue;
    if (!full) keys_.push_back(0);
    size_t at = keys_.size() - 1;
    for (; at > 0 && keys_[at - 1] < key; --at) keys_[at] = keys_[at - 1];
    keys_[at] = key;
  }
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
