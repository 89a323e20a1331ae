// SPDX-License-Identifier: Apache-2.0
// Rules for Gathers and scatters, which may index features but not tokens.
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/tokens/token_rules.h"

namespace pagefuse {
namespace {

// Axes of a value with `removed` axes at `axis` replaced by `added` ones.
TokenAxes Shifted(TokenAxes axes, int axis, int removed, int added) {
  for (int* own : {&axes.batch, &axes.token}) {
    if (*own >= axis) *own += added - removed;
  }
  return axes;
}

// The indices' axes stand in place of the data's axis.
absl::StatusOr<TokenAxes> GatherAlong(const RowsNode& node, int axis) {
  if (!node.fixed(0)) {
    PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
    PF_RETURN_IF_ERROR(node.CheckApart(0, axis));
    return Shifted(node.axes(0), axis, 1, node.rank(1));
  }
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(2));
  return Shifted(node.axes(1), 0, 0, axis);
}

absl::StatusOr<TokenAxes> GatherRule(const RowsNode& node) {
  return GatherAlong(node, node.Axis(node.Int("axis", 0)));
}

absl::StatusOr<TokenAxes> GatherBlockQuantizedRule(const RowsNode& node) {
  if (!node.fixed(0)) return node.Mixes("its table depends on tokens");
  return GatherAlong(node, node.Axis(node.Int("gather_axis", 0)));
}

// Data, indices (and updates) have the same axes; the op works along one of them.
absl::StatusOr<TokenAxes> ElementsRule(const RowsNode& node) {
  TokenAxes axes;
  const int axis = node.Axis(node.Int("axis", 0));
  for (int i = 0; i < node.num_inputs(); ++i) {
    PF_RETURN_IF_ERROR(node.CheckApart(i, axis));
    PF_ASSIGN_OR_RETURN(axes, node.Joined(axes, node.axes(i)));
  }
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (node.axes(i) == axes) continue;
    return node.Mixes(StrCat("\"", node.node().input(i)->name(),
                             "\" does not run over the same tokens as the other inputs"));
  }
  return axes;
}

absl::StatusOr<TokenAxes> GatherNdRule(const RowsNode& node) {
  const int batch_dims = static_cast<int>(node.Int("batch_dims", 0));
  const TokenAxes data = node.axes(0);
  const TokenAxes indices = node.axes(1);
  if (data.none() && batch_dims == 0) {
    PF_RETURN_IF_ERROR(node.CheckApart(1, node.rank(1) - 1));
    return indices;
  }
  if (data == indices && std::max(data.batch, data.token) < batch_dims) return data;
  return node.Mixes("it may read rows of other tokens");
}

// Fixed indices over the first axes of data whose later axes run over tokens.
absl::StatusOr<TokenAxes> ScatterNdRule(const RowsNode& node) {
  const auto depth = node.shape(1).back(0).constant();
  if (!node.fixed(1) || !depth) return node.Mixes("it may write rows of other tokens");
  for (int axis = 0; axis < *depth; ++axis) PF_RETURN_IF_ERROR(node.CheckApart(0, axis));
  const int indexed = static_cast<int>(*depth);
  const TokenAxes updates = Shifted(node.axes(2), 0, node.rank(1) - 1, indexed);
  if (!node.fixed(2) &&
      std::min(node.axes(2).batch < 0 ? INT32_MAX : node.axes(2).batch,
               node.axes(2).token < 0 ? INT32_MAX : node.axes(2).token) < node.rank(1) - 1) {
    return node.Mixes("its updates run over tokens where its indices do not");
  }
  if (node.axes(0) != updates) return node.Mixes("data and updates are of different tokens");
  return updates;
}

absl::StatusOr<TokenAxes> OneHotRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
  const int64_t axis = node.Int("axis", -1);
  const int rank = node.output().rank();
  return Shifted(node.axes(0), static_cast<int>(axis < 0 ? axis + rank : axis), 0, 1);
}

}  // namespace

const TokenRules& IndexingRules() {
  static const auto& rules = *new TokenRules{
      {".Gather", GatherRule},
      {".GatherElements", ElementsRule},
      {".GatherND", GatherNdRule},
      {".OneHot", OneHotRule},
      {".ScatterElements", ElementsRule},
      {".ScatterND", ScatterNdRule},
      {"com.microsoft.GatherBlockQuantized", GatherBlockQuantizedRule},
  };
  return rules;
}

}  // namespace pagefuse
