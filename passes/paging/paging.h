// The passes of stage page: from [B, S] tensors to packed tokens over a paged cache.
#pragma once

#include <memory>

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// From a graph with past/present tensors, or one without any cache, to explicit cache inputs and
// outputs. Options: block_size (16), 1 to kMaxBlockSize.
std::unique_ptr<Pass> InsertPagedCache();
// Logits of each sequence's last token only. Option logits=all keeps all rows.
std::unique_ptr<Pass> SelectLogits();

}  // namespace pagefuse
