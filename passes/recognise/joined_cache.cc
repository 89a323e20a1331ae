// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/recognise/joined_cache.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

using ports::Attention;

constexpr int kTokens = 2;

// Of the keys or values that another Attention has taken.
std::optional<JoinedCache> PresentOf(const Value& all) {
  const Node* node = all.producer();
  if (!node || !node->Is("Attention")) return std::nullopt;
  const bool key = all.producer_index() == Attention::kPresentKey;
  if (!key && all.producer_index() != Attention::kPresentValue) return std::nullopt;
  Value* past = node->input(key ? Attention::kPastKey : Attention::kPastValue);
  if (!past) return std::nullopt;
  return JoinedCache{.present = true,
                     .past = {past},
                     .fresh = {node->input(key ? Attention::kKey : Attention::kValue)},
                     .past_rows = {past, kTokens}};
}

// Whether what a node gives goes to outputs of the graph alone, moved and cast by a few nodes.
bool MakesOutputs(const Node& node, int steps = 4) {
  const bool moves = IsViewNode(node) || IsAnyOf(node, {"Cast", "Concat", "Identity", "Transpose"});
  return moves && steps > 0 && std::ranges::all_of(node.outputs(), [steps](const Value* output) {
           return std::ranges::all_of(output->uses(), [steps](const Use& use) {
             return MakesOutputs(*use.node, steps - 1);
           });
         });
}

absl::Status CheckReaders(const Value& all, int port) {
  for (const Use& use : all.uses()) {
    const bool attends = use.node->Is("Attention") && use.index == port;
    if (!attends && !MakesOutputs(*use.node)) {
      return MatchFailure(all, " is read by ", *use.node, " too");
    }
  }
  return absl::OkStatus();
}

// Whether an index runs over an axis of `length`, or over a part of known begin and end.
bool IsRange(const IndexExpr& index, const IndexSymbol& axis, const Dim& length) {
  if (index.constant().constant() == 0 && ProvablyEqual(axis.extent, length)) return true;
  return index.constant().constant() && axis.extent.constant() && length.constant();
}

// The view of an element that runs over `axes`, each along one axis of its tensor, or along none where
// it is repeated; null symbols stand for axes of length 1. Nullopt if it is none.
std::optional<JoinedCache::Part> ViewOf(const Element& element, const AxisSymbols& axes) {
  JoinedCache::Part part{.value = element.value, .at = element.at};
  std::vector<std::string> left;
  for (size_t axis = 0; axis < element.at.size(); ++axis) {
    const IndexExpr& index = element.at[axis];
    if (index.number()) continue;
    const IndexSymbolPtr symbol = (index - IndexExpr(index.constant())).symbol();
    const Dim& length = (*element.value->shape())[static_cast<int>(axis)];
    if (!symbol || !IsRange(index, *symbol, length)) return std::nullopt;
    left.push_back(symbol->key);
  }
  std::vector<int64_t> repeats(axes.size(), 1);
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const auto place = axes[axis] ? std::ranges::find(left, axes[axis]->key) : left.end();
    if (place != left.end()) {
      part.order.push_back(place - left.begin());
      continue;
    }
    part.ones.push_back(static_cast<int64_t>(axis));
    if (!axes[axis]) continue;
    const auto times = axes[axis]->extent.constant();
    if (!times) return std::nullopt;
    repeats[axis] = *times;
    part.repeats = repeats;
  }
  return part.order.size() == left.size() ? std::optional(std::move(part)) : std::nullopt;
}

// What is joined of a tensor of keys and values may be put together of them just before.
Element BehindStack(IndexingAnalysis& reader, Element element) {
  const auto is_number = [](const IndexExpr& index) { return index.number().has_value(); };
  while (element.producer() && std::ranges::any_of(element.at, is_number)) {
    Element inner = reader.OneStep(element);
    if (inner.value == element.value) break;
    element = std::move(inner);
  }
  return element;
}

absl::Status ReadParts(IndexingAnalysis& reader, const JoinedRows& rows, AxisSymbols axes,
                       JoinedCache& joined) {
  for (const bool earlier : {true, false}) {
    axes[kTokens] = earlier ? rows.past_token : rows.fresh_token;
    const Element part = earlier ? rows.past : BehindStack(reader, rows.fresh);
    auto view = ViewOf(part, axes);
    if (!view) return MatchFailure(*part.value, " is no view of rows of heads");
    (earlier ? joined.past : joined.fresh) = *std::move(view);
  }
  return absl::OkStatus();
}

// The part of an axis that an index runs over.
Value* Cut(GraphBuilder& builder, Value* value, int axis, const IndexExpr& index,
           const Dim& length) {
  const auto count = (index - IndexExpr(index.constant())).symbol()->extent.constant();
  if (!count || !length.constant() || length.constant() == count) return value;
  const int64_t begin = *index.constant().constant();
  return builder.Add("Slice", {value, builder.Ints({begin}), builder.Ints({begin + *count}),
                               builder.Ints({axis})});
}

Value* Written(GraphBuilder& builder, const JoinedCache::Part& part,
               const std::vector<DataType>& types) {
  Value* value = part.value;
  const Shape shape = *value->shape();
  // From the last, so that an axis that goes leaves those before it where they are.
  for (int axis = static_cast<int>(part.at.size()) - 1; axis >= 0; --axis) {
    if (const auto number = part.at[axis].number()) {
      value = builder.Add("Gather", {value, builder.Int(*number)}, {{"axis", axis}});
    } else {
      value = Cut(builder, value, axis, part.at[axis], shape[axis]);
    }
  }
  if (!std::ranges::is_sorted(part.order)) {
    value = builder.Add("Transpose", {value}, {{"perm", part.order}});
  }
  if (!part.ones.empty()) value = builder.Add("Unsqueeze", {value, builder.Ints(part.ones)});
  if (!part.repeats.empty()) value = builder.Add("Expand", {value, builder.Ints(part.repeats)});
  for (size_t i = types.size(); i-- > 1;) value = builder.Cast(value, types[i - 1]);
  return value;
}

}  // namespace

absl::StatusOr<JoinedCache> FindJoinedCache(IndexingAnalysis& reader, const Node& attention,
                                            int port) {
  Value& all = *attention.input(port);
  if (auto present = PresentOf(all)) return *std::move(present);
  const auto unlike = [&] { return MatchFailure(all, " is not a past and new rows, joined"); };
  const auto places = reader.Places(&all);
  if (!places.ok() || places->at.size() != 4) return unlike();
  AxisSymbols axes;
  for (const IndexExpr& index : places->at) axes.push_back(index.symbol());
  const TracedElement traced = TraceElement(reader, *places);
  const auto rows =
      axes[kTokens] ? JoinedAlong(reader, traced.element, axes[kTokens]) : std::nullopt;
  if (!rows) return unlike();
  const Value* given = TraceElement(reader, rows->past).element.value;
  if (!given->is_input() || given->initializer()) {
    return MatchFailure(*rows->past.value, " is no input of the graph, and no part of one");
  }
  JoinedCache joined;
  joined.types = traced.types;
  const auto token = std::ranges::find_if(
      rows->past.at, [&](const IndexExpr& index) { return index.symbol() == rows->past_token; });
  joined.past_rows = {rows->past.value, static_cast<int>(token - rows->past.at.begin())};
  if (rows->join != all.producer()) {
    PF_RETURN_IF_ERROR(ReadParts(reader, *rows, axes, joined));
    return joined;
  }
  PF_RETURN_IF_ERROR(CheckReaders(all, port));
  joined.concat = rows->join;
  joined.past.value = rows->past.value;
  joined.fresh.value = rows->fresh.value;
  return joined;
}

Value* PastOf(GraphBuilder& builder, const JoinedCache& joined) {
  return joined.past.at.empty() ? joined.past.value : Written(builder, joined.past, joined.types);
}

Value* FreshOf(GraphBuilder& builder, const JoinedCache& joined) {
  return joined.fresh.at.empty() ? joined.fresh.value
                                 : Written(builder, joined.fresh, joined.types);
}

}  // namespace pagefuse
