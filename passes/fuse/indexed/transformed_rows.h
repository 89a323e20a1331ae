// SPDX-License-Identifier: Apache-2.0
// Attention over rows of 4 bits behind a Hadamard transform: keys and values are multiplied as they
// are stored, queries are transformed before the attention, and its result is transformed back.
#pragma once

#include "pagefuse/passes/fuse/indexed/paged_rows.h"

namespace pagefuse {

struct TransformedRows {
  CacheFormat format;
  ReadRows key, value;
  Element signs;  // [element of a row]
};

// NotFound if keys are no such rows. Else makes the match that of the op: its query before the
// transform, its result behind the way back, and the scale of rows that are not transformed.
// FailedPrecondition if one of these is not understood.
absl::StatusOr<TransformedRows> ReadTransformedRows(IndexingAnalysis& reader,
                                                    const OpsetImports& opsets,
                                                    AttentionMatch& match);

}  // namespace pagefuse
