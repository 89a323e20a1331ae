// com.microsoft.GroupQueryAttention, the attention of ONNX Runtime's model builder, as a match that
// can be paged.
#pragma once

#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// What the op has that ONNX's Attention has not.
struct GroupedAttentionExtras {
  Value* sinks = nullptr;   // [H]: scores that take probability and have no value; null: none
  Value* slopes = nullptr;  // [H]: of a linear bias; null: none
  const Value* counted = nullptr;  // the mask whose ones count the keys of the bias
};
// FailedPrecondition naming a node that cannot be paged as it is.
absl::Status Unfit(const Node& node, std::string_view why);
// Unfit if the graph reads a present of an attention, or of one that stands for it.
absl::Status CheckPresentsUnread(const Node& node);

// By the Attention nodes that took the place of the op.
using GroupedAttentionMatches = absl::flat_hash_map<const Node*, GroupedAttentionExtras>;

// Writes every GroupQueryAttention of the graph out as norms, rotary embedding by position ids and
// ONNX's Attention over the new tokens alone, for a graph that is being paged: past, present and
// lengths are those of the paged cache from here on, and a scaled cache of integers becomes the
// rounding that it does. Adds an input `position_ids` [B, S] if the op counted positions itself.
// A bias that is a mask of distance and padding becomes the window that it is. FailedPrecondition
// naming the node if its lengths are not those of the attention mask, if its bias is no such mask,
// or if it has what paged attention lacks.
absl::StatusOr<GroupedAttentionMatches> LowerGroupedAttention(Model& model,
                                                              const SymbolicContents& contents);

}  // namespace pagefuse
