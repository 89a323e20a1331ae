// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/random.h"

namespace pagefuse {
namespace {

constexpr int64_t kMaxSamples = 16;
constexpr int64_t kMaxLength = std::numeric_limits<int32_t>::max();

absl::Status CheckTokens(size_t request, const std::vector<int64_t>& tokens, int64_t vocabulary) {
  for (int64_t token : tokens) {
    if (token >= 0 && (vocabulary == 0 || token < vocabulary)) continue;
    return absl::InvalidArgumentError(StrCat("request ", request, ": token ", token,
                                             " is outside the vocabulary of ", vocabulary));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRequests(const std::vector<Request>& requests, int64_t vocabulary) {
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].prompt.empty()) {
      return absl::InvalidArgumentError(StrCat("request ", i, ": the prompt is empty"));
    }
    const auto prompt = static_cast<int64_t>(requests[i].prompt.size());
    if (requests[i].max_new_tokens < 0 || requests[i].max_new_tokens > kMaxLength - prompt) {
      return absl::InvalidArgumentError(StrCat("request ", i, ": max_new_tokens: expected 0 to ",
                                               kMaxLength - prompt, " after a prompt of ", prompt,
                                               ", got ", requests[i].max_new_tokens));
    }
    if (requests[i].samples < 1 || requests[i].samples > kMaxSamples) {
      return absl::InvalidArgumentError(StrCat("request ", i, ": samples: expected 1 to ",
                                               kMaxSamples, ", got ", requests[i].samples));
    }
    const absl::Status sampling = CheckSampling(requests[i].sampling);
    if (!sampling.ok()) {
      return absl::InvalidArgumentError(StrCat("request ", i, ": ", StdView(sampling.message())));
    }
    PF_RETURN_IF_ERROR(CheckTokens(i, requests[i].prompt, vocabulary));
    PF_RETURN_IF_ERROR(CheckTokens(i, requests[i].forced, vocabulary));
  }
  return absl::OkStatus();
}

int64_t TokensToRun(const Request& request) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t fed_back = std::max<int64_t>(request.max_new_tokens, 1) - 1;
  return prompt + std::min(fed_back, kMaxLength - std::min(prompt, kMaxLength));
}

std::vector<Progress> Begin(const std::vector<Request>& requests) {
  std::vector<Progress> progress;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[i];
    const uint64_t seed = request.sampling.seed ? *request.sampling.seed : FreshSeed();
    for (int64_t sample = 0; sample < request.samples; ++sample) {
      Completion completion;
      completion.seed = seed;
      progress.push_back({.request = i,
                          .tokens = request.prompt,
                          .completion = std::move(completion),
                          .sampler = Sampler(request.sampling, seed, sample),
                          .done = request.max_new_tokens == 0});
    }
  }
  return progress;
}

std::vector<Completion> Completions(std::vector<Progress> progress) {
  std::vector<Completion> completions;
  for (Progress& item : progress) completions.push_back(std::move(item.completion));
  return completions;
}

absl::Status FirstError(const std::vector<Completion>& completions) {
  for (const Completion& completion : completions) {
    if (!completion.error.ok()) return completion.error;
  }
  return absl::OkStatus();
}

void AddToken(const Request& request, std::span<const float> logits, Progress& progress,
              size_t index, const OnToken& on_token) {
  Completion& completion = progress.completion;
  const size_t produced = completion.tokens.size();
  std::span<const int64_t> forbidden;
  if (static_cast<int64_t>(produced) < request.sampling.min_tokens) forbidden = request.stop_tokens;
  auto sampled = progress.sampler.Next(logits, progress.tokens, request.prompt.size(), forbidden);
  if (!sampled.ok()) {
    completion.error = absl::Status(sampled.status().code(),
                                    StrCat("request ", progress.request, ", new token ", produced,
                                           ": ", StdView(sampled.status().message())));
    completion.finish = FinishReason::kFailed;
    progress.done = true;
    return;
  }
  const int64_t token = sampled->token;
  completion.tokens.push_back(token);
  if (request.keep_logits) completion.logits.emplace_back(logits.begin(), logits.end());
  if (sampled->logprobs) completion.logprobs.push_back(*std::move(sampled->logprobs));
  const bool forced = produced < request.forced.size();
  progress.tokens.push_back(forced ? request.forced[produced] : token);
  const bool stopped = !forced && std::ranges::count(request.stop_tokens, token) > 0;
  const bool full = static_cast<int64_t>(completion.tokens.size()) >= request.max_new_tokens;
  if (stopped) completion.finish = FinishReason::kStop;
  const TokenLogprobs* logprobs =
      completion.logprobs.empty() ? nullptr : &completion.logprobs.back();
  const bool goes_on = !on_token || on_token({index, token, logprobs});
  if (!goes_on && !stopped) completion.finish = FinishReason::kEnded;
  progress.done = stopped || full || !goes_on;
}

}  // namespace pagefuse
