// SPDX-License-Identifier: Apache-2.0
// Paged caches of DeepSeek-V4 in fewer bits an element: the rows of a sliding window and of
// compressed windows, that one attention reads, and compressed index keys.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/passes/quantise/caches/cache_use.h"

namespace pagefuse {

// QNormRopeKvInsert: a layer's rows of the window.
bool WritesWindowRows(const Node& insert);
// CompressCacheInsert: rows, or index keys.
bool WritesCompressedRows(const Node& insert);

// Whether what attends to the rows of a window reads compressed ones besides.
bool ReadsCompressedRows(const Node& insert);

// Of an attention: what writes the compressed rows that it reads beside the window; null if none.
Node* CompressedRowsOf(const Node& attention);
// FailedPrecondition if an attention reads compressed rows that cannot be stored otherwise.
absl::Status CheckCompressedRows(const Node& attention);
// Stores them as bfloat16.
void StoreCompressedRows(const Node& attention);

// Whether the rows are stored as they come, and the format is another.
bool ChangesWindowRows(const CacheUse& use);

// InvalidArgument naming layer, size and format if the format does not take the rows of the
// use; FailedPrecondition if something else reads them than the layer's SparseMlaAttention.
absl::Status CheckWindowRows(const CacheUse& use);

// Rewrites a checked use: its rows, and the compressed ones that the same attention reads.
//   q', row = QNormRopeKvInsert <format = none> (q, kv, kv_cache, ..)
//   c = CompressCacheInsert <format = none> (.., kv_cache_2)
//   o = SparseMlaAttention <format = bf16> (q', row, .., c, ..)
//     =>  the same with format bf16, or all with format fp8_ue8m0
void StoreWindowRows(const CacheUse& use);

// The same of compressed index keys and PagedMqaLogits: bf16, indexer_fp8 or indexer_mxfp4.
absl::Status CheckCompressedKeys(const CacheUse& use);
void StoreCompressedKeys(const CacheUse& use);

}  // namespace pagefuse
