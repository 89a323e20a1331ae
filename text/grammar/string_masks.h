// SPDX-License-Identifier: Apache-2.0
// Which tokens may be read within a JSON string, whose length may be bounded.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace pagefuse {

class TokenTrie;

// Most of a vocabulary may stand in a string, and most bytes of JSON answers do: tokens are sorted by
// their characters once, and any bounds are answered from that. Thread-safe.
class StringMasks {
 public:
  // Characters that the string may and must still have.
  struct Bounds {
    uint32_t least = 0;
    uint32_t most = UINT32_MAX;
  };

  // The tree must live as long as this.
  explicit StringMasks(const TokenTrie& trie);
  ~StringMasks();

  // `state` is one of the rule kJsonStringRest. Adds the tokens that stay in the string or end with
  // it; gives the nodes at which it ends and below which there are tokens.
  void AddTo(uint32_t state, const Bounds& bounds, std::span<uint64_t> bits,
             std::vector<uint32_t>& ends);

  // The part of what may be read from the first state of the rule that lies below a node; with the
  // state in which the node is come to, kNoState if it is not.
  static constexpr uint8_t kNoState = 0xFF;
  uint8_t StateAt(uint32_t node) const { return states_[node]; }
  // Tokens that stay in the string, and nodes that end it.
  void AppendBelow(uint32_t node, std::vector<uint32_t>& tokens, std::vector<uint32_t>& ends) const;

 private:
  struct Sorted;

  const Sorted& Of(uint32_t state);
  std::unique_ptr<const Sorted> Sort(uint32_t state, std::vector<uint8_t>* states) const;

  const TokenTrie& trie_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<const Sorted>> sorted_;  // by state
  std::vector<uint8_t> states_;                        // by node, read from the first state
};

}  // namespace pagefuse
