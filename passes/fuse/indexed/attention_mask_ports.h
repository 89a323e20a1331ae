// SPDX-License-Identifier: Apache-2.0
// Reads which keys a row of queries sees and says it in the terms of a paged attention: sequence
// lengths, causality, a window.
#pragma once

#include "pagefuse/passes/fuse/indexed/paged_rows.h"

namespace pagefuse {

struct AttentionMaskPorts {
  IndexExpr length;  // keys of the sequence, the step's own included
  bool causal = true;
  int64_t window = 0;  // 0: none; without causality, to both sides
  // Aligned chunks of that many keys, the own one and as many before it; 0: none.
  int64_t chunk = 0;
  int64_t chunks_before = 0;
  Value* causal_flags = nullptr;  // which sequences are causal; null: all or none
  // [sequence, range, 2]: a row and a key in one range see each other; null: none.
  Value* ranges = nullptr;
  bool ranges_clamped = false;  // within the window alone
  // Of a packed batch: query_start_loc, and the axis of its tokens.
  Value* first_tokens = nullptr;
  IndexSymbolPtr token;
};

// FailedPrecondition with the condition that is none of these.
absl::StatusOr<AttentionMaskPorts> AttentionMaskPortsOf(const AttentionMatch& match,
                                                        const PagedAxes& axes);

// The position of a row of queries, and of the first query of its sequence.
IndexExpr PositionOf(const PagedAxes& axes, const AttentionMaskPorts& visible);
IndexExpr ContextOf(const PagedAxes& axes, const AttentionMaskPorts& visible);

}  // namespace pagefuse
