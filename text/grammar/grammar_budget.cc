// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/grammar_budget.h"

#include <ctime>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

int64_t ThreadMicroseconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

}  // namespace

GrammarBudget::GrammarBudget() : begin_microseconds_(ThreadMicroseconds()) {}

GrammarBudget GrammarBudget::Unbounded() {
  GrammarBudget budget;
  budget.bounded_ = false;
  return budget;
}

absl::Status GrammarBudget::Check(size_t states) const {
  if (!bounded_) return absl::OkStatus();
  if (states > kMaxGrammarStates) {
    return absl::ResourceExhaustedError(StrCat("the grammar: expected at most ", kMaxGrammarStates,
                                               " states of its automaton, got ", states));
  }
  const int64_t taken = ThreadMicroseconds() - begin_microseconds_;
  if (taken > kMaxGrammarMicroseconds) {
    return absl::ResourceExhaustedError(StrCat("the grammar: expected at most ",
                                               kMaxGrammarMicroseconds / 1000,
                                               " ms of compile time, got ", taken / 1000));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
