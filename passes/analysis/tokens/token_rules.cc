// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/tokens/token_rules.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {
namespace {

// Elementwise with numpy's broadcast.
absl::StatusOr<TokenAxes> ElementwiseRule(const RowsNode& node) {
  return node.Broadcast(0, node.num_inputs());
}

// Input 0 elementwise; the others say how and are fixed.
absl::StatusOr<TokenAxes> FirstInputRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
  return node.axes(0);
}

absl::StatusOr<TokenAxes> CastLikeRule(const RowsNode& node) { return node.axes(0); }

// Works along one axis of input 0 (attribute `axis`, the last by default) and keeps the shape, or
// changes that axis alone.
absl::StatusOr<TokenAxes> AlongAxisRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
  PF_RETURN_IF_ERROR(node.CheckApart(0, node.Axis(node.Int("axis", -1))));
  return node.axes(0);
}

absl::StatusOr<TokenAxes> CumulativeRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
  const auto axis = node.Ints(1);
  if (!axis || axis->size() != 1) return node.Mixes("its axis is not known");
  PF_RETURN_IF_ERROR(node.CheckApart(0, node.Axis((*axis)[0])));
  return node.axes(0);
}

// Normalises over the axes from `axis` on; scale and bias are broadcast.
absl::StatusOr<TokenAxes> NormRule(const RowsNode& node) {
  for (int axis = node.Axis(node.Int("axis", -1)); axis < node.rank(0); ++axis) {
    PF_RETURN_IF_ERROR(node.CheckApart(0, axis));
  }
  return node.Broadcast(0, node.num_inputs());
}

// com.microsoft.Skip(Simplified)LayerNormalization: over the last axis of a sum.
absl::StatusOr<TokenAxes> SkipNormRule(const RowsNode& node) {
  for (int i : {0, 1}) PF_RETURN_IF_ERROR(node.CheckApart(i, node.rank(i) - 1));
  return node.Broadcast(0, node.num_inputs());
}

// The axes that a reduction takes away or makes 1; nullopt if they are not known.
std::optional<std::vector<bool>> ReducedAxes(const RowsNode& node) {
  std::vector<bool> reduced(node.rank(0), false);
  std::vector<int64_t> axes;
  if (node.has(1)) {
    auto known = node.Ints(1);
    if (!known) return std::nullopt;
    axes = *std::move(known);
  } else if (auto listed = node.node().IntsAttribute("axes", {}); listed.ok()) {
    axes = *listed;
  }
  if (axes.empty() && node.Int("noop_with_empty_axes", 0) == 0) reduced.flip();
  for (int64_t axis : axes) reduced[node.Axis(axis)] = true;
  return reduced;
}

absl::StatusOr<TokenAxes> WithoutReduced(const RowsNode& node, const std::vector<bool>& reduced) {
  TokenAxes axes = node.axes(0);
  for (int axis = 0; axis < node.rank(0); ++axis) {
    if (reduced[axis]) PF_RETURN_IF_ERROR(node.CheckApart(0, axis));
  }
  if (node.Int("keepdims", 1) != 0) return axes;
  for (int* axis : {&axes.batch, &axes.token}) {
    if (*axis >= 0)
      *axis -= static_cast<int>(std::count(reduced.begin(), reduced.begin() + *axis, true));
  }
  return axes;
}

absl::StatusOr<TokenAxes> ReduceRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
  const auto reduced = ReducedAxes(node);
  if (!reduced) return node.Mixes("the axes that it reduces are not known");
  return WithoutReduced(node, *reduced);
}

absl::StatusOr<TokenAxes> ArgRule(const RowsNode& node) {
  std::vector<bool> reduced(node.rank(0), false);
  reduced[node.Axis(node.Int("axis", 0))] = true;
  return WithoutReduced(node, reduced);
}

// A scale for the whole tensor, or one for each part along `axis`.
absl::StatusOr<TokenAxes> QuantiseRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
  if (node.rank(1) == 0 || node.shape(1).constant() == std::vector<int64_t>{1}) {
    return node.axes(0);
  }
  PF_RETURN_IF_ERROR(node.CheckApart(0, node.Axis(node.Int("axis", 1))));
  return node.rank(1) == 1 ? node.axes(0) : node.Broadcast(0, 2);
}

// cos and sin are rows [B, S, R/2], or tables that position ids [B, S] index.
absl::StatusOr<TokenAxes> RotaryRule(const RowsNode& node, int tables, int positions) {
  const int token_axis = node.rank(0) == 4 ? 2 : 1;
  TokenAxes axes;
  const auto join = [&](int i, int axis) -> absl::Status {
    const TokenAxes of = node.axes(i);
    if (of.none()) return absl::OkStatus();
    if ((of.batch != -1 && of.batch != 0) || (of.token != -1 && of.token != axis) ||
        of.per_token != 1) {
      return node.Mixes(StrCat("the tokens of \"", node.node().input(i)->name(),
                               "\" do not run along axis ", axis));
    }
    if (of.batch == 0) axes.batch = 0;
    if (of.token >= 0) axes.token = token_axis;
    return absl::OkStatus();
  };
  PF_RETURN_IF_ERROR(join(0, token_axis));
  if (node.has(positions)) {
    PF_RETURN_IF_ERROR(join(positions, 1));
    if (node.axes(positions).token < 0) return node.Mixes("its positions are not those of tokens");
    if (!node.fixed(tables) || !node.fixed(tables + 1)) {
      return node.Mixes("its tables of cos and sin depend on tokens");
    }
    return axes;
  }
  for (int i : {tables, tables + 1}) {
    PF_RETURN_IF_ERROR(join(i, 1));
    if (node.axes(i).token < 0) return node.Mixes("cos and sin are not those of the tokens");
  }
  return axes;
}

absl::StatusOr<TokenAxes> OnnxRotaryRule(const RowsNode& node) { return RotaryRule(node, 1, 3); }
absl::StatusOr<TokenAxes> MicrosoftRotaryRule(const RowsNode& node) {
  return RotaryRule(node, 2, 1);
}

// A match: tokens run along axis 2 of query, key and value alike.
absl::StatusOr<TokenAxes> SiteRule(const RowsNode& node) {
  TokenAxes axes;
  for (int i = 0; i < 3; ++i) {
    const TokenAxes of = node.axes(i);
    if (of.token != 2 || of.per_token != 1 || (of.batch != 0 && of.batch != -1)) {
      return node.Mixes(
          StrCat("the tokens of \"", node.node().input(i)->name(), "\" do not run along axis 2"));
    }
    PF_ASSIGN_OR_RETURN(axes, node.Joined(axes, of));
  }
  return axes;
}

absl::StatusOr<TokenAxes> AttentionRule(const RowsNode& node) {
  if (node.sources().matches.contains(&node.node())) return SiteRule(node);
  return node.Mixes("it is no paged match");
}

const TokenRules& OtherRules() {
  static const auto& rules = *new TokenRules{
      {".CastLike", CastLikeRule},
      {".Softmax", AlongAxisRule},
      {".LogSoftmax", AlongAxisRule},
      {".Hardmax", AlongAxisRule},
      {".LpNormalization", AlongAxisRule},
      {".TopK", AlongAxisRule},
      {".CumSum", CumulativeRule},
      {".CumProd", CumulativeRule},
      {".LayerNormalization", NormRule},
      {".RMSNormalization", NormRule},
      {".SimplifiedLayerNormalization", NormRule},
      {".ArgMax", ArgRule},
      {".ArgMin", ArgRule},
      {".QuantizeLinear", QuantiseRule},
      {".DequantizeLinear", QuantiseRule},
      {".RotaryEmbedding", OnnxRotaryRule},
      {".Attention", AttentionRule},
      {".Dropout", FirstInputRule},
      {".Identity", FirstInputRule},
      {"com.microsoft.SkipLayerNormalization", SkipNormRule},
      {"com.microsoft.SkipSimplifiedLayerNormalization", SkipNormRule},
      {"com.microsoft.RotaryEmbedding", MicrosoftRotaryRule},
      {"com.microsoft.QuantizeLinear", QuantiseRule},
      {"com.microsoft.DequantizeLinear", QuantiseRule},
      {"com.microsoft.BiasGelu", ElementwiseRule},
      {"com.microsoft.FastGelu", ElementwiseRule},
      {"com.microsoft.Gelu", ElementwiseRule},
      {"com.microsoft.QuickGelu", ElementwiseRule},
  };
  return rules;
}

}  // namespace

absl::Status RowsNode::CheckFixedFrom(int first) const {
  for (int i = first; i < num_inputs(); ++i) {
    if (!fixed(i)) {
      return Mixes(StrCat("its input ", i, " \"", node_.input(i)->name(), "\" depends on tokens"));
    }
  }
  return absl::OkStatus();
}

int64_t RowsNode::Int(std::string_view name, int64_t default_value) const {
  return IntOr(node_, name, default_value);
}

std::optional<std::vector<int64_t>> RowsNode::Ints(int input) const {
  if (!node_.input(input)) return std::nullopt;
  return KnownInts(node_.input(input), contents_);
}

int RowsNode::Axis(int64_t axis, int i) const {
  return static_cast<int>(NormalAxis(axis, rank(i)));
}

absl::Status RowsNode::Mixes(std::string_view why) const {
  return absl::FailedPreconditionError(
      StrCat(node_.Description(), " does not work on each token alone: ", why));
}

absl::Status RowsNode::CheckApart(int i, int axis) const {
  if (!axes(i).contains(axis)) return absl::OkStatus();
  return Mixes(StrCat("it works along axis ", axis, " of \"", node_.input(i)->name(), "\" ",
                      shape(i).ToString(), ", which runs over tokens"));
}

absl::StatusOr<TokenAxes> RowsNode::Joined(TokenAxes axes, TokenAxes more) const {
  const auto differ = [](int a, int b) { return a >= 0 && b >= 0 && a != b; };
  const bool one_is_flat = axes.flat() != more.flat() && !axes.none() && !more.none();
  const bool other_places = axes.token >= 0 && more.token >= 0 && axes.per_token != more.per_token;
  if (differ(axes.batch, more.batch) || differ(axes.token, more.token) || one_is_flat ||
      other_places) {
    return Mixes("it combines rows of different tokens");
  }
  return TokenAxes{std::max(axes.batch, more.batch), std::max(axes.token, more.token),
                   std::max(axes.per_token, more.per_token)};
}

absl::StatusOr<TokenAxes> RowsNode::Broadcast(int first, int last) const {
  const int rank_out = output().rank();
  TokenAxes joined;
  for (int i = first; i < last; ++i) {
    TokenAxes of = axes(i);
    if (of.none()) continue;
    const int shift = rank_out - rank(i);
    if (of.batch >= 0) of.batch += shift;
    if (of.token >= 0) of.token += shift;
    PF_ASSIGN_OR_RETURN(joined, Joined(joined, of));
  }
  for (int i = first; i < last; ++i) {
    if (!has(i)) continue;
    const int shift = rank_out - rank(i);
    for (int axis : {joined.batch, joined.token}) {
      const int own = axis - shift;
      if (axis < 0 || own < 0 || axes(i).contains(own) || shape(i)[own].constant() == 1) continue;
      return Mixes(StrCat("\"", node_.input(i)->name(), "\" ", shape(i).ToString(),
                          " has numbers of its own along axis ", own, ", which runs over tokens"));
    }
  }
  return joined;
}

TokenRule FindTokenRule(const Node& node) {
  const std::string& op = node.op_type();
  const std::string key = StrCat(node.domain(), ".", op);
  for (const auto* rules : {&ProductRules(), &LayoutRules(), &IndexingRules(), &OtherRules()}) {
    if (const auto it = rules->find(key); it != rules->end()) return it->second;
  }
  if (!node.domain().empty()) return nullptr;
  if (op.starts_with("Reduce")) return ReduceRule;
  const OpDef* def = OpRegistry::Global().Find("", op, INT64_MAX);
  return def && def->is_elementwise() ? ElementwiseRule : nullptr;
}

}  // namespace pagefuse
