// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/sampling/logit_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "pagefuse/ops/kernels/rows/exp_weights_hwy.h"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"

namespace pagefuse {

absl::StatusOr<LogitRow> LogitRow::Of(std::span<const float> logits) {
  if (logits.empty()) return absl::InvalidArgumentError("logits: expected at least one, got none");
  LogitRow row;
  row.logits_ = logits;
  const size_t blocks = (logits.size() + kBlock - 1) / kBlock;
  row.block_max_.resize(blocks);
  bool nan = false;
  float max = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < blocks; ++i) {
    const std::span<const float> block = row.Block(i);
    const float most = onnx_ops::MaxOfRow(block.data(), static_cast<int64_t>(block.size()));
    row.block_max_[i] = most;
    nan = nan || std::isnan(most);
    max = std::max(max, most);
  }
  row.max_ = max;
  if (nan) return absl::InvalidArgumentError("logits: expected numbers, got NaN");
  if (std::isfinite(max)) return row;
  return absl::InvalidArgumentError(max > 0
                                        ? "logits: expected finite numbers, got infinity"
                                        : "logits: expected a finite number, all are -infinity");
}

std::span<const float> LogitRow::Block(size_t block) const {
  const size_t first = block * kBlock;
  return logits_.subspan(first, std::min(kBlock, logits_.size() - first));
}

int64_t LogitRow::ArgMax() const {
  const size_t block = std::find(block_max_.begin(), block_max_.end(), max_) - block_max_.begin();
  const std::span<const float> elements = Block(block);
  return static_cast<int64_t>(block * kBlock) +
         (std::find(elements.begin(), elements.end(), max_) - elements.begin());
}

// Each of the k blocks with the largest maxima has an element that is at least the k-th of these.
float LogitRow::KthLargest(int64_t k) const {
  const auto wanted = std::min<size_t>(k, logits_.size());
  std::vector<float> candidates;
  if (wanted <= block_max_.size()) {
    std::vector<float> maxima = block_max_;
    std::nth_element(maxima.begin(), maxima.begin() + (wanted - 1), maxima.end(), std::greater<>());
    for (int32_t index : AtLeast(maxima[wanted - 1])) candidates.push_back(logits_[index]);
  } else {
    candidates.assign(logits_.begin(), logits_.end());
  }
  std::nth_element(candidates.begin(), candidates.begin() + (wanted - 1), candidates.end(),
                   std::greater<>());
  return candidates[wanted - 1];
}

std::vector<int32_t> LogitRow::AtLeast(float least) const {
  std::vector<int32_t> indices;
  std::array<int32_t, kBlock> found;
  for (size_t i = 0; i < block_max_.size(); ++i) {
    if (block_max_[i] < least) continue;
    const std::span<const float> elements = Block(i);
    const int64_t count =
        onnx_ops::IndicesAtLeast(elements.data(), static_cast<int64_t>(elements.size()), least,
                                 static_cast<int32_t>(i * kBlock), found.data());
    indices.insert(indices.end(), found.begin(), found.begin() + count);
  }
  return indices;
}

}  // namespace pagefuse
