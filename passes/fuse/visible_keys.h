// Which keys a row of queries sees, as a paged attention says it: sequence lengths, causality, a
// window.
#pragma once

#include "pagefuse/passes/fuse/paged_rows.h"

namespace pagefuse {

struct VisibleKeys {
  IndexForm length;  // keys of the sequence, the step's own included
  bool causal = true;
  int64_t window = 0;             // 0: none
  Value* first_tokens = nullptr;  // of a ragged batch: query_start_loc
};

// FailedPrecondition with the condition that is none of these.
absl::StatusOr<VisibleKeys> VisibleKeysOf(const AttentionSite& site, const PagedAxes& axes);

}  // namespace pagefuse
