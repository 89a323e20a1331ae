// SPDX-License-Identifier: Apache-2.0
// Builds a SparseMlaAttention, also for attention in which a token sees the rows of its whole
// sequence through a block table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pagefuse/passes/fuse/indexed/latent_rows.h"
#include "pagefuse/passes/fuse/indexed/paged_attention_ports.h"

namespace pagefuse {

// A SparseMlaAttention to be: all inputs but the sink, and the axes of its queries.
struct LatentCall {
  std::vector<Value*> inputs;  // as many as the op has ports
  AxisSymbols tokens, heads;
  std::string format;
  int64_t block_size = 0, extra_block_size = 0;  // 0: the cache's shape says it
  bool causal = true;
};

// The result, and the log-sum-exps if the graph has them. FailedPrecondition for what the op lacks.
absl::StatusOr<std::vector<Value*>> BuildLatentCall(GraphBuilder& builder, Layout& layout,
                                                    const AttentionMatch& match,
                                                    const LatentCall& call,
                                                    const std::optional<LogSums>& sums);

// Rows that a token sees through a block table: those of its sequence, up to its own if causal.
struct DenseLatentRows {
  LatentRows rows;
  PagedAxes axes;
  AttentionMaskPorts visible;
};
// NotFound where keys are read otherwise, or are numbers that PagedAttention takes as they are.
absl::StatusOr<DenseLatentRows> ReadDenseLatentRows(IndexingAnalysis& reader,
                                                    const OpsetImports& opsets,
                                                    const AttentionMatch& match);
absl::StatusOr<std::vector<Value*>> BuildDenseLatent(GraphBuilder& builder,
                                                     IndexingAnalysis& reader,
                                                     const AttentionMatch& match,
                                                     const DenseLatentRows& dense,
                                                     const std::optional<LogSums>& sums);

}  // namespace pagefuse
