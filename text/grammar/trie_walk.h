// SPDX-License-Identifier: Apache-2.0
// Walks the part of the tree of tokens that an automaton can read.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/text/grammar/place_table.h"
#include "pagefuse/text/grammar/token_trie.h"

namespace pagefuse {

class TrieWalk {
 public:
  // Both must live as long as this.
  TrieWalk(const TokenTrie& trie, PlaceTable& table) : trie_(trie), table_(table) {}

  // Visits all nodes below `top` that can be read from the set `begin` of the table, in the tree's
  // order: visit(node, set) says whether to go on below the node. Below one whose set reads nothing
  // there is nothing to visit. A visit may not walk with the same TrieWalk.
  template <typename Visit>
  void Below(uint32_t top, uint32_t begin, const Visit& visit) {
    const uint32_t end = trie_.skip(top);
    levels_.assign(1, {end, begin});
    for (uint32_t node = top + 1; node < end;) {
      while (node == levels_.back().end) levels_.pop_back();
      const uint32_t set = table_.Next(levels_.back().set, trie_.byte(node));
      const uint32_t skip = trie_.skip(node);
      const bool below =
          set != PlaceTable::kDead && visit(node, set) && skip > node + 1 && table_.reads(set);
      if (!below) {
        node = skip;
        continue;
      }
      levels_.push_back({skip, set});
      ++node;
    }
  }

 private:
  struct Level {
    uint32_t end;
    uint32_t set;
  };

  const TokenTrie& trie_;
  PlaceTable& table_;
  std::vector<Level> levels_;  // kept: many small walks need not ask for room
};

}  // namespace pagefuse
