// SPDX-License-Identifier: Apache-2.0
// Finds the tokens that a text is searched for before anything else: special ones (<bos>), and
// others that are kept whole.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/text/text_range.h"

namespace pagefuse {

struct AddedToken {
  std::string content;
  int64_t id = 0;
  bool special = false;
  bool normalized = false;   // found in normalised text, not in the text as it came
  bool single_word = false;  // not inside of a word
  bool left_strip = false;   // takes the white space in front of it
  bool right_strip = false;  // takes the white space behind it
};

// Finds tokens: the leftmost first, of those that begin there the longest.
class AddedTokens {
 public:
  // Of two with one content the later one is found.
  void Add(const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  struct Piece {
    size_t first = 0, end = 0;  // in the text
    int64_t id = -1;            // of the token; -1: text between tokens
  };
  // The pieces of a text, in order, none empty. A special token that touches one of the `plain`
  // ranges (ascending) is text.
  std::vector<Piece> Split(std::string_view text, const std::vector<TextRange>& plain) const;

 private:
  // The longest token at the front of `text`, whose first byte is at `at`; null if there is none.
  const AddedToken* LongestAt(std::string_view text, size_t at,
                              const std::vector<TextRange>& plain) const;

  std::vector<AddedToken> tokens_;
  absl::flat_hash_map<uint64_t, uint32_t> edges_;  // trie: node << 8 | byte -> node
  std::vector<int32_t> ends_ = {-1};               // by node: the token that ends there
  std::array<bool, 256> begins_ = {};              // bytes that tokens begin with
};

}  // namespace pagefuse
