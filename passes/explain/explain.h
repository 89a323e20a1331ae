// SPDX-License-Identifier: Apache-2.0
// The pass that explains what did not fuse, and changes nothing.
#pragma once

#include <memory>

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// Finds the places that are of a family of fusions by what they are made of and that no fused op
// took up, with the nearest rule and the first condition that failed (PassContext::unfused). With
// `pages` an attention without a paged cache is one of them.
std::unique_ptr<Pass> UnfusedPlaces(bool pages);

}  // namespace pagefuse
