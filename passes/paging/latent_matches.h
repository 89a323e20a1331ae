// SPDX-License-Identifier: Apache-2.0
// Attention over expanded latent rows (latent_attention.h) as a match whose cache holds the latent
// rows themselves, and of these all or what an indexer chooses (key_selection.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/paging/key_selection.h"
#include "pagefuse/passes/paging/past_ledger.h"

namespace pagefuse {

struct LatentMatch {
  Value* latent = nullptr;  // [B, S, L] or [B, 1, S, L], of the new tokens
  Value* k_pe = nullptr;    // [B, 1, S, R], of the new tokens
  int64_t heads = 0, latent_size = 0, rope_size = 0;
  std::vector<Value*> pasts = {};  // graph inputs that held the rows of earlier tokens
  std::optional<KeySelection> selection =
      std::nullopt;  // none: a token sees all rows up to its own

  int64_t row_size() const { return latent_size + rope_size; }
};
// By the Attention nodes over latent rows that took the place of those over expanded ones.
using LatentMatches = absl::flat_hash_map<const Node*, LatentMatch>;

// Rewrites every such Attention of a graph that is being paged: absorbs the expansion, keeps of the
// joined rows (past and new ones) the new ones, and drops what gave back all of them. Where the
// past is one of expanded keys and values, inputs for latent rows take its place: both hold what
// earlier steps gave back, and what those were expanded from. FailedPrecondition naming the node if
// the past cannot be told from the new rows. Pasts are noted in `pasts`.
absl::StatusOr<LatentMatches> LowerLatentAttention(Model& model, const SymbolicContents& contents,
                                                   PastLedger& pasts);

// What a packed step tells of each token, int32 [T]; computed once.
struct TokenOwners {
  Value* sequence = nullptr;  // number of its sequence
  Value* visible = nullptr;   // rows up to its own
  Value* none = nullptr;      // 0
};
TokenOwners FindTokenOwners(GraphBuilder& builder, Value* slot_mapping, Value* seq_lens,
                            Value* query_start_loc);

// The inputs of the insert and the attention over the paged rows.
struct LatentCacheInputs {
  Value* cache = nullptr;        // [NB, BS, L + R]
  Value* index_cache = nullptr;  // [NB, BS, D] of index keys; null without a selection
  int64_t block_size = 0;        // BS
  Value* slot_mapping = nullptr;
  Value* block_table = nullptr;
  Value* seq_lens = nullptr;
  Value* query_start_loc = nullptr;
  const TokenOwners* owners = nullptr;  // of a selection
};
struct AttendedRows {
  Value* cache = nullptr;        // with the new rows
  Value* index_cache = nullptr;  // likewise
  Node* attention = nullptr;
};
// The packed form, in place of `attention`: MlaCacheInsert, then SparseMlaAttention [T, H, L]; with
// a selection, over the rows that IndexerTopK takes by the scores of PagedMqaLogits.
AttendedRows AttendLatentRows(GraphBuilder& builder, const Node& attention,
                              const LatentMatch& match, const LatentCacheInputs& inputs,
                              float scale);

}  // namespace pagefuse
