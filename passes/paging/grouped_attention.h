// SPDX-License-Identifier: Apache-2.0
// com.microsoft.GroupQueryAttention, the attention of ONNX Runtime's model builder, as a match that
// can be paged.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/paging/attention_extras.h"
#include "pagefuse/passes/paging/past_ledger.h"

namespace pagefuse {

// Metadata of an input that is in no file: the description of the op whose lowering added it.
inline constexpr std::string_view kCountedBy = "pkg.pagefuse.counted_by";

// FailedPrecondition naming a node that cannot be paged as it is.
absl::Status Unfit(const Node& node, std::string_view why);
// Unfit if the graph reads a present of an attention, or of one that stands for it.
absl::Status CheckPresentsUnread(const Node& node);

// Writes every GroupQueryAttention of the graph out as norms, rotary embedding by position ids and
// ONNX's Attention over the new tokens alone, for a graph that is being paged: past, present and
// lengths are those of the paged cache from here on, and a scaled cache of integers becomes the
// rounding that it does. Adds an input `position_ids` [B, S] if the op counted positions itself
// (kCountedBy).
// A bias that is a mask of distance and padding becomes the window that it is. Pasts are noted in
// `pasts`, where the caches of packed tokens, of which `packed_lengths` counts the keys, are
// already; what ONNX's Attention has not goes to `extras`. True if there was one.
// FailedPrecondition naming the node if its lengths are neither those of the attention mask nor
// of all tokens, if its bias is no such mask, if its past is no cache of its own, or if it has what
// paged attention lacks.
struct GroupedAttentionNotes {
  PastLedger& pasts;
  ExtrasOfAttention& extras;
  const Value* packed_lengths = nullptr;
};
absl::StatusOr<bool> LowerGroupedAttention(Model& model, const SymbolicContents& contents,
                                           const GroupedAttentionNotes& notes);

}  // namespace pagefuse
