// Which keys a row of queries sees, as a paged attention says it: sequence lengths, causality, a
// window.
#pragma once

#include "pagefuse/passes/fuse/paged_rows.h"

namespace pagefuse {

struct VisibleKeys {
  IndexForm length;  // keys of the sequence, the step's own included
  bool causal = true;
  int64_t window = 0;  // 0: none; without causality, to both sides
  // Aligned chunks of that many keys, the own one and as many before it; 0: none.
  int64_t chunk = 0;
  int64_t chunks_before = 0;
  Value* causal_flags = nullptr;  // which sequences are causal; null: all or none
  Value* first_tokens = nullptr;  // of a ragged batch: query_start_loc
};

// FailedPrecondition with the condition that is none of these.
absl::StatusOr<VisibleKeys> VisibleKeysOf(const AttentionSite& site, const PagedAxes& axes);

}  // namespace pagefuse
