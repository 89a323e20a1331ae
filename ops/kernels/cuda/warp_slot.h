// SPDX-License-Identifier: Apache-2.0
// The slots of an insert whose warps take a token each, and the check of those that a device computed.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/cache_insert.h"
#include "pagefuse/ops/kernels/cuda/index_errors.h"
#ifdef __CUDACC__
#include "pagefuse/ops/kernels/cuda/warp_row.h"
#endif

namespace pagefuse::cuda {

struct CheckedSlots {
  SlotMapping mapping;
  int64_t num_slots = 0;  // of the cache
  IndexErrors errors;
  int input = 0;  // of the node: the mapping

#ifdef __CUDACC__
  // Where the token's row goes, or -1: nowhere. All lanes of a warp call it.
  __device__ int64_t OfToken(int64_t token) const { return OfToken(token, mapping[token]); }
  // The same of a slot that was fetched before.
  __device__ int64_t OfToken(int64_t token, int64_t slot) const {
    if (slot >= num_slots && LaneId() == 0) errors.Tell(input, token, slot);
    if (slot < 0 || slot >= num_slots) return -1;
    if (mapping.unique) return slot;
    bool later = false;
    for (int64_t t = token + 1 + LaneId(); t < mapping.tokens; t += kWarp) {
      later = later || mapping[t] == slot;
    }
    return __any_sync(kAllLanes, later) ? -1 : slot;
  }
#endif
};

}  // namespace pagefuse::cuda
