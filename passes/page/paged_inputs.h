// The inputs of a paged graph: how packed tokens take the place of [batch, sequence] inputs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/model.h"
#include "pagefuse/ops/infer.h"

namespace pagefuse {

// Which inputs of an exported decoder are what, told by use and type, not by name.
struct DecoderInputs {
  Value* tokens = nullptr;     // [B, S], indices of the embedding Gather
  Value* positions = nullptr;  // [B, S]; null if the graph has none
  Value* padding = nullptr;    // [B, T]; null if the graph has none
  std::vector<Value*> pasts;   // past keys and values
  Dim batch;
  Dim sequence;
};

// FailedPrecondition naming what is missing or left over.
absl::StatusOr<DecoderInputs> FindDecoderInputs(const Graph& graph,
                                                const std::vector<Value*>& pasts, Value* padding);

// Replaces tokens and positions by packed inputs `input_ids` [num_tokens] and `positions`
// [num_tokens], seen by the rest of the graph as a batch of one: [1, num_tokens].
void PackTokenInputs(Graph& graph, DecoderInputs& inputs);

// Drops inputs that are read for their sizes at most: those sizes become 1 (batch) and num_tokens
// (sequence). FailedPrecondition naming the reader if one reads more than sizes, or the size of the
// past.
absl::Status DropSizedInputs(Graph& graph, const DecoderInputs& inputs);

}  // namespace pagefuse
