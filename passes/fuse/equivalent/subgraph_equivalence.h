// SPDX-License-Identifier: Apache-2.0
// Runs a subgraph and its candidate replacements on the same test vectors and compares the results.
// It is private to fusion_search.cc.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/passes/fuse/equivalent/fusion_search.h"

namespace pagefuse {

// Where symbols are all of one size, and where each has another.
struct ComparedScopes {
  RegionScope alike;
  std::vector<RegionScope> apart;
};

// The first of the draft's texts that gives what the region gives, at every magnitude and at all
// sizes, and that takes every slot that the region takes. FailedPrecondition with the first
// difference of the text that came furthest.
absl::StatusOr<FoundText> FindSameText(const ComputedRegion& region, const ComparedScopes& scopes,
                                       const std::vector<FusionPort>& specs,
                                       const std::vector<OutputSpec>& outputs, const Draft& draft);

}  // namespace pagefuse
