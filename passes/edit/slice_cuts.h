// SPDX-License-Identifier: Apache-2.0
// Reads which range a Slice takes of each axis.
#pragma once

#include <optional>
#include <vector>

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {

// Of one axis: elements `start`, `start + step`, .. before `end`.
struct SliceCut {
  int axis = 0;    // from the front
  Dim start, end;  // as given: a negative number counts from the end of the axis
  int64_t step = 1;
};

// The cuts of `node`, in the order that it lists them; nullopt if it is no Slice, or its data's
// rank, its axes or steps are not known numbers. A bound that is not known is an unknown Dim.
std::optional<std::vector<SliceCut>> CutsOfSlice(const Node& node,
                                                 const SymbolicContents& contents);

// The only cut of a Slice by steps of 1; nullopt if there are more, or another step.
std::optional<SliceCut> OnlyCut(const Node& node, const SymbolicContents& contents);

}  // namespace pagefuse
