// SPDX-License-Identifier: Apache-2.0
// Replaces the [batch, sequence] inputs of a graph by those of packed tokens.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/analysis/tokens/token_roles.h"

namespace pagefuse {

// Which inputs of an exported decoder are what, told by what the graph does with them.
struct DecoderInputs {
  Value* tokens = nullptr;       // [B, S], indices of the embedding Gather
  Value* positions = nullptr;    // [B, S], they become angles or index a table; null if computed
  Value* padding = nullptr;      // [B, T]; null if the graph has none
  std::vector<Value*> pasts;     // past keys and values
  std::vector<Value*> segments;  // [B, S], token types: index a small table of their own
  std::vector<Value*> unread;    // read for their sizes at most
  Dim batch;
  Dim sequence;
  // Packed inputs of segments. Token types that nobody gives are 0, as in every framework.
  std::vector<std::string> zero_inputs;
};

// Everything that reads an input has to fit what it is taken for; names decide between inputs that
// are read alike, and speak against what they do not fit. `padding` is the one that attention reads,
// or null. FailedPrecondition naming an input that is none of these, or the sizes that a packed step
// cannot have.
absl::StatusOr<DecoderInputs> FindDecoderInputs(const Graph& graph,
                                                const std::vector<Value*>& pasts, Value* padding);

// True if an input that is read as a mask may tell which tokens there are: it is not called anything
// else, by which it would be fed to the graph as exported.
bool MayBeMask(const Value& input);

// Renames every value that is called as an input or output of all paged graphs is (CacheLayout), so
// that the names are free. Their readers know those by name.
void FreeStepNames(Graph& graph);

// Packed inputs [num_tokens] of int64 take the place of tokens, positions and segments; the rest of
// the graph sees them as a batch of one, [1, num_tokens], of the old type. A graph that computes
// its positions gets the input too if `needs_positions`. Returns it, or null.
Value* PackTokenInputs(Graph& graph, DecoderInputs& inputs, bool needs_positions);

// Values that the graph computed from the places of tokens, and what it cut out of tables by them,
// are computed from `positions` instead.
void ReplacePlaces(Graph& graph, const TokenTrace& trace, Value* positions);

// Drops inputs that are read for their sizes at most: those sizes become 1 (batch) and num_tokens
// (sequence). FailedPrecondition naming the reader if one reads more than sizes, or the size of the
// past.
absl::Status DropSizedInputs(Graph& graph, const DecoderInputs& inputs);

}  // namespace pagefuse
