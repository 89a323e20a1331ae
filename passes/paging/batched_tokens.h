// SPDX-License-Identifier: Apache-2.0
// Graphs over packed tokens, as ONNX Runtime's model builder writes them for com.microsoft
// PagedAttention, as decoders over a batch of one.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/passes/paging/past_ledger.h"

namespace pagefuse {

// Takes the packing out of a graph that is being paged: tokens [T] become an input [1, T], every
// com.microsoft PagedAttention a GroupQueryAttention over the new tokens alone, logits [T, V]
// become [1, T, V]. The graph's own caches, block tables and lengths go: they are those of the
// paged cache from here on, and its caches are noted in `pasts`. The input that counts the keys of
// the GroupQueryAttentions; null if there is no such node. FailedPrecondition naming the node or the
// input if it is used in another way than the builder's graphs do; the model is then half rewritten.
absl::StatusOr<const Value*> BatchPackedTokens(Model& model, PastLedger& pasts);

}  // namespace pagefuse
