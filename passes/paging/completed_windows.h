// SPDX-License-Identifier: Apache-2.0
// Which windows of tokens a mask shows to a token: those that are closed at its position p, or of
// these the ones that an indexer chooses (DeepSeek-V4).
//
//   all       window j is seen where j < (p + 1) / m
//   chosen    scores, hidden where j >= (p + 1) / m -- TopK -> places; those that are hidden all the
//             same go behind the last window, where nothing is; zeros scattered among numbers that
//             hide keys
//
// Either way no token sees a window that is still open at its own: what follows it has no part in
// what it sees, so that windows may be compressed one by one as they close.
#pragma once

#include <optional>

#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/paging/compressed_rows.h"

namespace pagefuse {

// The choice of an indexer: tensors to compute the scores of.
struct WindowChoice {
  Value* query = nullptr;    // [B, S, H, D]
  Value* weights = nullptr;  // [B, S, H]
  int64_t heads = 0;
  int64_t most = 0;  // windows chosen for a token, or all if there are fewer
  CompressedRows keys = {};
};

// What tells a mask's element apart.
struct WindowMask {
  IndexExpr batch;
  IndexExpr token;        // s
  IndexSymbolPtr window;  // j
  int64_t ratio = 1;
};

struct CompletedWindows {
  std::optional<WindowChoice> choice;  // none: all closed windows are seen
  const Value* positions = nullptr;    // the input that tells positions; null: places are counted
};

// Reads what hides windows: `mask` at (b, s, j). FailedPrecondition saying what differs from the
// forms above.
absl::StatusOr<CompletedWindows> ReadCompletedWindows(GraphBuilder& builder,
                                                      IndexingAnalysis& reader, const Element& mask,
                                                      const WindowMask& of);

}  // namespace pagefuse
