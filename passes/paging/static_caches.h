// SPDX-License-Identifier: Apache-2.0
// Caches of a fixed number of rows, into which a graph writes the new rows where an input says:
//
//   all = ScatterND (past [B, H, 96, D], cache_position [S], k)
//   y = Attention (q, all, .., mask [S, 96])
//     =>  y, all = Attention (q, k, .., first columns of the mask, past [B, H, P, D], ..)
//
// Whoever generates puts tokens one behind the other, so that the first row that is written is the
// number of those before it: the length of a past that grows, where the mask shows no row behind the
// last one that was written.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// Makes pasts that grow of all such caches. False, and nothing changed, where the graph has none, or
// has them beside others. FailedPrecondition naming an attention whose mask shows other rows.
absl::StatusOr<bool> LowerStaticCaches(Model& model, SymbolicContents& contents);

}  // namespace pagefuse
