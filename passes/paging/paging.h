// SPDX-License-Identifier: Apache-2.0
// The passes of the stage page, which turn [B, S] tensors into packed tokens over a paged cache.
#pragma once

#include <memory>

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// Turns a graph with past/present tensors, or one without any cache, into one with explicit cache
// inputs and outputs. Options: block_size (16), 1 to kMaxBlockSize.
std::unique_ptr<Pass> InsertPagedCache();
// Computes logits of the tokens that the input logit_rows names, as a rule the last one of each
// sequence, only. The option logits=all keeps all rows.
std::unique_ptr<Pass> SelectLogits();
// Cuts cache groups into parts that share pages of one size. Option cache_pages: on, or off, which is
// the default: other runtimes give each group a pool of its own.
std::unique_ptr<Pass> PlanCachePages();

}  // namespace pagefuse
