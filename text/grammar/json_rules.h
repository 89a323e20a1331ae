// SPDX-License-Identifier: Apache-2.0
// Rules that every grammar begins with, those of JSON first of all: the same numbers, of rules and
// of their states, everywhere, so that what is known of them serves all grammars.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "pagefuse/text/grammar/grammar_budget.h"
#include "pagefuse/text/grammar/rule_nfa.h"

namespace pagefuse {

// Compact JSON, with one blank at most behind "," and ":". A number's text is bounded so that its
// value is finite: 20 digits before the point, 20 behind it, exponents up to 99 (307 if there is one
// digit before the point).
enum JsonRule : uint32_t {
  kJsonStringRest,  // what follows the opening quote; its callees bound the number of characters
  kJsonString,
  kJsonInteger,  // of 64 bits
  kJsonNumber,
  kJsonBoolean,
  kJsonNull,
  kJsonValue,
  kJsonObject,
  kJsonArray,
  kAnyUtf8,  // any characters, also none
  kNumSharedRules,
};

// The rules above, and nothing else.
RuleSet SharedRules();

// Integers from `least` to `most`, without leading zeros and without "-0". Not `least > most`.
RuleNfa IntegersBetween(int64_t least, int64_t most);

}  // namespace pagefuse
