// SPDX-License-Identifier: Apache-2.0
// The attention of a decoder as insert-paged-cache reads it, before it changes what attends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/analysis/tokens/token_roles.h"
#include "pagefuse/passes/paging/cache_pasts.h"
#include "pagefuse/passes/paging/compressed_matches.h"
#include "pagefuse/passes/paging/latent_matches.h"
#include "pagefuse/passes/paging/paged_inputs.h"

namespace pagefuse {

// An Attention node that can be paged.
struct PagedAttentionSite {
  Node* node = nullptr;
  DataType dtype = DataType::kUndefined;  // of keys and values
  int64_t window = 0;
  int64_t query_heads = 0, kv_heads = 0;
  int64_t head_size = 0, value_size = 0;  // of queries and keys, and of values
  const Value* padding = nullptr;
  const Value* lengths = nullptr;  // a mask whose ones count the keys, which may be no padding
  Dim past = 0;                    // tokens before the new ones; unknown if nothing says how many
  std::vector<CachePast> pasts = {};  // of keys and values, unless others lower them
  Value* sinks = nullptr;
  Value* slopes = nullptr;                                   // of a linear bias
  int64_t most_keys = 0;                                     // as AttentionExtras has it
  bool key_bias = false;                                     // likewise
  std::optional<LatentMatch> latent = std::nullopt;          // none: keys and values of heads
  std::optional<CompressedMatch> compressed = std::nullopt;  // likewise

  int64_t row_size() const { return std::max(head_size, value_size); }
};

// Every attention of the graph, which is brought into the form of Attention; none in a graph that is
// paged, or that does not attend. Infers the shapes and contents of the graph as it is then.
// FailedPrecondition naming a node that cannot be paged: every input of an attention is that of
// queries, keys or values, a mask that is understood, a past of its own (past_ledger.h), or the same
// in every run.
absl::StatusOr<std::vector<PagedAttentionSite>> FindPagedAttention(Model& model,
                                                                   SymbolicContents& contents);

// The inputs of a graph with these matches, and how its values depend on its tokens. Errors as
// FindDecoderInputs and TraceTokens.
absl::StatusOr<DecoderInputs> DecoderInputsOf(const Graph& graph,
                                              const std::vector<PagedAttentionSite>& matches);
absl::StatusOr<TokenTrace> TraceTokensOf(const Graph& graph,
                                         const std::vector<PagedAttentionSite>& matches,
                                         const DecoderInputs& inputs,
                                         const SymbolicContents& contents);

}  // namespace pagefuse
