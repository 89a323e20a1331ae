// SPDX-License-Identifier: Apache-2.0
// What a decoder is asked for, and what it returns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/runtime/sampler.h"
#include "pagefuse/runtime/step_logits.h"
#include "pagefuse/runtime/token_constraint.h"

namespace pagefuse {

struct Request {
  std::vector<int64_t> prompt;
  int64_t max_new_tokens = 32;
  std::vector<int64_t> stop_tokens = {};  // the token that stops is part of the result
  // Teacher forcing: these tokens follow the prompt whatever the model prefers; Completion::tokens
  // then holds what it preferred.
  std::vector<int64_t> forced = {};
  bool keep_logits = false;
  SamplingOptions sampling = {};
  int64_t samples = 1;  // completions of one prompt, which is computed once; 1 to 16
  // What its answers may be; null: anything. Tokens that are forced are not asked of it.
  TokenConstraintMaker constraint = nullptr;
  std::string cache_salt = {};  // requests with another one share no beginnings
  // Why the caller refuses it, for limits that a decoder does not know; it ends as others that are
  // refused.
  absl::Status refused = {};
};

enum class FinishReason {
  kLength,   // max_new_tokens
  kStop,     // a stop token
  kEnded,    // OnToken did not go on
  kFailed,   // Completion::error says why; other completions go on
  kRefused,  // the same, before any step
  kCancelled,
};

struct Completion {
  size_t request = 0;                        // its place among those that were given
  std::vector<int64_t> tokens;               // the new ones
  std::vector<std::vector<float>> logits;    // one row a new token, if asked for
  std::vector<TokenLogprobs> logprobs = {};  // one a new token, if asked for
  FinishReason finish = FinishReason::kLength;
  uint64_t seed = 0;          // that it was drawn with
  int64_t cached_tokens = 0;  // of the prompt, not computed since earlier texts began so
  // Of a decoder that pages: all or the end of it was run by the graph as it was exported.
  bool as_exported = false;
  // kFailed: InvalidArgument naming the token for logits that are no numbers, and FailedPrecondition
  // for a token behind which a paged graph does not go on, which is the last one that is there. What
  // came before is there. kRefused: what was wrong with the request, by field, expected and given.
  absl::Status error = {};
};

// A token that has just come.
struct NewToken {
  size_t completion;  // its place in what Generate returns
  int64_t token;
  const TokenLogprobs* logprobs;  // null unless asked for
};
// Whether this completion goes on; called as tokens come.
using OnToken = std::function<bool(const NewToken&)>;

// InvalidArgument naming field, expected and given for an empty prompt, a token outside the
// vocabulary (0: not known), lengths past int32, as positions are, and what CheckSampling refuses; or
// Request::refused.
absl::Status CheckRequest(const Request& request, int64_t vocabulary);

// How many completions a request has: one for each sample, and one that is refused where there
// cannot be so many samples.
int64_t NumCompletions(const Request& request);

// Tokens of a sequence that are run: the last one that comes is not.
int64_t TokensToRun(const Request& request);

// The tokens of one completion as they become known: the prompt, and what followed it.
struct Progress {
  size_t request = 0;  // its request
  std::vector<int64_t> tokens;
  Completion completion;
  Sampler sampler;
  std::unique_ptr<TokenConstraint> constraint = nullptr;
  bool done = false;
};
// Those of each request, in order. Done at once where no new token is asked for, and refused where
// `check` says why.
std::vector<Progress> Begin(const std::vector<Request>& requests,
                            const std::function<absl::Status(const Request&)>& check);
std::vector<Completion> Completions(std::vector<Progress> progress);

// The error of a completion that has one, naming its request.
absl::Status ErrorOf(const Completion& completion);
// The first of these, OK if there is none.
absl::Status FirstError(const std::vector<Completion>& completions);

// What cannot come next.
absl::StatusOr<TokenLimits> LimitsOf(const Request& request, Progress& progress);
// What the sampler takes of one row of logits behind the tokens that are known.
absl::StatusOr<SampledToken> SampleToken(const Request& request, StepLogits& logits, int64_t row,
                                         Progress& progress);
// Adds it, and tells `on_token`, which may be null. Logits that are no numbers end this completion alone.
void AddToken(const Request& request, absl::StatusOr<SampledToken> sampled, StepLogits& logits,
              int64_t row, Progress& progress, size_t completion, const OnToken& on_token);
// Both.
void AddToken(const Request& request, StepLogits& logits, int64_t row, Progress& progress,
              size_t completion, const OnToken& on_token);

}  // namespace pagefuse
