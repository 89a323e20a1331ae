// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/request.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/random.h"

namespace pagefuse {
namespace {

constexpr int64_t kMaxSamples = 16;
constexpr int64_t kMaxLength = std::numeric_limits<int32_t>::max();

absl::Status CheckTokens(std::string_view field, const std::vector<int64_t>& tokens,
                         int64_t vocabulary) {
  for (int64_t token : tokens) {
    if (token >= 0 && (vocabulary == 0 || token < vocabulary)) continue;
    const std::string most = vocabulary == 0 ? " or more" : StrCat(" to ", vocabulary - 1);
    return absl::InvalidArgumentError(
        StrCat(field, ": token ", token, " is outside the vocabulary: expected 0", most));
  }
  return absl::OkStatus();
}

bool HasSamples(const Request& request) {
  return request.samples >= 1 && request.samples <= kMaxSamples;
}

}  // namespace

absl::Status CheckRequest(const Request& request, int64_t vocabulary) {
  PF_RETURN_IF_ERROR(request.refused);
  if (request.prompt.empty()) {
    return absl::InvalidArgumentError("prompt: expected one token at least, got none");
  }
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (request.max_new_tokens < 0 || request.max_new_tokens > kMaxLength - prompt) {
    return absl::InvalidArgumentError(StrCat("max_new_tokens: expected 0 to ", kMaxLength - prompt,
                                             " after a prompt of ", prompt, ", got ",
                                             request.max_new_tokens));
  }
  if (!HasSamples(request)) {
    return absl::InvalidArgumentError(
        StrCat("samples: expected 1 to ", kMaxSamples, ", got ", request.samples));
  }
  PF_RETURN_IF_ERROR(CheckSampling(request.sampling));
  PF_RETURN_IF_ERROR(CheckTokens("prompt", request.prompt, vocabulary));
  return CheckTokens("forced", request.forced, vocabulary);
}

int64_t NumCompletions(const Request& request) { return HasSamples(request) ? request.samples : 1; }

int64_t TokensToRun(const Request& request) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t fed_back = std::max<int64_t>(request.max_new_tokens, 1) - 1;
  return prompt + std::min(fed_back, kMaxLength - std::min(prompt, kMaxLength));
}

std::vector<Progress> Begin(const std::vector<Request>& requests,
                            const std::function<absl::Status(const Request&)>& check) {
  std::vector<Progress> progress;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[i];
    const absl::Status status = check(request);
    const uint64_t seed = request.sampling.seed ? *request.sampling.seed : FreshSeed();
    for (int64_t sample = 0; sample < NumCompletions(request); ++sample) {
      Completion completion;
      completion.request = i;
      completion.seed = seed;
      completion.error = status;
      if (!status.ok()) completion.finish = FinishReason::kRefused;
      progress.push_back({.request = i,
                          .tokens = request.prompt,
                          .completion = std::move(completion),
                          .sampler = Sampler(request.sampling, seed, sample),
                          .constraint = request.constraint ? request.constraint() : nullptr,
                          .done = request.max_new_tokens == 0 || !status.ok()});
    }
  }
  return progress;
}

std::vector<Completion> Completions(std::vector<Progress> progress) {
  std::vector<Completion> completions;
  for (Progress& item : progress) completions.push_back(std::move(item.completion));
  return completions;
}

absl::Status ErrorOf(const Completion& completion) {
  if (completion.error.ok()) return completion.error;
  return absl::Status(completion.error.code(), StrCat("request ", completion.request, ": ",
                                                      StdView(completion.error.message())));
}

absl::Status FirstError(const std::vector<Completion>& completions) {
  for (const Completion& completion : completions) PF_RETURN_IF_ERROR(ErrorOf(completion));
  return absl::OkStatus();
}

absl::StatusOr<TokenLimits> LimitsOf(const Request& request, Progress& progress) {
  TokenLimits limits;
  const size_t produced = progress.completion.tokens.size();
  if (static_cast<int64_t>(produced) < request.sampling.min_tokens) {
    limits.forbidden = request.stop_tokens;
  }
  if (progress.constraint && produced >= request.forced.size()) {
    PF_ASSIGN_OR_RETURN(limits.allowed, progress.constraint->Allowed());
  }
  return limits;
}

absl::StatusOr<SampledToken> SampleToken(const Request& request, StepLogits& logits, int64_t row,
                                         Progress& progress) {
  PF_ASSIGN_OR_RETURN(const TokenLimits limits, LimitsOf(request, progress));
  return logits.Sample(row, progress.sampler, progress.tokens, request.prompt.size(), limits);
}

void AddToken(const Request& request, StepLogits& logits, int64_t row, Progress& progress,
              size_t index, const OnToken& on_token) {
  AddToken(request, SampleToken(request, logits, row, progress), logits, row, progress, index,
           on_token);
}

void AddToken(const Request& request, absl::StatusOr<SampledToken> sampled, StepLogits& logits,
              int64_t row, Progress& progress, size_t index, const OnToken& on_token) {
  Completion& completion = progress.completion;
  const size_t produced = completion.tokens.size();
  const bool forced = produced < request.forced.size();
  std::vector<float> kept;
  if (sampled.ok() && request.keep_logits) {
    const auto values = logits.Row(row);
    if (values.ok())
      kept.assign(values->begin(), values->end());
    else
      sampled = values.status();
  }
  if (!sampled.ok()) {
    completion.error =
        absl::Status(sampled.status().code(),
                     StrCat("new token ", produced, ": ", StdView(sampled.status().message())));
    completion.finish = FinishReason::kFailed;
    progress.done = true;
    return;
  }
  const int64_t token = sampled->token;
  completion.tokens.push_back(token);
  if (request.keep_logits) completion.logits.push_back(std::move(kept));
  if (sampled->logprobs) completion.logprobs.push_back(*std::move(sampled->logprobs));
  const bool constrained = progress.constraint && !forced;
  if (constrained) progress.constraint->Accept(token);
  progress.tokens.push_back(forced ? request.forced[produced] : token);
  const bool stopped = (!forced && std::ranges::count(request.stop_tokens, token) > 0) ||
                       (constrained && progress.constraint->Ended());
  const bool full = static_cast<int64_t>(completion.tokens.size()) >= request.max_new_tokens;
  if (stopped) completion.finish = FinishReason::kStop;
  const TokenLogprobs* logprobs =
      completion.logprobs.empty() ? nullptr : &completion.logprobs.back();
  const bool goes_on = !on_token || on_token({index, token, logprobs});
  if (!goes_on && !stopped) completion.finish = FinishReason::kEnded;
  progress.done = stopped || full || !goes_on;
}

}  // namespace pagefuse
