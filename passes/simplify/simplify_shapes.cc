// simplify-shapes: nodes that only move dims about are joined, and those that change nothing go.
#include "pagefuse/passes/simplify/simplify.h"
#include "pagefuse/passes/simplify/view_rules.h"

namespace pagefuse {

std::unique_ptr<Pass> SimplifyShapes() {
  constexpr std::string_view kViews = "Reshape Squeeze Unsqueeze Flatten";
  return MakePeepholePass(
      "simplify-shapes",
      "Removes Identity, Dropout, Expand, Slice, Transpose and Reshape that "
      "change nothing, joins chains of them, writes computed Reshape targets as "
      "constants and Gather of places that count up and Split of which one part is read as Slice, lets reductions "
      "keep or drop their axes themselves, reads sizes from graph inputs, and writes places of ones "
      "as ranges.",
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
