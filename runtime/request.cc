#include "pagefuse/runtime/request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/kernels/rows/rows_hwy.h"

namespace pagefuse {
namespace {

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
    PF_RETURN_IF_ERROR(CheckTokens(i, requests[i].prompt, vocabulary));
    PF_RETURN_IF_ERROR(CheckTokens(i, requests[i].forced, vocabulary));
  }
  return absl::OkStatus();
}

std::vector<Progress> Begin(const std::vector<Request>& requests) {
  std::vector<Progress> progress;
  for (const Request& request : requests) {
    progress.push_back(
        {.tokens = request.prompt, .completion = {}, .done = request.max_new_tokens == 0});
  }
  return progress;
}

std::vector<Completion> Completions(std::vector<Progress> progress) {
  std::vector<Completion> completions;
  for (Progress& item : progress) completions.push_back(std::move(item.completion));
  return completions;
}

int64_t AddToken(const Request& request, std::span<const float> logits, Progress& progress) {
  Completion& completion = progress.completion;
  const int64_t token = onnx_ops::IndexOfMaxRow(logits.data(), static_cast<int64_t>(logits.size()),
                                                /*last=*/false);
  const size_t produced = completion.tokens.size();
  completion.tokens.push_back(token);
  if (request.keep_logits) completion.logits.emplace_back(logits.begin(), logits.end());
  const bool forced = produced < request.forced.size();
  progress.tokens.push_back(forced ? request.forced[produced] : token);
  const bool stopped =
      !forced && std::count(request.stop_tokens.begin(), request.stop_tokens.end(), token) > 0;
  progress.done =
      stopped || static_cast<int64_t>(completion.tokens.size()) >= request.max_new_tokens;
  return token;
}

}  // namespace pagefuse
