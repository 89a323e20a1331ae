// SPDX-License-Identifier: Apache-2.0
// Makes cosines and sines as the fused ops take them: one row for each token of the step.
#pragma once

#include "pagefuse/passes/edit/graph_builder.h"

namespace pagefuse {

// Rows [T, R/2] of cosines and sines, side by side [T, R].
Value* CosSinRows(GraphBuilder& builder, Value* cos, Value* sin);

// 0, 1, .. for each row of `rows`: which row of cosines and sines is a token's.
Value* RowNumbers(GraphBuilder& builder, Value* rows);

}  // namespace pagefuse
