// SPDX-License-Identifier: Apache-2.0
// Decoders that were merged of two graphs, with and without a past, and an input that chooses.
#pragma once

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// An input that says whether pasts are read: one bool that is called so.
bool IsCacheBranch(const Value& input);

// Lets a graph always read its pasts, which are empty at first: whoever generates says so in every
// step. Such inputs become constants; false if there are none.
bool TakeCacheBranch(Model& model);

}  // namespace pagefuse
