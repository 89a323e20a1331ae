// SPDX-License-Identifier: Apache-2.0
// Guesses of the next tokens of a text, by what stood behind the same tokens earlier in it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace pagefuse {

// Prompt lookup: the last three tokens are looked for earlier in the text, and what followed them there
// last is the guess. How many are guessed goes by how many were right: up to kMost, and none for a
// while where they are not. Not thread-safe.
class Drafts {
 public:
  static constexpr int64_t kMost = 8;  // tokens of a guess

  // Of the tokens that follow the text, `most` or fewer; none where nothing is found. The text is that
  // of the last call, or longer.
  std::vector<int64_t> Propose(std::span<const int64_t> tokens, int64_t most);
  // So many of the first of these were right.
  void Tell(int64_t proposed, int64_t accepted);

 private:
  static constexpr int64_t kKey = 3;

  absl::flat_hash_map<uint64_t, int64_t> behind_;  // the place behind three tokens with this hash
  int64_t indexed_ = kKey - 1;                     // tokens whose three last are in there
  int64_t width_ = 4;
  int64_t pause_ = 1, paused_ = 0;  // calls without a guess after one that was wrong
};

}  // namespace pagefuse
