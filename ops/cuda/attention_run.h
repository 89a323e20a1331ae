// SPDX-License-Identifier: Apache-2.0
// A call of the device's paged attention, of PagedAttention or TurboQuantAttention.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ops/kernels/attention/paged_attention_problem.h"
#include "pagefuse/ops/kernels/cuda/paged_attention.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::cuda {

// The call without scales, rotation, centroids and working memory.
PagedAttention AttentionOf(const PagedAttentionProblem& form);

// Takes working memory and launches: the kernels of decoding where the host knows that no sequence has more than a token, which it sees in
// input `query_start_loc` (-1: there is none), elsewhere those of prompts, if the call fits them; else the plain one. Unimplemented for heads that
// are too long.
absl::Status RunAttention(KernelArgs& args, PagedAttention call, int query_start_loc);

// Refuses heads that are known to be too long.
absl::Status CheckHeadLength(const KernelQuery& query, int input);

}  // namespace pagefuse::cuda
