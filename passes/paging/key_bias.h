// SPDX-License-Identifier: Apache-2.0
// Attention whose scores have a bias of each key, which the graph computes from the row of the key, as
// the exports of Doge have it (dynamic masks).
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/analysis/functions/number_ranges.h"
#include "pagefuse/passes/paging/attention_extras.h"

namespace pagefuse {

// For a graph that is being paged: takes the bias out of the mask of an Attention and makes it one more
// column of the keys, so that the cache holds it with them,
//
//   Attention (q, k, v, mask + bias[b, h, key])  =>  Attention (q | 1 / scale, k | bias, v, mask)
//
// and recognises what is left of the mask. Where a mask has numbers that the query chooses, or no
// number for each key and head of keys, it stays as it is. True if a mask changed.
absl::StatusOr<bool> LowerKeyBias(Model& model, const SymbolicContents& contents,
                                  ExtrasOfAttention& extras);

// Takes the bias of such an attention, where it is an Exp, to be finite if its exponent is estimated to
// lie 64 times below the one where floats end: as numbers of other ops are (number_ranges.h).
void TakeBiasAsEstimated(const Node& attention, NumberRanges& ranges);

}  // namespace pagefuse
