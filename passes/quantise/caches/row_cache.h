// SPDX-License-Identifier: Apache-2.0
// A paged cache of rows in fewer bits an element, with the format's scales.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/passes/quantise/caches/cache_scales.h"
#include "pagefuse/passes/quantise/caches/cache_use.h"

namespace pagefuse {

// InvalidArgument if the format does not take the use's rows.
absl::Status CheckRows(const CacheUse& use);

// Rewrites a checked use:
//   kv_cache_out = PagedCacheInsert (k, v, kv_cache, slots)
//   y = PagedAttention (q, kv_cache_out, ..)
//     =>  the same with kv_quant_mode, caches of codes, and the format's scales: one a tensor, or
//         one a token and head beside the cache; for bf16, caches of another type alone
// Adds what is beside the caches to `names`.
void StoreRows(Graph& graph, const CacheUse& use, const KvScales& scales, CacheNames& names);

}  // namespace pagefuse
