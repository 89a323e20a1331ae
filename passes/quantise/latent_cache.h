// Paged caches of latent rows, and of the index keys by which a token chooses among them, in fewer
// bits an element.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph.h"
#include "pagefuse/kernels/formats/grouped_row.h"
#include "pagefuse/passes/quantise/cache_site.h"

namespace pagefuse {

// Whether the rows that a node writes, latent ones or index keys, are stored as they come, and the
// format is another.
bool ChangesSharedRows(const CacheSite& site);

// InvalidArgument if the format does not take the site's latent rows, FailedPrecondition if
// something else than SparseMlaAttention reads them.
absl::Status CheckLatentRows(const CacheSite& site);

// Rewrites a checked site:
//   kv_cache_out = MlaCacheInsert (c, k_pe, slots, kv_cache)
//   y = SparseMlaAttention (q, kv_cache_out, ..)
//     =>  the same of c and k_pe rounded to bfloat16, over a cache of bfloat16 or of fp8_ds_mla
// and rows of windows as window_cache.h has them.
void StoreLatentRows(Graph& graph, const CacheSite& site);

// Whether the node writes the index keys of a layer.
bool WritesIndexKeys(const Node& insert);
// The layer that attends to what is chosen by the keys that a node writes: the node that inserts
// its rows. Null if there is none.
const Node* RowsChosenBy(const Node& index_insert);

// InvalidArgument naming layer, size and format if the format has no codes for index keys `rows`.
absl::Status CheckIndexSize(const CacheSite& site, const Value* rows);
// FailedPrecondition naming the node if queries of the keys cannot be rotated as the site says.
absl::Status CheckIndexQueries(const CacheSite& site, const Value& keys);
// Gives what scores the keys, and the op that rotates its queries, the format of the site.
void StoreIndexQueries(const CacheSite& site, Node& logits);
// How keys of so many elements are stored.
GroupedRowFormat IndexFormatFor(const CacheSite& site, int64_t size);

// As CheckLatentRows, of index keys and PagedMqaLogits.
absl::Status CheckIndexKeys(const CacheSite& site);

// Rewrites a checked site:
//   kv_cache_out = MlaCacheInsert (k, , slots, kv_cache)
//   s = PagedMqaLogits <format = bf16> (q, kv_cache_out, ..)
//     =>  kv_cache_out = IndexerKQuantInsert <format = F> (k rounded to bfloat16, slots, kv_cache)
//         s = PagedMqaLogits <format = F> (q, kv_cache_out, ..)
// where IndexerQRopeQuant <format = none> gives q, that op quantises it too, if F is fp8; or, for bf16, the same over a cache of bfloat16.
void StoreIndexKeys(Graph& graph, const CacheSite& site);

}  // namespace pagefuse
