// SPDX-License-Identifier: Apache-2.0
// Finds the logits of a paged graph and brings them to one form: float32 [1, T, V], called
// "logits".
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "pagefuse/passes/paging/paged_inputs.h"

namespace pagefuse {

struct DecoderLogits {
  std::string name;        // of the output
  bool row_matrix = true;  // [B, S, V], or rows of last tokens only; false: tokens in another place
};

// The output "logits", or the only one with a column for each row of the embedding table.
// FailedPrecondition if there is none, or if its rows end in no known number of columns.
absl::StatusOr<DecoderLogits> FindLogits(const Graph& graph, const DecoderInputs& inputs,
                                         const TokenTrace& trace);

// Where the graph picks the rows of last tokens, all rows [1, T, N] go on: a packed step has as
// many last tokens as sequences, and select-logits picks those that are wanted. What works along the last axis of
// these rows works along the last one of all rows.
void PassOnAllRows(Graph& graph, const TokenTrace& trace);

// Gives the logits of the packed graph their form and name.
void FinishLogits(Graph& graph, const DecoderLogits& logits);

}  // namespace pagefuse
