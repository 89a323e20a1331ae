// Which tokens of a step are written, and to which slots of a paged cache.
#pragma once

#include <cstdint>
#include <vector>

namespace pagefuse::pagefuse_ops {

// One token to write: row `token` of the source goes to `slot`.
struct SlotWrite {
  int64_t token;
  int64_t slot;
};
// Of writes with the same slot, which are in the order of their tokens, the last stays alone: so
// they can be made in any order.
void KeepLastOfSlot(std::vector<SlotWrite>& writes);

}  // namespace pagefuse::pagefuse_ops
