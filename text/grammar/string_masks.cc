// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/string_masks.h"

#include <algorithm>
#include <utility>

#include "pagefuse/text/grammar/automaton.h"
#include "pagefuse/text/grammar/grammar.h"
#include "pagefuse/text/grammar/json_rules.h"
#include "pagefuse/text/grammar/token_trie.h"

namespace pagefuse {
namespace {

const Automaton& StringAutomaton() { return Grammar::OfAnyJsonObject()->automaton(); }

// The rule of strings by state and byte.
struct StringTable {
  struct Next {
    uint8_t state = StringMasks::kNoState;
    Counted counted = Counted::kNo;
  };

  StringTable() {
    const Automaton& automaton = StringAutomaton();
    const Automaton::Rule& rule = automaton.rule(kJsonStringRest);
    next.resize(rule.end - rule.first);
    for (uint32_t state = rule.first; state < rule.end; ++state) {
      for (const Automaton::Edge& edge : automaton.edges(state)) {
        for (int byte = edge.low; byte <= edge.high; ++byte) {
          next[state - rule.first][byte] = {static_cast<uint8_t>(edge.to - rule.first),
                                            edge.counted};
        }
      }
    }
  }
  static const StringTable& Get() {
    static const StringTable* const kTable = new StringTable();
    return *kTable;
  }

  std::vector<std::array<Next, 256>> next;
};

void SetBits(std::span<const uint32_t> ids, std::span<uint64_t> bits) {
  for (const uint32_t id : ids) bits[id / 64] |= uint64_t{1} << id % 64;
}

}  // namespace

// What is read from one state.
struct StringMasks::Sorted {
  struct End {
    uint32_t node;
    uint32_t characters;
  };

  std::span<const uint32_t> Within(size_t first, size_t last) const {
    return std::span(within).subspan(begins[first], begins[last] - begins[first]);
  }

  // Tokens that stay in the string, by the number of characters that they begin: those of n are
  // [begins[n], begins[n + 1]).
  std::vector<uint32_t> within;
  std::vector<uint32_t> begins;
  std::vector<uint64_t> bits;  // all of them
  std::vector<End> ends;       // nodes that end the string
};

StringMasks::StringMasks(const TokenTrie& trie)
    : trie_(trie), sorted_(StringTable::Get().next.size()) {
  // Where most tokens come: made now, not in the middle of an answer.
  states_.assign(trie.size(), kNoState);
  sorted_[0] = Sort(0, &states_);
}
StringMasks::~StringMasks() = default;

const StringMasks::Sorted& StringMasks::Of(uint32_t state) {
  const std::lock_guard lock(mutex_);
  if (sorted_[state] == nullptr) sorted_[state] = Sort(state, nullptr);
  return *sorted_[state];
}

std::unique_ptr<const StringMasks::Sorted> StringMasks::Sort(uint32_t begin,
                                                             std::vector<uint8_t>* states) const {
  struct Level {
    uint32_t end;
    uint32_t state;
    uint32_t characters;
  };
  const StringTable& table = StringTable::Get();
  auto sorted = std::make_unique<Sorted>();
  std::vector<std::vector<uint32_t>> by_characters(1);
  std::vector<Level> levels = {{trie_.size(), begin, 0}};
  for (uint32_t node = 1; node < trie_.size();) {
    while (node == levels.back().end) levels.pop_back();
    const StringTable::Next next = table.next[levels.back().state][trie_.byte(node)];
    const uint32_t skip = trie_.skip(node);
    uint32_t characters = levels.back().characters;
    if (next.state == kNoState || next.counted == Counted::kEnd) {
      if (next.state != kNoState) sorted->ends.push_back({node, characters});
      node = skip;
      continue;
    }
    if (states != nullptr) (*states)[node] = next.state;
    if (next.counted == Counted::kCharacter) ++characters;
    const auto tokens = trie_.tokens(node);
    if (by_characters.size() <= characters) by_characters.resize(characters + 1);
    by_characters[characters].insert(by_characters[characters].end(), tokens.begin(), tokens.end());
    levels.push_back({skip, next.state, characters});
    ++node;
  }
  for (const std::vector<uint32_t>& ids : by_characters) {
    sorted->begins.push_back(static_cast<uint32_t>(sorted->within.size()));
    sorted->within.insert(sorted->within.end(), ids.begin(), ids.end());
  }
  sorted->begins.push_back(static_cast<uint32_t>(sorted->within.size()));
  sorted->bits.resize(static_cast<size_t>((trie_.num_tokens() + 63) / 64));
  SetBits(sorted->within, sorted->bits);
  return sorted;
}

void StringMasks::AddTo(uint32_t state, const Bounds& bounds, std::span<uint64_t> bits,
                        std::vector<uint32_t>& ends) {
  const Sorted& sorted = Of(state);
  const size_t longest = sorted.begins.size() - 1;
  const size_t few = std::min<size_t>(longest, size_t{bounds.most} + 1);
  if (sorted.begins[few] < sorted.within.size() / 2) {
    SetBits(sorted.Within(0, few), bits);
  } else {
    // All but those that are too long; other places may allow them.
    std::vector<uint64_t> too_long(few < longest ? sorted.bits.size() : 0);
    SetBits(sorted.Within(few, longest), too_long);
    for (size_t i = 0; i < sorted.bits.size(); ++i) {
      bits[i] |= too_long.empty() ? sorted.bits[i] : sorted.bits[i] & ~too_long[i];
    }
  }
  for (const Sorted::End& end : sorted.ends) {
    if (end.characters < bounds.least || end.characters > bounds.most) continue;
    SetBits(trie_.tokens(end.node), bits);
    if (trie_.has_children(end.node)) ends.push_back(end.node);
  }
}

void StringMasks::AppendBelow(uint32_t node, std::vector<uint32_t>& tokens,
                              std::vector<uint32_t>& ends) const {
  const Sorted& body = *sorted_[0];
  for (const uint32_t id : trie_.tokens_below(node)) {
    if ((body.bits[id / 64] >> id % 64 & 1) != 0) tokens.push_back(id);
  }
  const auto end = std::partition_point(body.ends.begin(), body.ends.end(),
                                        [&](const Sorted::End& at) { return at.node <= node; });
  for (auto at = end; at != body.ends.end() && at->node < trie_.skip(node); ++at) {
    ends.push_back(at->node);
  }
}

}  // namespace pagefuse
