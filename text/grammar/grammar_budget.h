// SPDX-License-Identifier: Apache-2.0
// The bounds of what a grammar may take: states, and time of the processor while it is made.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace pagefuse {

inline constexpr size_t kMaxSchemaBytes = 64 << 10;
inline constexpr int kMaxSchemaDepth = 32;
inline constexpr size_t kMaxGrammarStates = 100'000;
inline constexpr int64_t kMaxGrammarMicroseconds = 100'000;

// One of these accompanies the making of one grammar.
class GrammarBudget {
 public:
  GrammarBudget();
  // For grammars of our own, which no caller can make large: they are made however slow the machine is.
  static GrammarBudget Unbounded();

  // ResourceExhausted if one automaton has more states than may be, or if the time is over.
  absl::Status Check(size_t states) const;

 private:
  // Of this thread: other threads that want the processor do not make a schema too large.
  int64_t begin_microseconds_;
  bool bounded_ = true;
};

}  // namespace pagefuse
