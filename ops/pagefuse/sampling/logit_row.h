// SPDX-License-Identifier: Apache-2.0
// A row of logits that finds its largest elements without looking at all of it again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace pagefuse {

// Looks at the row once, for the largest element of each block. The row must live as long.
class LogitRow {
 public:
  // Long enough that maxima cost little, short enough that few elements are looked at again.
  static constexpr size_t kBlock = 512;

  // InvalidArgument for an empty row, for NaN, and where no element is finite or one is infinite.
  static absl::StatusOr<LogitRow> Of(std::span<const float> logits);

  std::span<const float> logits() const { return logits_; }
  float max() const { return max_; }
  // Elements [b * kBlock, (b + 1) * kBlock), or up to the end of the row.
  size_t num_blocks() const { return block_max_.size(); }
  std::span<const float> Block(size_t block) const;
  // The first of the largest.
  int64_t ArgMax() const;
  // The k-th largest element; the smallest if there are fewer.
  float KthLargest(int64_t k) const;
  // Indices of the elements that are `least` or more, ascending.
  std::vector<int32_t> AtLeast(float least) const;

 private:
  std::span<const float> logits_;
  std::vector<float> block_max_;
  float max_ = 0;
};

}  // namespace pagefuse
