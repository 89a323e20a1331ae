// SPDX-License-Identifier: Apache-2.0
// Which tokens may be read from a state of a rule, whatever has called it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/text/grammar/automaton.h"
#include "pagefuse/text/grammar/token_trie.h"

namespace pagefuse {

// A set of tokens, a bit each or a list.
class TokenSet {
 public:
  TokenSet() = default;
  TokenSet(std::vector<uint32_t> ids, int64_t num_tokens);

  void AddTo(std::span<uint64_t> bits) const;
  size_t bytes() const { return ids_.size() * sizeof(uint32_t) + bits_.size() * sizeof(uint64_t); }

 private:
  std::vector<uint32_t> ids_;   // of few
  std::vector<uint64_t> bits_;  // of many
};

struct RuleMask {
  // Tokens that stay in the rule, in what it calls, or end with its end.
  TokenSet tokens;
  // Nodes of the tree at which the rule ends and below which there are tokens: what has called it
  // says which of those may be read.
  std::vector<uint32_t> ends;
};

// Works a mask out: walks the tree from the root.
RuleMask WalkRule(const Automaton& automaton, uint32_t state, const TokenTrie& trie);

// Masks of the states of one grammar, or of one rule in all grammars that have it. Thread-safe.
class RuleMaskCache {
 public:
  explicit RuleMaskCache(size_t max_bytes = 64 << 20) : max_bytes_(max_bytes) {}

  // `name`: what tells the state from others that are kept here.
  std::shared_ptr<const RuleMask> Of(const Automaton& automaton, uint32_t state,
                                     const TokenTrie& trie, uint32_t name);
  size_t bytes() const;

 private:
  const size_t max_bytes_;
  mutable std::mutex mutex_;
  // By the tree's serial number and the name.
  absl::flat_hash_map<std::pair<uint64_t, uint32_t>, std::shared_ptr<const RuleMask>> masks_;
  size_t bytes_ = 0;
};

// Masks of rules that call no others, for all grammars over one vocabulary: the same expressions and
// marks come again and again. Thread-safe.
class SharedRuleMasks {
 public:
  struct Rule {
    Rule(size_t max_bytes, std::vector<uint32_t> alike_states)
        : masks(max_bytes), alike(std::move(alike_states)) {}

    RuleMaskCache masks;
    std::vector<uint32_t> alike;  // AlikeStates of it
    std::shared_ptr<const RuleMask> Of(const Automaton& automaton, uint32_t state,
                                       const TokenTrie& trie);
  };

  // By what the rule says. Where there are too many, those that no answer uses are forgotten.
  std::shared_ptr<Rule> Of(const Automaton& automaton, uint32_t rule, const TokenTrie& trie);

 private:
  std::mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<Rule>> rules_;
};

}  // namespace pagefuse
