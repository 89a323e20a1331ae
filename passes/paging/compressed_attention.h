// SPDX-License-Identifier: Apache-2.0
// The packed form of attention over a window and compressed rows (compressed_matches.h).
#pragma once

#include <cstdint>

#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/paging/compressed_matches.h"
#include "pagefuse/passes/paging/latent_matches.h"

namespace pagefuse {

// What a step says of a group of caches.
struct GroupInputs {
  Value* block_table = nullptr;
  Value* slot_mapping = nullptr;
  int64_t block_size = 0;
};

struct CompressedStep {
  GroupInputs window = {}, state = {}, compressed = {};
  GroupInputs index_state = {};  // of a choice among windows
  Value* positions = nullptr;    // int64 [T]
  Value* seq_lens = nullptr;
  Value* query_start_loc = nullptr;
  const TokenOwners* owners = nullptr;
};

// Caches of one layer, and the same with the step's rows.
struct CompressedCaches {
  Value* row = nullptr;               // [NB, BS, D]
  Value* state = nullptr;             // [NB, BS, 2W]
  Value* compressed = nullptr;        // [NB, BS, D]
  Value* index_state = nullptr;       // of a choice among windows, else null
  Value* compressed_index = nullptr;  // likewise
};

// In place of `attention`: MlaCacheInsert of the tokens' rows; with compressed rows
// CompressorStateInsert and CompressCacheInsert, for an indexer the same of its keys, then
// PagedMqaLogits and IndexerTopK; and SparseMlaAttention [T, H, D] over the slots of the window and
// of the windows that are seen. `caches` become those with the new rows.
Node* AttendCompressed(GraphBuilder& builder, const Node& attention, const CompressedMatch& match,
                       const CompressedStep& step, CompressedCaches& caches);

}  // namespace pagefuse
