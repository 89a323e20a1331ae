// SPDX-License-Identifier: Apache-2.0
// Finds the inputs and outputs of a decoder that runs as it was exported.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

struct PlainInputs {
  // What one step leaves for the next: the output has the past of the next step.
  struct Past {
    const Value* input = nullptr;
    const Value* output = nullptr;
  };

  const Value* tokens = nullptr;       // [B, S]
  const Value* positions = nullptr;    // [B, S], null if the graph has none
  const Value* mask = nullptr;         // [B, T] of ones, null if the graph has none
  std::vector<const Value*> places;    // [S], positions of the tokens of every sequence
  std::vector<const Value*> segments;  // [B, S] of zeros
  std::vector<const Value*> sized;     // [B, S] or [B, T], read for their sizes at most
  std::vector<const Value*> branches;  // bool: true where the graph is to use its past
  std::vector<Past> pasts;             // empty: every step starts from the first token
  const Value* logits = nullptr;       // [B, S, V], [B, 1, V] or [B, V]
};

// Told by what the graph does with them, positions else by their name; a past and its present by
// their names, as exporters pair them: past_key_values.0.key and present.0.key, or by how the graph
// makes the one of the other. FailedPrecondition naming an input that is none of
// these, or a past that does not start empty.
absl::StatusOr<PlainInputs> FindPlainInputs(const Graph& graph);
// The same of a model whose ops hide what they do with their inputs, as those of ONNX Runtime's tools
// may: told by what the passes make of it.
absl::StatusOr<PlainInputs> FindPlainInputsBehindPasses(const Model& model);

}  // namespace pagefuse
