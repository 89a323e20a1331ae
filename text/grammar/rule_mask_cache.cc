// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/rule_mask_cache.h"

#include <utility>

#include "pagefuse/text/grammar/alike_states.h"
#include "pagefuse/text/grammar/json_rules.h"
#include "pagefuse/text/grammar/place_table.h"
#include "pagefuse/text/grammar/string_masks.h"
#include "pagefuse/text/grammar/trie_walk.h"

namespace pagefuse {
namespace {

constexpr size_t kMaxSharedBytes = 128 << 20;
constexpr size_t kMaxSharedRules = 1024;

// All that a rule without calls says, as a key.
std::string RuleText(const Automaton& automaton, uint32_t rule) {
  std::string text;
  const auto add = [&text](uint32_t value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const Automaton::Rule& r = automaton.rule(rule);
  for (uint32_t state = r.first; state < r.end; ++state) {
    const auto edges = automaton.edges(state);
    const auto empties = automaton.empties(state);
    add(static_cast<uint32_t>(edges.size()) << 1 | (automaton.accepts(state) ? 1 : 0));
    add(static_cast<uint32_t>(empties.size()));
    for (const Automaton::Edge& edge : edges) {
      add(edge.to - r.first);
      add(uint32_t{edge.low} << 8 | edge.high);
    }
    for (const uint32_t to : empties) add(to - r.first);
  }
  return text;
}

class RuleWalk {
 public:
  RuleWalk(const Automaton& automaton, const TokenTrie& trie)
      : automaton_(automaton), trie_(trie), table_(automaton) {}

  RuleMask Run(uint32_t state) {
    // With nothing below it: where the text may end, the rule has returned.
    GrammarPlaces begin;
    begin.places.push_back({state, 0, GrammarStacks::kBottom});
    WalkBelow(0, table_.IdOf(std::move(begin)));
    mask_.tokens = TokenSet(std::move(ids_), trie_.num_tokens());
    mask_.ends.shrink_to_fit();
    return std::move(mask_);
  }

 private:
  // Nodes with less below them are walked: that takes less time than to look whether they need be.
  static constexpr uint32_t kFewNodes = 64;

  void WalkBelow(uint32_t top, uint32_t set) {
    TrieWalk(trie_, table_).Below(top, set, [this](uint32_t node, uint32_t at) {
      Add(node, at);
      return trie_.skip(node) - node < kFewNodes || !AddString(node, at);
    });
  }

  void Add(uint32_t node, uint32_t set) {
    const auto tokens = trie_.tokens(node);
    ids_.insert(ids_.end(), tokens.begin(), tokens.end());
    if (table_.accepts(set) && trie_.has_children(node)) mask_.ends.push_back(node);
  }

  // What is below a node that lies within a string of any length, from what is known of strings;
  // false if it does not lie there.
  bool AddString(uint32_t node, uint32_t set) {
    if (table_.accepts(set) || table_.places(set).places.size() != 1) return false;
    const GrammarPlace place = table_.places(set).places[0];
    if (automaton_.rule_of(place.state) != kJsonStringRest ||
        trie_.string_masks().StateAt(node) != place.state ||
        table_.callee(place.stack) != Callee{kJsonStringRest}) {
      return false;
    }
    std::vector<uint32_t> ends;
    trie_.string_masks().AppendBelow(node, ids_, ends);
    const uint32_t after = table_.After(place.stack);
    for (const uint32_t end : ends) {
      Add(end, after);
      if (trie_.has_children(end)) WalkBelow(end, after);
    }
    return true;
  }

  const Automaton& automaton_;
  const TokenTrie& trie_;
  PlaceTable table_;
  std::vector<uint32_t> ids_;
  RuleMask mask_;
};

}  // namespace

TokenSet::TokenSet(std::vector<uint32_t> ids, int64_t num_tokens) {
  const auto words = static_cast<size_t>((num_tokens + 63) / 64);
  if (ids.size() * sizeof(uint32_t) <= words * sizeof(uint64_t)) {
    ids.shrink_to_fit();
    ids_ = std::move(ids);
    return;
  }
  bits_.resize(words);
  for (const uint32_t id : ids) bits_[id / 64] |= uint64_t{1} << id % 64;
}

void TokenSet::AddTo(std::span<uint64_t> bits) const {
  for (size_t i = 0; i < bits_.size(); ++i) bits[i] |= bits_[i];
  for (const uint32_t id : ids_) bits[id / 64] |= uint64_t{1} << id % 64;
}

RuleMask WalkRule(const Automaton& automaton, uint32_t state, const TokenTrie& trie) {
  return RuleWalk(automaton, trie).Run(state);
}

std::shared_ptr<const RuleMask> RuleMaskCache::Of(const Automaton& automaton, uint32_t state,
                                                  const TokenTrie& trie, uint32_t name) {
  const std::pair key(trie.serial(), name);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = masks_.find(key); found != masks_.end()) return found->second;
  }
  // Two threads may walk at once: they find the same.
  auto mask = std::make_shared<const RuleMask>(WalkRule(automaton, state, trie));
  const size_t bytes = mask->tokens.bytes() + mask->ends.size() * sizeof(uint32_t);
  const std::lock_guard lock(mutex_);
  if (bytes_ + bytes > max_bytes_) {
    masks_.clear();
    bytes_ = 0;
  }
  const auto [place, added] = masks_.try_emplace(key, std::move(mask));
  if (added) bytes_ += bytes;
  return place->second;
}

size_t RuleMaskCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::shared_ptr<const RuleMask> SharedRuleMasks::Rule::Of(const Automaton& automaton,
                                                          uint32_t state, const TokenTrie& trie) {
  const uint32_t first = automaton.rule(automaton.rule_of(state)).first;
  const uint32_t same = alike[state - first];
  return masks.Of(automaton, first + same, trie, same);
}

std::shared_ptr<SharedRuleMasks::Rule> SharedRuleMasks::Of(const Automaton& automaton,
                                                           uint32_t rule, const TokenTrie& trie) {
  const std::string key = RuleText(automaton, rule);
  const std::lock_guard lock(mutex_);
  if (const auto found = rules_.find(key); found != rules_.end()) return found->second;
  size_t bytes = 0;
  for (const auto& [text, known] : rules_) bytes += text.size() + known->masks.bytes();
  if (bytes > kMaxSharedBytes || rules_.size() > kMaxSharedRules) rules_.clear();
  const auto made =
      std::make_shared<Rule>(kMaxSharedBytes / 8, AlikeStates(automaton, rule, trie.max_bytes()));
  return rules_[key] = made;
}

}  // namespace pagefuse
