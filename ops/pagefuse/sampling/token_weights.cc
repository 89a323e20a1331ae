// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/sampling/token_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "pagefuse/ops/kernels/numeric/share_of.h"
#include "pagefuse/ops/kernels/rows/exp_weights_hwy.h"

namespace pagefuse {
namespace {

using onnx_ops::WeightScale;

static_assert(kWeightBits == onnx_ops::kWeightBits && kMostWeights == onnx_ops::kMostWeights);

using BlockWeights = std::array<uint64_t, LogitRow::kBlock>;

uint64_t Weigh(std::span<const float> block, const WeightScale& scale, uint64_t* weights) {
  return onnx_ops::ExpWeights(block.data(), static_cast<int64_t>(block.size()), scale, weights);
}

// Sums of weights by how far the logits lie below the largest one. Which bin a logit is in never
// falls with it, however the steps are rounded, so that whole bins can be taken in order.
class WeightBins {
 public:
  WeightBins(const LogitRow& row, double inverse_temperature)
      : largest_(row.max()),
        per_logit_(static_cast<float>(std::min(inverse_temperature * kBinsOfE, kMostOfLogit))) {
    BlockWeights weights;
    std::array<int32_t, LogitRow::kBlock> bins;
    for (size_t b = 0; b < row.num_blocks(); ++b) {
      const std::span<const float> block = row.Block(b);
      total_ += Weigh(block, {row.max(), inverse_temperature}, weights.data());
      for (size_t i = 0; i < block.size(); ++i) bins[i] = BinOf(block[i]);
      for (size_t i = 0; i < block.size(); ++i) sums_[bins[i]] += weights[i];
    }
  }

  uint64_t total() const { return total_; }
  uint64_t sum(int32_t bin) const { return sums_[bin]; }
  int32_t BinOf(float logit) const {
    return static_cast<int32_t>(std::min((largest_ - logit) * per_logit_, kLast));
  }
  // No logit of this bin or one before it is less: half a bin below is more than roundings come to.
  float LowestOf(int32_t bin) const {
    if (static_cast<float>(bin) >= kLast) return -std::numeric_limits<float>::max();
    const double edge = largest_ - (bin + 1.5) / per_logit_;
    return std::nextafter(static_cast<float>(edge), -std::numeric_limits<float>::infinity());
  }

 private:
  static constexpr int kBins = 1024;
  static constexpr float kLast = kBins - 1;
  // The last weight that is not 0 is that of x = -31.2.
  static constexpr double kBinsOfE = kBins / 32.0;
  static constexpr double kMostOfLogit = std::numeric_limits<float>::max();

  float largest_, per_logit_;
  std::array<uint64_t, kBins> sums_ = {};
  uint64_t total_ = 0;
};

struct Weighted {
  float logit;
  int32_t index;
  uint64_t weight;
};

bool IsLikelier(const Weighted& a, const Weighted& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.index < b.index;
}

// The one with which the weights of the likeliest reach `goal`, which is more than 0 and at most
// their sum. Halves are looked at again, one of two each time.
Weighted LastThatReaches(std::vector<Weighted>& items, uint64_t goal) {
  auto first = items.begin(), last = items.end();
  while (last - first > 1) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, IsLikelier);
    uint64_t sum = 0;
    for (auto item = first; item != middle; ++item) sum += item->weight;
    if (sum >= goal) {
      last = middle;
    } else {
      goal -= sum;
      first = middle;
    }
  }
  return *first;
}

}  // namespace

std::vector<uint64_t> WeightsOf(const LogitRow& row, double inverse_temperature) {
  std::vector<uint64_t> weights(row.logits().size());
  Weigh(row.logits(), {row.max(), inverse_temperature}, weights.data());
  return weights;
}

TokenWeights::TokenWeights(const LogitRow& row, double inverse_temperature)
    : row_(row), inverse_temperature_(inverse_temperature) {
  block_sums_.reserve(row.num_blocks());
  for (size_t b = 0; b < row.num_blocks(); ++b) {
    const std::span<const float> block = row.Block(b);
    const auto size = static_cast<int64_t>(block.size());
    block_sums_.push_back(
        onnx_ops::SumExpWeights(block.data(), size, {row.max(), inverse_temperature}));
    total_ += block_sums_.back();
  }
}

size_t TokenWeights::IndexOf(uint64_t sum) const {
  size_t block = 0;
  for (; sum >= block_sums_[block]; ++block) sum -= block_sums_[block];
  BlockWeights weights;
  Weigh(row_.Block(block), {row_.max(), inverse_temperature_}, weights.data());
  size_t i = 0;
  for (; sum >= weights[i]; ++i) sum -= weights[i];
  return block * LogitRow::kBlock + i;
}

std::vector<int32_t> FewestThatReach(const LogitRow& row, double inverse_temperature, double part) {
  const WeightBins bins(row, inverse_temperature);
  uint64_t goal = ShareOf(part, bins.total());
  int32_t bin = 0;
  for (; bins.sum(bin) < goal; ++bin) goal -= bins.sum(bin);
  std::vector<int32_t> indices = row.AtLeast(bins.LowestOf(bin));
  std::vector<Weighted> items;
  std::vector<float> logits;
  for (const int32_t index : indices) {
    const float logit = row.logits()[index];
    if (bins.BinOf(logit) != bin) continue;
    items.push_back({logit, index, 0});
    logits.push_back(logit);
  }
  std::vector<uint64_t> weights(items.size());
  Weigh(logits, {row.max(), inverse_temperature}, weights.data());
  for (size_t i = 0; i < items.size(); ++i) items[i].weight = weights[i];
  const Weighted last = LastThatReaches(items, goal);
  std::erase_if(indices, [&](int32_t index) {
    return IsLikelier(last, {row.logits()[index], index, 0});
  });
  return indices;
}

}  // namespace pagefuse
