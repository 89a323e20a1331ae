// SPDX-License-Identifier: Apache-2.0
// Classifies a place in a graph by the nodes that it consists of: attention, a rotary embedding, a
// write into a cache. A place that became a fused op consists of that op and belongs to no family
// any more.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/passes/pass.h"

namespace pagefuse {

struct FusionFamily {
  std::string_view name;  // "gated MLP"
  bool (*holds)(const Node& node);
  // Passes of rules that could take it up, to be asked again.
  std::vector<std::unique_ptr<Pass> (*)()> ask;
  // Passes that note themselves why they left a place alone.
  std::vector<std::string_view> noted = {};
  // The form that a pass of those for caches has only read where it noted as little as a pattern's root
  // and one node more; empty: none.
  std::string_view plain = {};
};

std::span<const FusionFamily> FusionFamilies();

// Attention as one op, recognised or exported as such: whether it has pages is not for a rule to
// say.
bool IsAttentionOp(const Node& node);

}  // namespace pagefuse
