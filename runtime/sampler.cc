// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "absl/numeric/int128.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/random.h"
#include "pagefuse/runtime/token_weights.h"

namespace pagefuse {
namespace {

constexpr int64_t kMaxBias = 1024, kMaxLogprobs = 20;

absl::Status Wrong(std::string_view field, std::string_view expected, double value) {
  return absl::InvalidArgumentError(StrCat(field, ": expected ", expected, ", got ", value));
}

constexpr float kNever = -std::numeric_limits<float>::infinity();

// `allowed` as in TokenLimits.
void KeepAllowed(std::span<const uint64_t> allowed, std::vector<float>& logits) {
  constexpr size_t kBits = 64;
  for (size_t begin = 0; begin < logits.size(); begin += kBits) {
    const size_t word = begin / kBits;
    uint64_t never = word < allowed.size() ? ~allowed[word] : ~uint64_t{0};
    const size_t count = std::min(kBits, logits.size() - begin);
    if (never == ~uint64_t{0}) {
      std::fill_n(logits.begin() + static_cast<std::ptrdiff_t>(begin), count, kNever);
      continue;
    }
    // Most words are all of one kind, or nearly.
    if (count < kBits) never &= (uint64_t{1} << count) - 1;
    for (; never != 0; never &= never - 1) logits[begin + std::countr_zero(never)] = kNever;
  }
}

// Finite for the smallest temperatures too.
double InverseOf(double temperature) {
  return std::min(1 / temperature, std::numeric_limits<double>::max());
}

bool Within(double value, double least, double most) { return value >= least && value <= most; }

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

absl::Status KeepMinP(const SamplingOptions& options, Candidates& candidates) {
  const uint64_t least = ShareOf(options.min_p, uint64_t{1} << kWeightBits);
  const float bound = LogitOfWeight(least, candidates.row().max(), options.temperature);
  PF_RETURN_IF_ERROR(candidates.Keep(candidates.row().AtLeast(bound)));
  const std::vector<uint64_t> weights = WeightsOf(candidates.row(), InverseOf(options.temperature));
  std::vector<int32_t> kept;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] >= least) kept.push_back(static_cast<int32_t>(i));
  }
  return candidates.Keep(std::move(kept));
}

}  // namespace

absl::Status CheckSampling(const SamplingOptions& options) {
  if (!Within(options.temperature, 0, 100))
    return Wrong("temperature", "0 to 100", options.temperature);
  if (options.top_k < 0) return Wrong("top_k", "0 or more", static_cast<double>(options.top_k));
  if (!(options.top_p > 0 && options.top_p <= 1))
    return Wrong("top_p", "more than 0, at most 1", options.top_p);
  if (!Within(options.min_p, 0, 1)) return Wrong("min_p", "0 to 1", options.min_p);
  if (!(options.repetition_penalty > 0 && options.repetition_penalty <= 10)) {
    return Wrong("repetition_penalty", "more than 0, at most 10", options.repetition_penalty);
  }
  if (!Within(options.frequency_penalty, -2, 2))
    return Wrong("frequency_penalty", "-2 to 2", options.frequency_penalty);
  if (!Within(options.presence_penalty, -2, 2))
    return Wrong("presence_penalty", "-2 to 2", options.presence_penalty);
  if (options.bias.size() > kMaxBias) {
    return Wrong("bias", StrCat(kMaxBias, " entries at most"),
                 static_cast<double>(options.bias.size()));
  }
  for (const auto& [token, value] : options.bias) {
    if (token < 0) return Wrong("bias", "token ids", static_cast<double>(token));
    if (!Within(value, -100, 100))
      return Wrong(StrCat("bias of token ", token), "-100 to 100", value);
  }
  if (options.min_tokens < 0)
    return Wrong("min_tokens", "0 or more", static_cast<double>(options.min_tokens));
  if (options.logprobs && !Within(static_cast<double>(*options.logprobs), 0, kMaxLogprobs)) {
    return Wrong("logprobs", StrCat("0 to ", kMaxLogprobs), static_cast<double>(*options.logprobs));
  }
  return absl::OkStatus();
}

Sampler::Sampler(SamplingOptions options, uint64_t seed, int64_t sample)
    : options_(std::move(options)), seed_(seed), sample_(sample) {}

bool Sampler::adjusts() const {
  return !options_.bias.empty() || options_.repetition_penalty != 1 ||
         options_.frequency_penalty != 0 || options_.presence_penalty != 0;
}

void Sampler::CountTokens(std::span<const int64_t> tokens, size_t prompt) {
  for (; counted_ < tokens.size(); ++counted_) {
    counts_[tokens[counted_]].output += counted_ >= prompt;
  }
}

void Sampler::Adjust(std::span<const float> logits, const TokenLimits& limits) {
  adjusted_.assign(logits.begin(), logits.end());
  const auto size = static_cast<int64_t>(logits.size());
  // In double until all of it is done, so that the order of roundings does not matter.
  absl::flat_hash_map<int64_t, double> changed;
  const auto value = [&](int64_t token) -> double& {
    return changed.try_emplace(token, logits[token]).first->second;
  };
  for (const auto& [token, bias] : options_.bias) {
    if (token < size) value(token) += bias;
  }
  for (const auto& [token, count] : counts_) {
    if (token < 0 || token >= size) continue;
    double& logit = value(token);
    logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
    logit -= options_.frequency_penalty * static_cast<double>(count.output);
    if (count.output > 0) logit -= options_.presence_penalty;
  }
  for (const auto& [token, logit] : changed) adjusted_[token] = static_cast<float>(logit);
  for (int64_t token : limits.forbidden) {
    if (token >= 0 && token < size) adjusted_[token] = kNever;
  }
  if (!limits.allowed.empty()) KeepAllowed(limits.allowed, adjusted_);
}

// The token where the weights, summed by ascending id, pass a random part of their sum.
absl::StatusOr<int64_t> Sampler::Draw(const LogitRow& row, uint64_t position) const {
  const double inverse = InverseOf(options_.temperature);
  Candidates candidates(row);
  if (options_.top_k > 0) PF_RETURN_IF_ERROR(KeepTopK(options_.top_k, candidates));
  if (options_.min_p > 0) PF_RETURN_IF_ERROR(KeepMinP(options_, candidates));
  if (options_.top_p < 1) {
    PF_RETURN_IF_ERROR(candidates.Keep(FewestThatReach(candidates.row(), inverse, options_.top_p)));
  }
  const TokenWeights weights(candidates.row(), inverse);
  const absl::uint128 random = RandomBitsAt(seed_, static_cast<uint32_t>(sample_), position);
  return candidates.TokenAt(weights.IndexOf(absl::Uint128High64(random * weights.total())));
}

TokenLogprobs Sampler::Logprobs(const LogitRow& raw, int64_t token) const {
  const auto total = static_cast<double>(TokenWeights(raw, 1).total());
  const double log_part = std::log(std::ldexp(total, -kWeightBits));
  const auto logprob = [&](int64_t id) {
    return static_cast<double>(raw.logits()[id]) - raw.max() - log_part;
  };
  TokenLogprobs logprobs{.logprob = logprob(token), .top = {}};
  if (options_.logprobs == 0) return logprobs;
  for (int32_t index : raw.AtLeast(raw.KthLargest(*options_.logprobs))) {
    logprobs.top.emplace_back(index, logprob(index));
  }
  std::stable_sort(logprobs.top.begin(), logprobs.top.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  logprobs.top.resize(std::min<size_t>(logprobs.top.size(), *options_.logprobs));
  return logprobs;
}

absl::StatusOr<SampledToken> Sampler::Next(std::span<const float> logits,
                                           std::span<const int64_t> tokens, size_t prompt,
                                           const TokenLimits& limits) {
  PF_ASSIGN_OR_RETURN(const LogitRow raw, LogitRow::Of(logits));
  std::optional<LogitRow> changed;
  if (adjusts() || !limits.forbidden.empty() || !limits.allowed.empty()) {
    CountTokens(tokens, prompt);
    Adjust(logits, limits);
    auto row = LogitRow::Of(adjusted_);
    if (!row.ok() && !limits.allowed.empty()) {
      return absl::FailedPreconditionError("expected a token that may come next, got none");
    }
    PF_ASSIGN_OR_RETURN(changed, std::move(row));
  }
  const LogitRow& row = changed ? *changed : raw;
  if (logits.size() > kMostWeights && (options_.temperature > 0 || options_.logprobs)) {
    return absl::InvalidArgumentError(StrCat("logits: expected ", kMostWeights,
                                             " at most to draw or to tell logprobs, got ",
                                             logits.size()));
  }
  SampledToken sampled;
  if (options_.temperature == 0) {
    sampled.token = row.ArgMax();
  } else {
    PF_ASSIGN_OR_RETURN(sampled.token, Draw(row, tokens.size()));
  }
  if (options_.logprobs) sampled.logprobs = Logprobs(raw, sampled.token);
  return sampled;
}

}  // namespace pagefuse
