// SPDX-License-Identifier: Apache-2.0
// Reads index scores over a paged cache as the inputs of PagedMqaLogits.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/attention/logits_match.h"
#include "pagefuse/passes/analysis/indexing/layout.h"

namespace pagefuse {

// The axes that the rows of scores run over, in order.
absl::StatusOr<AxisSymbols> RowsOfLogits(const LogitsMatch& match);
// Factors of rows and heads, as one tensor [rows, H].
absl::StatusOr<Value*> WeightsOfLogits(GraphBuilder& builder, Layout& layout,
                                       const LogitsMatch& match);

// True if keys are read through a table of blocks.
bool IsPaged(const LogitsMatch& match);
// FailedPrecondition with what the op does not say.
absl::StatusOr<Value*> BuildPagedLogits(GraphBuilder& builder, IndexingAnalysis& reader,
                                        const LogitsMatch& match);

}  // namespace pagefuse
