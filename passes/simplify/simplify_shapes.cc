// SPDX-License-Identifier: Apache-2.0
// simplify-shapes: merges nodes that only change shapes, and removes those that change nothing.
#include "pagefuse/passes/simplify/simplify.h"
#include "pagefuse/passes/simplify/view_rules.h"

namespace pagefuse {

std::unique_ptr<Pass> SimplifyShapes() {
  constexpr std::string_view kViews = "Reshape Squeeze Unsqueeze Flatten";
  return MakePeepholePass(
      "simplify-shapes",
      "Removes views and copies that change nothing, merges chains of them, and brings shape "
      "arithmetic to one form: Reshape targets are constants where they can be, contiguous "
      "Gathers and single parts of a Split are Slices, reductions keep or drop their axes "
      "themselves, and sizes are read from graph inputs.",
      {{"remove-identity", "Identity", RemoveIdentity},
       {"remove-dropout", "Dropout", RemoveDropout},
       {"remove-expand", "Expand", RemoveExpand},
       {"remove-slice", "Slice", RemoveSlice},
       {"remove-single-concat", "Concat Max Min Sum", RemoveSingleConcat},
       {"simplify-transpose", "Transpose", SimplifyTranspose},
       {"read-size-from-input",
        "Shape Squeeze Unsqueeze Reshape Gather Slice Concat Cast Add Sub Mul "
        "Div Max Min ReduceProd "
        "Size",
        ReadSizeFromInput},
       {"add-sizes-of-inputs", "Shape Squeeze Gather Slice", AddSizesOfInputs},
       {"places-of-ones", "NonZero", PlacesOfOnes},
       {"remove-view", kViews, RemoveView},
       {"view-of-reduction", kViews, ViewOfReduction},
       {"merge-views", kViews, MergeViews},
       {"merge-realignments", kViews, MergeRealignments},
       {"canonical-reshape", "Reshape Flatten", CanonicalReshape},
       {"join-parts", "Concat", JoinParts},
       {"split-to-slice", "Split", SplitToSlice},
       {"gather-to-slice", "Gather", GatherToSlice},
       {"canonical-slice", "Slice", CanonicalSlice}});
}

}  // namespace pagefuse
