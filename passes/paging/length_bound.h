// SPDX-License-Identifier: Apache-2.0
// Comparisons of the length of a text with a constant.
#pragma once

#include "pagefuse/passes/paging/premises.h"

namespace pagefuse {

// Replaces those that come to the same as long as a text is no longer than a bound by that, and
// notes the bound. `fixed`: the mask is as long as caches are, however short the text is.
void SettleLengths(Graph& graph, const SymbolicContents& contents, bool fixed, Premises& premises);

}  // namespace pagefuse
