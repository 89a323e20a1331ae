// What is asked of a decoder, and what comes back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace pagefuse {

struct Request {
  std::vector<int64_t> prompt;
  int64_t max_new_tokens = 32;
  std::vector<int64_t> stop_tokens = {};  // the token that stops is part of the result
  // Teacher forcing: these tokens follow the prompt whatever the model prefers; Completion::tokens
  // then holds what it preferred.
  std::vector<int64_t> forced = {};
  bool keep_logits = false;
};

struct Completion {
  std::vector<int64_t> tokens;             // the new ones
  std::vector<std::vector<float>> logits;  // one row a new token, if asked for
};

// InvalidArgument for an empty prompt, a token outside the vocabulary (0: not known) or lengths
// past int32, as positions are.
absl::Status CheckRequests(const std::vector<Request>& requests, int64_t vocabulary);

// The tokens of a request as they become known: the prompt, and what followed it.
struct Progress {
  std::vector<int64_t> tokens;
  Completion completion;
  bool done = false;
};
// One for each request. Done at once where no new token is asked for.
std::vector<Progress> Begin(const std::vector<Request>& requests);
std::vector<Completion> Completions(std::vector<Progress> progress);

// Adds the token that a row of logits (not empty) prefers, the first of equals, and returns it.
int64_t AddToken(const Request& request, std::span<const float> logits, Progress& progress);

}  // namespace pagefuse
