// Index scores over a paged cache, as PagedMqaLogits takes them.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/passes/words/arrange.h"
#include "pagefuse/passes/words/logits_site.h"

namespace pagefuse {

// The axes that the rows of scores run over, in order.
absl::StatusOr<AxisAtoms> RowsOfLogits(const LogitsSite& site);
// Factors of rows and heads, as one tensor [rows, H].
absl::StatusOr<Value*> WeightsOfLogits(GraphBuilder& builder, Arranger& arranger,
                                       const LogitsSite& site);

// True if keys are read through a table of blocks.
bool IsPaged(const LogitsSite& site);
// FailedPrecondition with what the op does not say.
absl::StatusOr<Value*> BuildPagedLogits(GraphBuilder& builder, ElementReader& reader,
                                        const LogitsSite& site);

}  // namespace pagefuse
