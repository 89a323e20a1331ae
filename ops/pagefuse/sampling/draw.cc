// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/sampling/draw.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/numeric/share_of.h"
#include "pagefuse/ops/pagefuse/sampling/token_weights.h"

namespace pagefuse {
namespace {

// Tokens that may come: all of a row, or some, which are a row of their own.
class Candidates {
 public:
  explicit Candidates(const LogitRow& all) : all_(all) {}

  const LogitRow& row() const { return some_ ? *some_ : all_; }
  int64_t TokenAt(size_t index) const {
    return some_ ? tokens_[index] : static_cast<int64_t>(index);
  }

  // Indices into row(), ascending, with that of the largest among them.
  absl::Status Keep(std::vector<int32_t> indices) {
    std::vector<float> logits;
    logits.reserve(indices.size());
    for (int32_t& index : indices) {
      logits.push_back(row().logits()[index]);
      index = static_cast<int32_t>(TokenAt(index));
    }
    tokens_ = std::move(indices);
    logits_ = std::move(logits);
    PF_ASSIGN_OR_RETURN(some_, LogitRow::Of(logits_));
    return absl::OkStatus();
  }

 private:
  const LogitRow& all_;
  std::vector<int32_t> tokens_;
  std::vector<float> logits_;
  std::optional<LogitRow> some_;
};

// A little less than the least logit that may have so much weight, since what is rounded here does
// not decide: the weight does.
float LogitOfWeight(uint64_t weight, float largest, double temperature) {
  const double x = std::log((static_cast<double>(weight) - 0.5) * std::ldexp(1, -kWeightBits));
  const double bound = largest + x * temperature;
  return static_cast<float>(bound - std::abs(bound) * 1e-5 - 1e-5);
}

absl::Status KeepTopK(int64_t k, Candidates& candidates) {
  const LogitRow& row = candidates.row();
  return candidates.Keep(row.AtLeast(row.KthLargest(k)));
}

absl::Status KeepMinP(const DrawSettings& settings, Candidates& candidates) {
  const uint64_t least = ShareOf(settings.min_p, uint64_t{1} << kWeightBits);
  const float bound = LogitOfWeight(least, candidates.row().max(), settings.temperature);
  PF_RETURN_IF_ERROR(candidates.Keep(candidates.row().AtLeast(bound)));
  const std::vector<uint64_t> weights =
      WeightsOf(candidates.row(), InverseOf(settings.temperature));
  std::vector<int32_t> kept;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] >= least) kept.push_back(static_cast<int32_t>(i));
  }
  return candidates.Keep(std::move(kept));
}

}  // namespace

double InverseOf(double temperature) {
  return std::min(1 / temperature, std::numeric_limits<double>::max());
}

// The token where the weights, summed by ascending id, pass a random part of their sum.
absl::StatusOr<int64_t> DrawToken(const LogitRow& row, const DrawSettings& settings,
                                  uint64_t random) {
  if (settings.temperature == 0) return row.ArgMax();
  const double inverse = InverseOf(settings.temperature);
  Candidates candidates(row);
  if (settings.top_k > 0) PF_RETURN_IF_ERROR(KeepTopK(settings.top_k, candidates));
  if (settings.min_p > 0) PF_RETURN_IF_ERROR(KeepMinP(settings, candidates));
  if (settings.top_p < 1) {
    PF_RETURN_IF_ERROR(candidates.Keep(FewestThatReach(candidates.row(), inverse, settings.top_p)));
  }
  const TokenWeights weights(candidates.row(), inverse);
  const absl::uint128 product = absl::uint128(random) * weights.total();
  return candidates.TokenAt(weights.IndexOf(absl::Uint128High64(product)));
}

}  // namespace pagefuse
