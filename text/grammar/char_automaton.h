// SPDX-License-Identifier: Apache-2.0
// Finite automata over characters: what regular expressions, lengths and names become before they
// are spelled in bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/text/grammar/character_set.h"
#include "pagefuse/text/grammar/grammar_budget.h"

namespace pagefuse {

struct CharEdge {
  CharacterRange range;
  uint32_t to = 0;
};

struct CharNfa {
  enum When : uint8_t {
    kAlways,
    kAtBegin,
    kAtEnd
  };  // where in the text an empty edge may be taken
  struct EmptyEdge {
    uint32_t to = 0;
    When when = kAlways;
  };
  struct State {
    std::vector<CharEdge> edges;
    std::vector<EmptyEdge> empty;
  };
  std::vector<State> states;
  uint32_t begin = 0;
  uint32_t end = 0;  // the one state that accepts
};

// Deterministic; it begins in state 0.
struct CharDfa {
  struct State {
    std::vector<CharEdge> edges;  // ascending, disjoint
    bool accepts = false;
  };
  std::vector<State> states;
};

// Without states from which nothing is accepted; no states at all if it accepts nothing.
absl::StatusOr<CharDfa> Determinise(const CharNfa& nfa, const GrammarBudget& budget);
absl::StatusOr<CharDfa> Intersection(const CharDfa& a, const CharDfa& b,
                                     const GrammarBudget& budget);
// Any text of that many characters; `most` may be kUnbounded.
inline constexpr uint32_t kUnbounded = UINT32_MAX;
absl::StatusOr<CharDfa> TextOfLength(uint32_t least, uint32_t most, const GrammarBudget& budget);

// Reads any text: state n has seen the first n characters of `mark`, and the last state the mark
// itself; no edge leaves it. `mark` is UTF-8, not empty.
CharDfa FirstOccurrence(std::string_view mark);

}  // namespace pagefuse
