// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/attention/joined_rows.h"

#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"

namespace pagefuse {
namespace {

using ports::Attention;

struct Join {
  Value *past = nullptr, *fresh = nullptr;
  int axis = 0;
};

std::optional<Join> JoinOf(const Element& rows) {
  const Node* node = rows.producer();
  if (!node) return std::nullopt;
  if (node->Is("Concat") && node->num_inputs() == 2) {
    const auto rank = static_cast<int64_t>(rows.at.size());
    const auto axis = static_cast<int>(NormalAxis(IntOr(*node, "axis", 0), rank));
    return Join{node->input(0), node->input(1), axis};
  }
  constexpr int kTokens = 2;
  const int output = rows.value->producer_index();
  if (!node->Is("Attention") || rows.at.size() != 4) return std::nullopt;
  if (output == Attention::kPresentKey) {
    return Join{node->input(Attention::kPastKey), node->input(Attention::kKey), kTokens};
  }
  if (output != Attention::kPresentValue) return std::nullopt;
  return Join{node->input(Attention::kPastValue), node->input(Attention::kValue), kTokens};
}

}  // namespace

TracedElement TraceElement(IndexingAnalysis& reader, Element element) {
  TracedElement traced{.element = {}, .types = {element.value->dtype()}};
  traced.element = reader.Source(std::move(element));
  while (traced.element.From("Cast")) {
    traced.element = reader.Operand(traced.element, 0);
    traced.types.push_back(traced.element.value->dtype());
  }
  return traced;
}

std::optional<JoinedRows> JoinedAlong(IndexingAnalysis& reader, const Element& rows,
                                      const IndexSymbolPtr& token, IndexSymbolPtr past_token,
                                      IndexSymbolPtr fresh_token) {
  const std::optional<Join> join = JoinOf(rows);
  if (!join || !join->past || !join->fresh || !rows.value->shape()) return std::nullopt;
  for (int axis = 0; axis < static_cast<int>(rows.at.size()); ++axis) {
    const bool runs = rows.at[axis].Key() == IndexExpr::Of(token).Key();
    if (axis == join->axis ? !runs : rows.at[axis].Mentions(token->key)) return std::nullopt;
  }
  const auto length = [&](const Value* value) {
    return value->shape() ? (*value->shape())[join->axis] : Dim::Unknown();
  };
  if (!past_token) past_token = reader.NewAxis(length(join->past));
  if (!fresh_token) fresh_token = reader.NewAxis(length(join->fresh));
  if (!ProvablyEqual(length(rows.value), token->extent) ||
      !ProvablyEqual(length(join->past), past_token->extent) ||
      !ProvablyEqual(length(join->fresh), fresh_token->extent)) {
    return std::nullopt;
  }
  JoinedRows joined{.join = rows.producer(),
                    .past = {join->past, rows.at},
                    .fresh = {join->fresh, rows.at},
                    .past_token = past_token,
                    .fresh_token = fresh_token};
  joined.past.at[join->axis] = IndexExpr::Of(past_token);
  joined.fresh.at[join->axis] = IndexExpr::Of(fresh_token);
  return joined;
}

}  // namespace pagefuse
