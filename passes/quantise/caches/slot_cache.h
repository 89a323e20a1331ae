// SPDX-License-Identifier: Apache-2.0
// A paged cache of TurboQuant slots, which hold keys and values of a token together.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/passes/quantise/caches/cache_use.h"

namespace pagefuse {

// InvalidArgument if the format does not take the use's heads, or if attention does over them what
// TurboQuantAttention lacks.
absl::Status CheckSlots(const CacheUse& use);

// Rewrites a checked use:
//   key_cache_out, value_cache_out = PagedCacheInsert (k, v, key_cache, value_cache, slots)
//   y = PagedAttention (q, key_cache_out, value_cache_out, ..)
//     =>  kv_cache_out = TurboQuantInsert (k, v, kv_cache, slots)
//         y = TurboQuantAttention (q, kv_cache_out, ..)
// The two caches become one, and so do the outputs of the graph that they are updated to. Keys are
// rotated by the default, the Hadamard matrix.
void StoreSlots(Graph& graph, const CacheUse& use, CacheNames& names);

}  // namespace pagefuse
