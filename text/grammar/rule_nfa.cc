// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/rule_nfa.h"

#include <span>

#include "pagefuse/base/status_macros.h"

namespace pagefuse {
namespace {

// Characters that are escaped in JSON strings, numbered: the control characters, then these two.
constexpr int kQuoteEscape = 32;
constexpr int kBackslashEscape = 33;

struct ShortEscape {
  int number;
  char letter;
};
constexpr ShortEscape kShortEscapes[] = {{'\b', 'b'},
                                         {'\t', 't'},
                                         {'\n', 'n'},
                                         {'\f', 'f'},
                                         {'\r', 'r'},
                                         {kQuoteEscape, '"'},
                                         {kBackslashEscape, '\\'}};

bool Holds(const CharacterSet& set, char32_t character) {
  for (const CharacterRange& range : set.ranges()) {
    if (character >= range.low && character <= range.high) return true;
  }
  return false;
}

// One bit for each character of the set that is escaped.
uint64_t EscapesIn(const CharacterSet& set) {
  uint64_t escapes = 0;
  for (const CharacterRange& range : set.ranges()) {
    for (char32_t c = range.low; c <= range.high && c < 0x20; ++c) escapes |= uint64_t{1} << c;
  }
  if (Holds(set, '"')) escapes |= uint64_t{1} << kQuoteEscape;
  if (Holds(set, '\\')) escapes |= uint64_t{1} << kBackslashEscape;
  return escapes;
}

void AddHexDigit(RuleNfa& rule, uint32_t from, int digit, uint32_t to) {
  const auto add = [&](int byte) {
    rule.AddBytes(from, {static_cast<uint8_t>(byte), static_cast<uint8_t>(byte)}, to);
  };
  if (digit < 10) return add('0' + digit);
  add('a' + digit - 10);
  add('A' + digit - 10);
}

}  // namespace

uint32_t RuleNfa::AddState() {
  accepts_.push_back(false);
  return static_cast<uint32_t>(accepts_.size() - 1);
}

void RuleNfa::AddBytes(uint32_t from, ByteRange bytes, uint32_t to, Counted counted) {
  byte_edges_.push_back({from, to, bytes.low, bytes.high, counted});
}

void RuleNfa::AddEmpty(uint32_t from, uint32_t to) { empty_edges_.push_back({from, to}); }

void RuleNfa::AddCall(uint32_t from, uint32_t callee, uint32_t to) {
  call_edges_.push_back({from, to, callee});
}

uint32_t RuleNfa::AddText(uint32_t from, std::string_view text) {
  for (const char c : text) {
    const uint32_t to = AddState();
    AddBytes(from, {static_cast<uint8_t>(c), static_cast<uint8_t>(c)}, to);
    from = to;
  }
  return from;
}

void RuleNfa::AddTextTo(uint32_t from, std::string_view text, uint32_t to) {
  if (text.empty()) return AddEmpty(from, to);
  const auto last = static_cast<uint8_t>(text.back());
  AddBytes(AddText(from, text.substr(0, text.size() - 1)), {last, last}, to);
}

// The state from which these bytes lead to `to`.
uint32_t RuleNfa::Before(ByteRange bytes, uint32_t to) {
  const uint32_t key = static_cast<uint32_t>(bytes.low) << 8 | bytes.high;
  const auto [place, added] = before_.try_emplace({key, to}, 0);
  if (!added) return place->second;
  const uint32_t state = AddState();
  place->second = state;
  AddBytes(state, bytes, to);
  return state;
}

void RuleNfa::AddCharacters(uint32_t from, CharacterRange range, uint32_t to) {
  ForEachUtf8Range(range, [&](std::span<const ByteRange> bytes) {
    uint32_t state = to;
    for (size_t i = bytes.size() - 1; i > 0; --i) state = Before(bytes[i], state);
    AddBytes(from, bytes[0], state);
  });
}

// The state from which what stands behind the backslash of each of these escapes leads to `to`.
uint32_t RuleNfa::EscapesBefore(uint64_t escapes, uint32_t to) {
  const auto [place, added] = escapes_before_.try_emplace({escapes, to}, 0);
  if (!added) return place->second;
  const uint32_t begin = AddState();
  place->second = begin;
  for (const auto& [number, letter] : kShortEscapes) {
    if ((escapes >> number & 1) == 0) continue;
    const auto byte = static_cast<uint8_t>(letter);
    AddBytes(begin, {byte, byte}, to);
    escapes &= ~(uint64_t{1} << number);
  }
  if (escapes == 0) return begin;
  const uint32_t zeros = AddText(begin, "u00");
  for (int high : {0, 1}) {
    if ((escapes >> (16 * high) & 0xFFFF) == 0) continue;
    const uint32_t last = AddState();
    AddHexDigit(*this, zeros, high, last);
    for (int low = 0; low < 16; ++low) {
      if ((escapes >> (16 * high + low) & 1) != 0) AddHexDigit(*this, last, low, to);
    }
  }
  return begin;
}

void RuleNfa::AddJsonCharacters(uint32_t from, const CharacterSet& set, uint32_t to) {
  if (const uint64_t escapes = EscapesIn(set); escapes != 0) {
    AddBytes(from, {'\\', '\\'}, EscapesBefore(escapes, to));
  }
  CharacterSet escaped({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  escaped.AddAll(set.Complement());
  const CharacterSet plain = escaped.Complement();
  for (const CharacterRange& range : plain.ranges()) AddCharacters(from, range, to);
}

absl::Status AddCharDfa(const CharDfa& dfa, Spelling spelling, const RulePart& part, RuleNfa& rule,
                        const GrammarBudget& budget) {
  std::vector<uint32_t> ids(dfa.states.size(), part.from);
  for (size_t i = 1; i < ids.size(); ++i) ids[i] = rule.AddState();
  for (size_t i = 0; i < ids.size(); ++i) {
    PF_RETURN_IF_ERROR(budget.Check(rule.size()));
    if (dfa.states[i].accepts) rule.AddEmpty(ids[i], part.to);
    absl::flat_hash_map<uint32_t, CharacterSet> by_target;
    std::vector<uint32_t> targets;  // in order: equal input makes equal states
    for (const CharEdge& edge : dfa.states[i].edges) {
      if (spelling == Spelling::kPlain) {
        rule.AddCharacters(ids[i], edge.range, ids[edge.to]);
        continue;
      }
      const auto [place, added] = by_target.try_emplace(edge.to);
      if (added) targets.push_back(edge.to);
      place->second.Add(edge.range.low, edge.range.high);
    }
    for (const uint32_t target : targets) {
      rule.AddJsonCharacters(ids[i], by_target[target], ids[target]);
    }
  }
  return absl::OkStatus();
}

uint32_t RuleSet::CalleeOf(const Callee& callee) {
  const auto [place, added] = callee_ids_.try_emplace({callee.rule, {callee.least, callee.most}},
                                                      static_cast<uint32_t>(callees.size()));
  if (added) callees.push_back(callee);
  return place->second;
}

uint32_t RuleSet::Add(RuleNfa rule) {
  rules.push_back(std::move(rule));
  return static_cast<uint32_t>(rules.size() - 1);
}

}  // namespace pagefuse
