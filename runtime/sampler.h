// SPDX-License-Identifier: Apache-2.0
// Chooses a token by a row of logits.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/rows/logit_edit.h"
#include "pagefuse/ops/pagefuse/sampling/draw.h"
#include "pagefuse/ops/pagefuse/sampling/logit_row.h"
#include "pagefuse/runtime/token_constraint.h"

namespace pagefuse {

// The order of the stages: log probabilities are taken of the logits as they come; then bias, tokens
// that cannot come, repetition, frequency and presence penalty; with temperature 0 the largest logit, of
// several the lowest id; else logits are divided by the temperature, min-p, top-k, top-p, a draw.
// (Other implementations put min-p behind top-p.)
struct SamplingOptions {
  double temperature = 0;                // 0 to 100
  int64_t top_k = 0;                     // the k largest, with those equal to the k-th; 0: all
  double top_p = 1;                      // (0, 1]: the fewest whose probabilities reach it
  double min_p = 0;                      // [0, 1]: those with this part of the largest probability
  double repetition_penalty = 1;         // (0, 10]: of tokens in prompt or output
  double frequency_penalty = 0;          // [-2, 2]: for each time in the output
  double presence_penalty = 0;           // [-2, 2]: for being in the output
  std::map<int64_t, double> bias = {};   // at most 1024
  std::optional<uint64_t> seed = {};     // unset: a fresh one
  int64_t min_tokens = 0;                // no stop token before so many
  std::optional<int64_t> logprobs = {};  // of the token, and of up to 20 of the likeliest
};

// InvalidArgument naming the field, what was expected, and the value.
absl::Status CheckSampling(const SamplingOptions& options);

struct TokenLogprobs {
  double logprob = 0;                           // of the token itself
  std::vector<std::pair<int64_t, double>> top;  // the likeliest tokens
};

struct SampledToken {
  int64_t token = 0;
  std::optional<TokenLogprobs> logprobs = {};
};

// What a token is drawn by where the logits are.
struct DrawPlan {
  DrawSettings settings;
  LogitPenalties penalties;
  std::vector<std::pair<int64_t, LogitEdit>> edits;  // by token, each once
  uint64_t random = 0;                               // divided by 2^64 a number in [0, 1)
};

// The tokens of one sample of one request. What it draws depends on options, seed, sample and position alone,
// and on the logits: token_weights.h is the arithmetic, equal on every machine.
class Sampler {
 public:
  Sampler(SamplingOptions options, uint64_t seed, int64_t sample);

  // The token behind `tokens`, of which the first `prompt` are the prompt. InvalidArgument as of
  // LogitRow::Of, and for a draw or logprobs of more than kMostWeights logits; FailedPrecondition
  // if of those that are allowed none can come.
  absl::StatusOr<SampledToken> Next(std::span<const float> logits, std::span<const int64_t> tokens,
                                    size_t prompt, const TokenLimits& limits = {});

  // What Next would draw by; nullopt where it needs more of the row: logprobs, or tokens that a grammar allows.
  std::optional<DrawPlan> Plan(std::span<const int64_t> tokens, size_t prompt,
                               const TokenLimits& limits);

  uint64_t seed() const { return seed_; }

 private:
  bool penalises() const;
  void CountTokens(std::span<const int64_t> tokens, size_t prompt);
  // Of the tokens that are known, by CountTokens.
  absl::flat_hash_map<int64_t, LogitEdit> Edits(const TokenLimits& limits) const;
  void Adjust(std::span<const float> logits, const TokenLimits& limits);
  DrawSettings Settings() const;
  LogitPenalties Penalties() const;
  uint64_t RandomAt(size_t position) const;
  TokenLogprobs Logprobs(const LogitRow& raw, int64_t token) const;

  SamplingOptions options_;
  uint64_t seed_;
  int64_t sample_;
  struct Count {
    int64_t output = 0;  // how often among what was generated
  };
  absl::flat_hash_map<int64_t, Count> counts_;  // tokens that were seen
  size_t counted_ = 0;
  std::vector<float> adjusted_;
};

}  // namespace pagefuse
