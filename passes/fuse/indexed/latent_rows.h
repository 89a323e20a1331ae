// SPDX-License-Identifier: Apache-2.0
// Reads rows of a latent cache: the format in which they are stored, and which of them a token
// attends to.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/attention/attention_match.h"

namespace pagefuse {

struct LatentRows {
  Value* cache = nullptr;
  std::string format;
  int64_t block_size = 0;  // tokens a block, where the format asks for it
  IndexExpr row;           // its number, as it is gathered
  Element codes;           // what lies first in it, as keys read it
};

// One list of rows that an attention sees: of a match, or of a part of the keys that it joins.
struct RowList {
  IndexSymbolPtr n, e, d;  // keys, their elements, and those of values
  Factors key, value;
  Conditions visible;
};

// The lists that a match's keys are joined of, one if they are not joined.
absl::StatusOr<std::vector<RowList>> RowListsOf(IndexingAnalysis& reader,
                                                const AttentionMatch& match);

// FailedPrecondition if keys are no rows of a latent cache whose first elements are the values,
// NotFound if they look like nothing of the kind.
absl::StatusOr<LatentRows> ReadLatentRows(IndexingAnalysis& reader, const OpsetImports& opsets,
                                          const RowList& list);

}  // namespace pagefuse
