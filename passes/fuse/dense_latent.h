// Attention over rows of a latent cache as one SparseMlaAttention: the node, and the case in which
// a token sees the rows of its sequence through a block table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pagefuse/passes/fuse/latent_rows.h"
#include "pagefuse/passes/fuse/paged_attention_ports.h"

namespace pagefuse {

// A SparseMlaAttention to be: all inputs but the sink, and the axes of its queries.
struct LatentCall {
  std::vector<Value*> inputs;  // as many as the op has ports
  AxisAtoms tokens, heads;
  std::string format;
  int64_t block_size = 0, extra_block_size = 0;  // 0: the cache's shape says it
  bool causal = true;
};

// The result, and the log-sum-exps if the graph has them. FailedPrecondition for what the op lacks.
absl::StatusOr<std::vector<Value*>> BuildLatentCall(GraphBuilder& builder, Arranger& arranger,
                                                    const AttentionSite& site,
                                                    const LatentCall& call,
                                                    const std::optional<LogSums>& sums);

// Rows that a token sees through a block table: those of its sequence, up to its own if causal.
struct DenseLatentRows {
  LatentRows rows;
  PagedAxes axes;
  VisibleKeys visible;
};
// NotFound where keys are read otherwise, or are numbers that PagedAttention takes as they are.
absl::StatusOr<DenseLatentRows> ReadDenseLatentRows(ElementReader& reader,
                                                    const OpsetImports& opsets,
                                                    const AttentionSite& site);
absl::StatusOr<std::vector<Value*>> BuildDenseLatent(GraphBuilder& builder, ElementReader& reader,
                                                     const AttentionSite& site,
                                                     const DenseLatentRows& dense,
                                                     const std::optional<LogSums>& sums);

}  // namespace pagefuse
