// SPDX-License-Identifier: Apache-2.0
// A padding mask of a length of its own, as exports declare it that cut the mask to their keys.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// For a graph that is being paged: the padding mask of an Attention is as long as the past and the new
// tokens, whatever its dim is called. Names it so where that dim is of the mask alone, and recognises
// what masks are then. True if a dim has another name.
absl::StatusOr<bool> NameMaskLengths(Model& model, const SymbolicContents& contents);

}  // namespace pagefuse
