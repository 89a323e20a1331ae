// SPDX-License-Identifier: Apache-2.0
// What an attention mask means: the sub-graph that builds it is read as a predicate over (batch,
// query, key) indices.
#pragma once

#include <limits>
#include <optional>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// A key j is visible to query row i of batch b if all that is set here holds. Indices count rows of
// the mask, from 0.
struct MaskForm {
  std::optional<Dim> upper;        // j <= i + upper            (causal; upper = past length)
  std::optional<Dim> lower;        // j >= i + lower            (window W: lower = upper - W + 1)
  Dim queries, keys;               // how many both were read over; the mask may repeat one of them
  const Value* padding = nullptr;  // padding[b, j] is non-zero  (an attention mask [B, T])
  // What the mask reads of `padding`, [padding_batch, padding_keys]: all of it, or, read by
  // indices, the first rows and keys. The mask may repeat one row or key.
  Dim padding_batch, padding_keys;
  bool padding_is_indexed = false;
  bool padding_is_counted = false;  // its ones are counted: as many of the first keys are visible
  // The highest of the numbers that are added to hide keys; that scores are no match for it is left
  // to whoever knows them (HidingNumber in functions/number_ranges.h).
  double low = -std::numeric_limits<double>::infinity();
};

// The mask input [B, T] of which attention-mask left `mask`: as booleans [B, 1, 1, T], the first of
// them by index, or repeated. Null if it is another mask.
const Value* PaddingInputOf(const Value* mask, const SymbolicContents& contents);

// Reads a mask of rank 2 to 4 whose last two axes are query and key: boolean (true = visible) or
// additive (0 = visible, -inf or a finite float from -1e4 down = hidden). It is read by element
// (indexing/indexing_analysis.h) as a conjunction of inequalities over its indices, with nothing taken for
// granted: constants and comparisons of indices are limits, reads of a [B, T] mask by (b, j) are
// padding. Anything else is a FailedPrecondition that names the value or the condition it stopped
// at: a mask is never guessed.
absl::StatusOr<MaskForm> AnalyseMask(const Value* mask, const SymbolicContents& contents);

// Whether a mask holds 0 and 1 alone (IndexingAnalysis::IsZeroOrOne).
bool IsZeroOrOne(const Value* value, const SymbolicContents& contents);

}  // namespace pagefuse
