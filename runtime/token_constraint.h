// SPDX-License-Identifier: Apache-2.0
// What an answer may be: tokens that may come next, by those that came.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pagefuse {

// Which tokens of a row of logits cannot come.
struct TokenLimits {
  std::span<const int64_t> forbidden = {};
  // One bit a token, token t in word t / 64: those that may; empty: all. Tokens behind the last word may
  // not.
  std::span<const uint64_t> allowed = {};
};

// Of one sample of one request, and a function of its tokens alone. Called by the thread that steps.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // As TokenLimits::allowed, until the next call; with the tokens that end an answer. An error ends the
  // completion.
  virtual absl::StatusOr<std::span<const uint64_t>> Allowed() = 0;
  // The token that came.
  virtual void Accept(int64_t token) = 0;
  // Nothing can follow: the answer ends here, without a token that says so.
  virtual bool Ended() const = 0;
};
// One for each sample.
using TokenConstraintMaker = std::function<std::unique_ptr<TokenConstraint>()>;

}  // namespace pagefuse
