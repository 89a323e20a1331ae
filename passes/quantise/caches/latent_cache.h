// SPDX-License-Identifier: Apache-2.0
// Paged caches of latent rows, and of the index keys by which a token chooses among them, in fewer
// bits an element.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/passes/quantise/caches/cache_use.h"

namespace pagefuse {

// Whether the rows that a node writes, latent ones or index keys, are stored as they come, and the
// format is another.
bool ChangesSharedRows(const CacheUse& use);

// InvalidArgument if the format does not take the use's latent rows, FailedPrecondition if
// something else than SparseMlaAttention reads them.
absl::Status CheckLatentRows(const CacheUse& use);

// Rewrites a checked use:
//   kv_cache_out = MlaCacheInsert (c, k_pe, slots, kv_cache)
//   y = SparseMlaAttention (q, kv_cache_out, ..)
//     =>  the same of c and k_pe rounded to bfloat16, over a cache of bfloat16 or of fp8_ds_mla
// and rows of windows as window_cache.h has them.
void StoreLatentRows(Graph& graph, const CacheUse& use);

// Whether the node writes the index keys of a layer.
bool WritesIndexKeys(const Node& insert);
// The layer that attends to what is chosen by the keys that a node writes: the node that inserts
// its rows. Null if there is none.
const Node* RowsChosenBy(const Node& index_insert);

// InvalidArgument naming layer, size and format if the format has no codes for index keys `rows`.
absl::Status CheckIndexSize(const CacheUse& use, const Value* rows);
// FailedPrecondition naming the node if queries of the keys cannot be rotated as the use says.
absl::Status CheckIndexQueries(const CacheUse& use, const Value& keys);
// Gives what scores the keys, and the op that rotates its queries, the format of the use.
void StoreIndexQueries(const CacheUse& use, Node& logits);
// How keys of so many elements are stored.
GroupedRowFormat IndexFormatFor(const CacheUse& use, int64_t size);

// As CheckLatentRows, of index keys and PagedMqaLogits.
absl::Status CheckIndexKeys(const CacheUse& use);

// Rewrites a checked use:
//   kv_cache_out = MlaCacheInsert (k, , slots, kv_cache)
//   s = PagedMqaLogits <format = bf16> (q, kv_cache_out, ..)
//     =>  kv_cache_out = IndexerKQuantInsert <format = F> (k rounded to bfloat16, slots, kv_cache)
//         s = PagedMqaLogits <format = F> (q, kv_cache_out, ..)
// where IndexerQRopeQuant <format = none> gives q, that op quantises it too, if F is fp8; or, for bf16, the same over a cache of bfloat16.
void StoreIndexKeys(Graph& graph, const CacheUse& use);

}  // namespace pagefuse
