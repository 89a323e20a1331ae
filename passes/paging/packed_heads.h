// SPDX-License-Identifier: Apache-2.0
// Converts heads-major values [1, H, T, D] to packed rows [T, H, D], without a transpose where the
// graph allows it.
#pragma once

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/passes/edit/graph_builder.h"

namespace pagefuse {

// A value with the elements of `value` [1, H, T, D] (a batch of packed tokens), as [T, H, D]. A
// Transpose is undone through per-row ops (RMSNormalization, RotaryEmbedding in its 3-D form);
// elsewhere one is added.
Value* PackedHeads(GraphBuilder& builder, Value* value, int64_t heads, int64_t head_size);

}  // namespace pagefuse
