// SPDX-License-Identifier: Apache-2.0
// The rules of a grammar while it is made: automata over bytes that may call each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/text/grammar/char_automaton.h"

namespace pagefuse {

// What a byte has to do with the characters of a JSON string, whose number a call may bound.
enum class Counted : uint8_t {
  kNo,
  kCharacter,  // it begins a character
  kEnd,        // it ends the string
};

// A call of a rule. The bounds are for the rule of JSON strings (json_rules.h).
struct Callee {
  uint32_t rule = 0;
  uint32_t least = 0;
  uint32_t most = kUnbounded;
  bool operator==(const Callee&) const = default;
};

// Nondeterministic, with empty edges. It begins in state 0.
class RuleNfa {
 public:
  struct ByteEdge {
    uint32_t from;
    uint32_t to;
    uint8_t low;
    uint8_t high;
    Counted counted;
  };
  struct EmptyEdge {
    uint32_t from;
    uint32_t to;
  };
  struct CallEdge {
    uint32_t from;
    uint32_t to;
    uint32_t callee;  // in RuleSet
  };

  RuleNfa() { AddState(); }

  uint32_t AddState();
  void AddBytes(uint32_t from, ByteRange bytes, uint32_t to, Counted counted = Counted::kNo);
  void AddEmpty(uint32_t from, uint32_t to);
  void AddCall(uint32_t from, uint32_t callee, uint32_t to);
  void Accept(uint32_t state) { accepts_[state] = true; }

  // Reads the text; the state behind it.
  uint32_t AddText(uint32_t from, std::string_view text);
  // The same to a state that is there.
  void AddTextTo(uint32_t from, std::string_view text, uint32_t to);
  // Characters as UTF-8.
  void AddCharacters(uint32_t from, CharacterRange range, uint32_t to);
  // Characters as json::dump spells them in a string: as they are, or escaped where they must be.
  void AddJsonCharacters(uint32_t from, const CharacterSet& set, uint32_t to);

  size_t size() const { return accepts_.size(); }
  bool accepts(uint32_t state) const { return accepts_[state]; }
  const std::vector<ByteEdge>& byte_edges() const { return byte_edges_; }
  const std::vector<EmptyEdge>& empty_edges() const { return empty_edges_; }
  const std::vector<CallEdge>& call_edges() const { return call_edges_; }

  // It is to stay as it is: it is deterministic.
  void MarkFinal() { final_ = true; }
  bool is_final() const { return final_; }
  // What errors call it.
  void SetPlace(std::string place) { place_ = std::move(place); }
  const std::string& place() const { return place_; }

 private:
  uint32_t Before(ByteRange bytes, uint32_t to);
  uint32_t EscapesBefore(uint64_t escapes, uint32_t to);

  std::vector<bool> accepts_;
  std::vector<ByteEdge> byte_edges_;
  std::vector<EmptyEdge> empty_edges_;
  std::vector<CallEdge> call_edges_;
  bool final_ = false;
  std::string place_;
  // States that were made for the ends of characters, by what they read and where they lead.
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> before_;
  absl::flat_hash_map<std::pair<uint64_t, uint32_t>, uint32_t> escapes_before_;
};

enum class Spelling { kPlain, kInJsonString };
struct RulePart {
  uint32_t from = 0;
  uint32_t to = 0;
};
// Appends an automaton over characters to a rule: its first state is part.from, and from each of its
// states that accept an empty edge leads to part.to.
absl::Status AddCharDfa(const CharDfa& dfa, Spelling spelling, const RulePart& part, RuleNfa& rule,
                        const GrammarBudget& budget);

struct RuleSet {
  std::vector<RuleNfa> rules;
  std::vector<Callee> callees;
  uint32_t start = 0;  // a rule

  // The callee's number, the same for the same callee.
  uint32_t CalleeOf(const Callee& callee);
  uint32_t CalleeOf(uint32_t rule) { return CalleeOf(Callee{rule}); }
  uint32_t Add(RuleNfa rule);

 private:
  absl::flat_hash_map<std::pair<uint32_t, std::pair<uint32_t, uint32_t>>, uint32_t> callee_ids_;
};

}  // namespace pagefuse
