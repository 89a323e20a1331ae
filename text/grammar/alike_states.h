// SPDX-License-Identifier: Apache-2.0
// States of a rule that no token can tell apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pagefuse/text/grammar/automaton.h"

namespace pagefuse {

// For each state of a rule without calls, counted from its first one, the first state from which the
// same texts of up to `max_bytes` can be read and after which of their bytes the rule may end: in
// `[a-z]{1,40}` all states but the last ones. Each state itself if the rule is large.
std::vector<uint32_t> AlikeStates(const Automaton& automaton, uint32_t rule, size_t max_bytes);

}  // namespace pagefuse
