// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/sampling/token_weights.h"
#include "pagefuse/runtime/random.h"

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

bool Within(double value, double least, double most) { return value >= least && value <= most; }

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

bool Sampler::penalises() const {
  return options_.repetition_penalty != 1 || options_.frequency_penalty != 0 ||
         options_.presence_penalty != 0;
}

void Sampler::CountTokens(std::span<const int64_t> tokens, size_t prompt) {
  for (; counted_ < tokens.size(); ++counted_) {
    counts_[tokens[counted_]].output += counted_ >= prompt;
  }
}

absl::flat_hash_map<int64_t, LogitEdit> Sampler::Edits(const TokenLimits& limits) const {
  absl::flat_hash_map<int64_t, LogitEdit> edits;
  for (const auto& [token, bias] : options_.bias) edits[token].bias += bias;
  if (penalises()) {
    for (const auto& [token, count] : counts_) edits[token].count = count.output;
  }
  for (const int64_t token : limits.forbidden) edits[token].bias = kNever;
  return edits;
}

void Sampler::Adjust(std::span<const float> logits, const TokenLimits& limits) {
  adjusted_.assign(logits.begin(), logits.end());
  const auto size = static_cast<int64_t>(logits.size());
  for (const auto& [token, edit] : Edits(limits)) {
    if (token < 0 || token >= size) continue;
    adjusted_[token] = EditedLogit(logits[token], edit, Penalties());
  }
  if (!limits.allowed.empty()) KeepAllowed(limits.allowed, adjusted_);
}

DrawSettings Sampler::Settings() const {
  return {.temperature = options_.temperature,
          .top_k = options_.top_k,
          .min_p = options_.min_p,
          .top_p = options_.top_p};
}

LogitPenalties Sampler::Penalties() const {
  return {.repetition = options_.repetition_penalty,
          .frequency = options_.frequency_penalty,
          .presence = options_.presence_penalty};
}

uint64_t Sampler::RandomAt(size_t position) const {
  return RandomBitsAt(seed_, static_cast<uint32_t>(sample_), position);
}

std::optional<DrawPlan> Sampler::Plan(std::span<const int64_t> tokens, size_t prompt,
                                      const TokenLimits& limits) {
  if (options_.logprobs || !limits.allowed.empty()) return std::nullopt;
  if (penalises()) CountTokens(tokens, prompt);
  DrawPlan plan = {.settings = Settings(), .penalties = Penalties(), .edits = {}};
  for (const auto& edit : Edits(limits)) plan.edits.emplace_back(edit);
  plan.random = RandomAt(tokens.size());
  return plan;
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
  if (penalises()) CountTokens(tokens, prompt);
  if (penalises() || !options_.bias.empty() || !limits.forbidden.empty() ||
      !limits.allowed.empty()) {
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
  PF_ASSIGN_OR_RETURN(sampled.token, DrawToken(row, Settings(), RandomAt(tokens.size())));
  if (options_.logprobs) sampled.logprobs = Logprobs(raw, sampled.token);
  return sampled;
}

}  // namespace pagefuse
