// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/random.h"

namespace pagefuse {
namespace {

constexpr int64_t kMaxBias = 1024, kMaxLogprobs = 20;

absl::Status Wrong(std::string_view field, std::string_view expected, double value) {
  return absl::InvalidArgumentError(StrCat(field, ": expected ", expected, ", got ", value));
}

bool Within(double value, double least, double most) { return value >= least && value <= most; }

// Those with more logit first, of equals the lower id.
bool Before(float logit_a, int64_t a, float logit_b, int64_t b) {
  return logit_a != logit_b ? logit_a > logit_b : a < b;
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

void Sampler::Adjust(std::span<const float> logits, std::span<const int64_t> forbidden) {
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
  for (int64_t token : forbidden) {
    if (token >= 0 && token < size) adjusted_[token] = -std::numeric_limits<float>::infinity();
  }
}

// What is left after min-p and top-k, by id, with weights e^(logit - largest).
std::vector<Sampler::Candidate> Sampler::Candidates(const LogitRow& row) const {
  const double temperature = options_.temperature, largest = row.max() / temperature;
  float least = -std::numeric_limits<float>::max();
  if (options_.top_k > 0) least = row.KthLargest(options_.top_k);
  double least_scaled = -std::numeric_limits<double>::infinity();
  if (options_.min_p > 0) {
    least_scaled = largest + std::log(options_.min_p);
    // In float a little below, so that the test in double decides.
    const double bound = least_scaled * temperature;
    least = std::max(least, static_cast<float>(bound - std::abs(bound) * 1e-5 - 1e-5));
  }
  std::vector<Candidate> candidates;
  for (int32_t token : row.AtLeast(least)) {
    const float logit = row.logits()[token];
    const double scaled = logit / temperature;
    if (scaled >= least_scaled) candidates.push_back({token, logit, std::exp(scaled - largest)});
  }
  return candidates;
}

// The fewest of the likeliest whose weights reach top_p of the sum.
void Sampler::KeepTopP(std::vector<Candidate>& candidates) const {
  if (options_.top_p >= 1) return;
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return Before(a.logit, a.token, b.logit, b.token);
  };
  // As a rule few are enough: sort more only when those did not do.
  size_t sorted = 0, kept = 0;
  double reached = 0;
  for (size_t goal = 256; reached < options_.top_p * sum && kept < candidates.size(); goal *= 8) {
    const size_t end = std::min(goal, candidates.size());
    std::nth_element(candidates.begin() + sorted, candidates.begin() + (end - 1), candidates.end(),
                     likelier);
    std::sort(candidates.begin() + sorted, candidates.begin() + end, likelier);
    sorted = end;
    while (kept < sorted && reached < options_.top_p * sum) reached += candidates[kept++].weight;
  }
  candidates.resize(kept);
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
}

// The inverse of the cumulated weights, summed by ascending id.
int64_t Sampler::Draw(const std::vector<Candidate>& candidates, uint64_t position) const {
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  const double goal = UniformAt(seed_, static_cast<uint32_t>(sample_), position) * sum;
  double reached = 0;
  for (const Candidate& candidate : candidates) {
    reached += candidate.weight;
    if (reached > goal) return candidate.token;
  }
  // Rounding: the last that can come.
  auto last = candidates.rbegin();
  while (last->weight == 0) ++last;
  return last->token;
}

TokenLogprobs Sampler::Logprobs(const LogitRow& raw, int64_t token) const {
  double sum = 0;
  for (float logit : raw.logits()) sum += std::exp(static_cast<double>(logit) - raw.max());
  const double log_sum = raw.max() + std::log(sum);
  TokenLogprobs logprobs{.logprob = raw.logits()[token] - log_sum, .top = {}};
  if (options_.logprobs == 0) return logprobs;
  for (int32_t index : raw.AtLeast(raw.KthLargest(*options_.logprobs))) {
    logprobs.top.emplace_back(index, raw.logits()[index] - log_sum);
  }
  std::stable_sort(logprobs.top.begin(), logprobs.top.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  logprobs.top.resize(std::min<size_t>(logprobs.top.size(), *options_.logprobs));
  return logprobs;
}

absl::StatusOr<SampledToken> Sampler::Next(std::span<const float> logits,
                                           std::span<const int64_t> tokens, size_t prompt,
                                           std::span<const int64_t> forbidden) {
  PF_ASSIGN_OR_RETURN(const LogitRow raw, LogitRow::Of(logits));
  std::optional<LogitRow> changed;
  if (adjusts() || !forbidden.empty()) {
    CountTokens(tokens, prompt);
    Adjust(logits, forbidden);
    PF_ASSIGN_OR_RETURN(changed, LogitRow::Of(adjusted_));
  }
  const LogitRow& row = changed ? *changed : raw;
  SampledToken sampled;
  if (options_.temperature == 0) {
    sampled.token = row.ArgMax();
  } else {
    std::vector<Candidate> candidates = Candidates(row);
    KeepTopP(candidates);
    sampled.token = Draw(candidates, tokens.size());
  }
  if (options_.logprobs) sampled.logprobs = Logprobs(raw, sampled.token);
  return sampled;
}

}  // namespace pagefuse
