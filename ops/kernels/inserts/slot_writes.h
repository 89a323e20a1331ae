// SPDX-License-Identifier: Apache-2.0
// The shell of kernels that insert rows: which tokens of a step are written, to which slots of a
// paged cache, and the loop over them.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/base/parallel.h"

namespace pagefuse::pagefuse_ops {

// One token to write: row `token` of the source goes to `slot`.
struct SlotWrite {
  int64_t token;
  int64_t slot;
};
// Of writes with the same slot, which are in the order of their tokens, the last stays alone: so
// they can be made in any order.
void KeepLastOfSlot(std::vector<SlotWrite>& writes);
// The slot of each token, -1 for those that are not written.
std::vector<int64_t> SlotsOfTokens(const std::vector<SlotWrite>& writes, int64_t tokens);

// compute(call, begin, end) for parts of the `rows` rows of a call, in parallel; `row_bytes` is
// what a row reads and writes. `compute` may be what HWY_DYNAMIC_DISPATCH gives.
template <class Call>
void ForEachRow(const Call& call, int64_t rows, int64_t row_bytes,
                void (*compute)(const Call& call, int64_t begin, int64_t end)) {
  ParallelFor(rows, row_bytes, [&](int64_t begin, int64_t end) { compute(call, begin, end); });
}
// The same for the rows that `call.writes` names.
template <class Call>
void ForEachInsertedRow(const Call& call, int64_t row_bytes,
                        void (*compute)(const Call& call, int64_t begin, int64_t end)) {
  ForEachRow(call, static_cast<int64_t>(call.writes.size()), row_bytes, compute);
}

}  // namespace pagefuse::pagefuse_ops
