// Attention over expanded latent rows (latent_attention.h) as a site whose cache holds the latent
// rows themselves.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/model.h"
#include "pagefuse/passes/graph_builder.h"

namespace pagefuse {

struct LatentSite {
  Value* latent = nullptr;  // [B, S, L] or [B, 1, S, L], of the new tokens
  Value* k_pe = nullptr;    // [B, 1, S, R], of the new tokens
  int64_t heads = 0, latent_size = 0, rope_size = 0;
  std::vector<Value*> pasts = {};  // graph inputs that held the rows of earlier tokens

  int64_t row_size() const { return latent_size + rope_size; }
};
// By the Attention nodes over latent rows that took the place of those over expanded ones.
using LatentSites = absl::flat_hash_map<const Node*, LatentSite>;

// Rewrites every such Attention of a graph that is being paged: absorbs the expansion, keeps of the
// joined rows (past and new ones) the new ones, and drops what gave back all of them. Where the
// past is one of expanded keys and values, inputs for latent rows take its place: both hold what
// earlier steps gave back, and what those were expanded from. FailedPrecondition naming the node if
// the past cannot be told from the new rows.
absl::StatusOr<LatentSites> LowerLatentAttention(Model& model);

// The inputs of the insert and the attention over the paged rows.
struct LatentCacheInputs {
  Value* cache = nullptr;  // [NB, BS, L + R]
  Value* slot_mapping = nullptr;
  Value* block_table = nullptr;
  Value* seq_lens = nullptr;
  Value* query_start_loc = nullptr;
};
struct LatentRows {
  Value* cache = nullptr;  // with the new rows
  Node* attention = nullptr;
};
// The packed form, in place of `attention`: MlaCacheInsert, then SparseMlaAttention [T, H, L].
LatentRows AttendLatentRows(GraphBuilder& builder, const Node& attention, const LatentSite& site,
                            const LatentCacheInputs& inputs, float scale);

}  // namespace pagefuse
