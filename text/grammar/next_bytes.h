// SPDX-License-Identifier: Apache-2.0
// Says which bytes may follow, for messages.
#pragma once

#include <string>

#include "pagefuse/text/grammar/automaton.h"
#include "pagefuse/text/grammar/grammar_stacks.h"

namespace pagefuse {

// Ranges, ascending: `'a'-'z', 0x80-0xBF`. Bounds of a string's length are not looked at.
std::string NextBytesText(const Automaton& automaton, const GrammarPlaces& places);

}  // namespace pagefuse
