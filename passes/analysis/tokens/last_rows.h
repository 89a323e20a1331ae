// SPDX-License-Identifier: Apache-2.0
// Finds where a graph picks the rows of last tokens, and checks what happens to these rows
// afterwards.
#pragma once

#include <vector>

#include "pagefuse/passes/analysis/tokens/token_roles.h"

namespace pagefuse {

// True if the node takes row S - 1 of rows [B, S, N], its input 0 of these `axes`: by Gather,
// Slice, GatherND or GatherElements, with a constant or computed index. `index` is the role of
// input 1.
bool SelectsLastRows(const Node& node, TokenAxes axes, const TokenDependence& index,
                     const TokenSources& sources, const SymbolicContents& contents);

// What a node does with rows of last tokens, [B, 1, N] or [B, N].
enum class LastRowUse {
  kRowByRow,   // works on each row alone: as well on [1, T, N]
  kAlongLast,  // likewise, along the axis that its attribute `axis` says, the last one
  kView,       // drops or adds the axis of the one token, and moves nothing
  kOther,
};
// `last[i]` says which inputs are such rows; the others are fixed.
LastRowUse UseOfLastRows(const Node& node, const std::vector<bool>& last,
                         const SymbolicContents& contents);

}  // namespace pagefuse
