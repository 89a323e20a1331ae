// SPDX-License-Identifier: Apache-2.0
// A call of PagedAttention, from its arguments to what kernels take.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/attention/paged_attention_problem.h"
#include "pagefuse/ops/pagefuse/packed_batch.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse {

// The form of a call: sizes, types and pointers, of the host or of a device. Reads attributes and nothing that a tensor holds; scales are 1.
absl::StatusOr<PagedAttentionProblem> MakePagedAttentionForm(const KernelArgs& args);
// The same with the scales, of the host's memory. Those that the host does not know are 1.
absl::StatusOr<PagedAttentionProblem> MakePagedAttentionProblem(const KernelArgs& args);

// Checks the values of starts (where they are given), lengths and block ids, with the op's names
// for its inputs.
absl::Status ValidatePagedBatch(const KernelArgs& args, const PagedAttentionProblem& problem,
                                const PackedBatchPorts& ports);

absl::Status PagedAttentionReference(KernelArgs& args);
absl::Status PagedAttentionHwy(KernelArgs& args);
// OK if the vector kernel computes the node.
absl::Status PagedAttentionHwySupports(const KernelQuery& query);

}  // namespace pagefuse
