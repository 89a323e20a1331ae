// The passes of stages page and quantise: from [B, S] tensors to packed tokens over a paged cache.
#pragma once

#include <cstdint>
#include <memory>

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// The most tokens that a block of a cache may hold.
inline constexpr int64_t kMaxBlockSize = int64_t{1} << 20;

// From a graph with past/present tensors, or one without any cache, to explicit cache inputs and
// outputs. Options: block_size (16), 1 to kMaxBlockSize.
std::unique_ptr<Pass> InsertPagedCache();
// Query, rotation and insert of rows that a window keeps, in one op.
std::unique_ptr<Pass> FuseWindowRows();
// Rotation of an indexer's queries and the factors of its weights, in one op.
std::unique_ptr<Pass> FuseIndexQueries();
// Logits of each sequence's last token only. Option logits=all keeps all rows.
std::unique_ptr<Pass> SelectLogits();

}  // namespace pagefuse
