// SPDX-License-Identifier: Apache-2.0
// Attention with sinks over the rows of a window, which are keys and values alike, and over rows that
// stand for windows of earlier tokens (DeepSeek-V4, section 2.3), as a match that can be paged.
//
//   keys = values = Concat (rows of tokens [B, 1, S, D], compressed rows [B, 1, S/m, D]), one head
//   mask = Concat (causal, within the window; closed windows of m tokens, or those chosen)
//
// Compressed rows depend on their own tokens alone, and no token sees one that is not closed at its
// position (completed_windows.h): so they are computed one by one, as tokens come, from the rows that a
// state keeps.
#pragma once

#include <optional>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/passes/paging/completed_windows.h"
#include "pagefuse/passes/paging/compressed_rows.h"

namespace pagefuse {

class ExtrasOfAttention;  // attention_extras.h

struct CompressedMatch {
  Value* sinks = nullptr;            // [H]
  const Value* padding = nullptr;    // input [B, S] that hid rows; null: none
  const Value* positions = nullptr;  // input [B, S] by which windows are closed; null: by place
  int64_t heads = 0, size = 0;
  std::optional<CompressedRows> rows;  // none: the window alone
  std::optional<WindowChoice> choice;  // none: all closed windows
};
// Rewrites every such attention of a graph that is being paged to one over the tokens' rows alone,
// which gives way to a paged one, and drops outputs that give back rows, parts of rows and of what
// compresses them (what another graph would go on from). The matches are noted in `extras`.
// FailedPrecondition naming the node and what differs from the form above.
absl::Status LowerCompressedAttention(Model& model, SymbolicContents& contents,
                                      ExtrasOfAttention& extras);

}  // namespace pagefuse
