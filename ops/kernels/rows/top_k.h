// SPDX-License-Identifier: Apache-2.0
// The k largest or smallest floats of a row, in order.
#pragma once

#include <cstdint>
#include <vector>

namespace pagefuse::onnx_ops {

inline constexpr int64_t kMaxTopKLine = int64_t{1} << 32;  // elements of a row

// Equal elements come in the order of their indices, 0 and -0 are equal, NaN counts as larger than
// every number. Keeps its memory between rows; not thread-safe.
class TopK {
 public:
  TopK(bool largest, int64_t k) : largest_(largest), k_(k) {}

  // Indices of the first k of the n elements, best first; k <= n. Valid until the next call.
  const std::vector<uint32_t>& Of(const float* x, int64_t n);

 private:
  // Higher is better: the element's rank above, the flipped index below.
  uint64_t KeyOf(float x, int64_t i) const;
  uint32_t RankOf(float x) const;
  // Adds the keys of elements [begin, end) whose rank is `least` or better.
  void Collect(const float* x, int64_t begin, int64_t end, uint32_t least);
  // Puts a key among the k best so far, if it is one.
  void Insert(uint64_t key);
  // A rank that k elements at least reach, 0 if none is known cheaply; fills best_.
  uint32_t Threshold(const float* x, int64_t n);
  // Puts the k best keys in front, in order.
  void Order();

  bool largest_;
  int64_t k_;
  std::vector<uint64_t> keys_;
  std::vector<uint32_t> best_, sorted_;  // ranks of the best elements of blocks
  std::vector<uint32_t> order_;
};

}  // namespace pagefuse::onnx_ops
