// SPDX-License-Identifier: Apache-2.0
// The fusions by test vectors, one for each op: each looks at a value that may be the output of the
// op, and puts the op in if it is. It is private to fuse_equivalent.cc and the files that define the
// fusions.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/passes/fuse/equivalent/fusion_search.h"

namespace pagefuse {

using Fusion = absl::StatusOr<bool> (*)(FusionSearch& search, Value* output);

// Quantised queries and attention outputs (indexer_query_fusion.cc, inv_rope_fusion.cc).
absl::StatusOr<bool> FuseIndexerQRopeQuant(FusionSearch& search, Value* output);
absl::StatusOr<bool> FuseInvRopeQuant(FusionSearch& search, Value* output);
// Rows written by slot (cache_row_fusions.cc).
absl::StatusOr<bool> FuseKCacheQuantInsert(FusionSearch& search, Value* output);
absl::StatusOr<bool> FuseIndexerKQuantInsert(FusionSearch& search, Value* output);
absl::StatusOr<bool> FuseMlaCacheInsert(FusionSearch& search, Value* output);
absl::StatusOr<bool> FuseCompressorStateInsert(FusionSearch& search, Value* output);
// Queries and rows of keys (qnorm_fusion.cc).
absl::StatusOr<bool> FuseQNormRopeKvInsert(FusionSearch& search, Value* output);
// Keys and values written by slot (paged_insert_fusion.cc).
absl::StatusOr<bool> FusePagedCacheInsert(FusionSearch& search, Value* output);
// Windows compressed into rows (compress_fusion.cc).
absl::StatusOr<bool> FuseCompressCacheInsert(FusionSearch& search, Value* output);
// Rows that tokens attend to, listed (slot_list_fusions.cc).
absl::StatusOr<bool> FuseReqIndexToSlot(FusionSearch& search, Value* output);
absl::StatusOr<bool> FuseCombineTopKWindow(FusionSearch& search, Value* output);
// Rows of whole requests, read out of paged caches (row_gather_fusions.cc).
absl::StatusOr<bool> FuseKCacheDequantGather(FusionSearch& search, Value* output);
absl::StatusOr<bool> FuseMlaGatherUpconvert(FusionSearch& search, Value* output);
absl::StatusOr<bool> FuseIndexerKGather(FusionSearch& search, Value* output);
// TurboQuant slots (turboquant_row_fusions.cc).
absl::StatusOr<bool> FuseTurboQuantInsert(FusionSearch& search, Value* output);
absl::StatusOr<bool> FuseTurboQuantDequant(FusionSearch& search, Value* output);
// Two results of attention joined (merge_states_fusion.cc).
absl::StatusOr<bool> FuseMergeAttnStates(FusionSearch& search, Value* output);

}  // namespace pagefuse
