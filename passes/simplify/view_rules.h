// SPDX-License-Identifier: Apache-2.0
// Declares the rules of simplify-shapes, by the file that defines them.
#pragma once

#include "pagefuse/passes/simplify/peephole.h"

namespace pagefuse {

// --- view_rules.cc: Reshape, Squeeze, Unsqueeze, Flatten ---
bool RemoveView(Node& node, Peephole& peephole);  // the result has the shape of the source
bool MergeViews(Node& node, Peephole& peephole);  // a view of a view
// Views of views that put in, or take out, dims of 1.
bool MergeRealignments(Node& node, Peephole& peephole);
bool CanonicalReshape(Node& node,
                      Peephole& peephole);  // a computed target becomes a constant with 0 and -1

// --- axis_rules.cc: along one axis ---
bool JoinParts(Node& node, Peephole& peephole);      // all parts of one value, in order
bool SplitToSlice(Node& node, Peephole& peephole);   // of which one part is read
bool GatherToSlice(Node& node, Peephole& peephole);  // indices that count up
bool ViewOfReduction(Node& node,
                     Peephole& peephole);  // keeps the axes that it reduced, or drops them

// --- no_op_rules.cc: nodes that change nothing ---
bool RemoveIdentity(Node& node, Peephole& peephole);
bool RemoveDropout(Node& node, Peephole& peephole);
bool RemoveExpand(Node& node, Peephole& peephole);
bool RemoveSlice(Node& node, Peephole& peephole);
bool RemoveSingleConcat(Node& node, Peephole& peephole);
bool SimplifyTranspose(Node& node, Peephole& peephole);
bool CanonicalSlice(Node& node, Peephole& peephole);

// --- size_rules.cc: where sizes are read from ---
bool ReadSizeFromInput(Node& node, Peephole& peephole);
// The same for a size that is the sum of those of inputs, as that of past and new keys.
bool AddSizesOfInputs(Node& node, Peephole& peephole);
// The places of n ones count up to n: how exporters write a range before opset 11.
bool PlacesOfOnes(Node& node, Peephole& peephole);

}  // namespace pagefuse
