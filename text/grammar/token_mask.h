// SPDX-License-Identifier: Apache-2.0
// Which tokens an answer under a grammar may go on with.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/text/grammar/grammar.h"
#include "pagefuse/text/grammar/token_trie.h"

namespace pagefuse {

// Of one answer. A function of the tokens accepted so far, whatever was asked before. Not for several
// threads at once; copies are independent, for drafts that may be taken back.
class TokenMask {
 public:
  // `num_tokens`: the size of the vocabulary, if the model scores more ids than the tree has.
  TokenMask(Grammar::Ptr grammar, std::shared_ptr<const TokenTrie> trie,
            std::vector<int64_t> end_tokens, int64_t num_tokens = 0);
  TokenMask(const TokenMask& other);
  TokenMask(TokenMask&& other) noexcept;
  TokenMask& operator=(const TokenMask& other);
  TokenMask& operator=(TokenMask&& other) noexcept;
  ~TokenMask();

  // A bit for each id, that of id i in word i / 64; valid until the next call of something that is not
  // const. End tokens are allowed where the answer may end, and nothing but them where nothing may
  // follow. FailedPrecondition naming the bytes that must come if no token begins with any of them.
  absl::StatusOr<std::span<const uint64_t>> Allowed();
  // The answer goes on with this token. InvalidArgument if it is not allowed, FailedPrecondition
  // behind an end token.
  absl::Status Accept(int64_t token);

  // The answer may end here.
  bool accepts() const;
  // Nothing but its end can come, or it has ended.
  bool finished() const;
  // Words of a mask.
  int64_t num_words() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagefuse
