// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/cache_pasts.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/attention/joined_rows.h"
#include "pagefuse/passes/analysis/indexing/layout.h"
#include "pagefuse/passes/edit/number_types.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/paging/grouped_attention.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

using ports::Attention;

constexpr int kTokens = 2;

// The inputs whose elements a value may have, moved, cast and joined.
void CollectSources(Value* value, absl::flat_hash_set<Value*>& seen) {
  if (!seen.insert(value).second || !value->producer()) return;
  const Node& node = *value->producer();
  if (node.Is("Attention")) {
    const bool keys = value->producer_index() == Attention::kPresentKey;
    Value* past = node.input(keys ? Attention::kPastKey : Attention::kPastValue);
    if (past && value->producer_index() != Attention::kRows) CollectSources(past, seen);
  } else if (node.Is("Concat")) {
    for (Value* part : node.inputs()) CollectSources(part, seen);
  } else if (IsViewNode(node) ||
             IsAnyOf(node, {"Cast", "Identity", "Transpose", "Gather", "Slice", "Split"})) {
    CollectSources(node.input(0), seen);
  }
}

// As "batch", "channel + 4" or "0"; empty if the index is neither.
std::string AxisText(const IndexExpr& index, const AxisSymbols& axes) {
  constexpr const char* kNames[] = {"batch", "head", "token", "channel"};
  if (const auto number = index.number()) return StrCat(*number);
  const IndexSymbolPtr symbol = (index - IndexExpr(index.constant())).symbol();
  const auto begin = index.constant().constant();
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (!symbol || !axes[axis] || axes[axis]->key != symbol->key || !begin) continue;
    return *begin == 0 ? std::string(kNames[axis]) : StrCat(kNames[axis], " + ", *begin);
  }
  return "";
}

// The part of an axis of `length` that an index runs over: a number, "4:8", or ":" for all of it.
std::string PartText(const IndexExpr& index, const Dim& length) {
  if (const auto number = index.number()) return length == Dim(1) ? ":" : StrCat(*number);
  const Dim count = (index - IndexExpr(index.constant())).symbol()->extent;
  if (ProvablyEqual(count, length)) return ":";
  return StrCat(index.constant().ToString(), ":", (index.constant() + count).ToString());
}

std::string PlaceText(const Element& element) {
  std::vector<std::string> parts;
  for (int axis = 0; axis < static_cast<int>(element.at.size()); ++axis) {
    parts.push_back(PartText(element.at[axis], (*element.value->shape())[axis]));
  }
  while (!parts.empty() && parts.back() == ":") parts.pop_back();
  if (parts.empty()) return "";
  std::string text = "[";
  for (const std::string& part : parts) StrAppend(&text, text.size() > 1 ? ", " : "", part);
  return text + "]";
}

// The types without those of `inner` behind them; nullopt if they do not end with these.
std::optional<std::vector<DataType>> Before(const std::vector<DataType>& types,
                                            const std::vector<DataType>& inner) {
  const auto more = static_cast<int64_t>(types.size()) - static_cast<int64_t>(inner.size());
  if (more < 0 || !std::equal(inner.begin(), inner.end(), types.begin() + more)) {
    return std::nullopt;
  }
  return std::vector<DataType>(types.begin(), types.begin() + more);
}

// Whether numbers of a type are the same again after casts through all the others.
bool KeepsAll(DataType type, const std::vector<DataType>& through) {
  return std::ranges::all_of(through,
                             [type](DataType other) { return KeepsAllNumbers(type, other); });
}

// Keys or values of an attention, each element traced to where it comes from.
struct ReadRows {
  AxisSymbols axes;  // of the past; null: of length 1
  IndexSymbolPtr fresh_token;
  TracedElement past, fresh;
  size_t token_axis = 0;  // of the input that the past is
};

// The output has the rows of the past at their places, and behind them new ones: those of the
// attention, whose casts of both are the same.
bool GivesBack(IndexingAnalysis& reader, Value* output, const ReadRows& rows) {
  const Element& input = rows.past.element;
  const auto& shape = output->shape();
  if (!shape || shape->rank() != static_cast<int>(input.at.size()) ||
      output->dtype() != input.value->dtype()) {
    return false;
  }
  const IndexSymbolPtr token = reader.NewAxis((*shape)[static_cast<int>(rows.token_axis)]);
  Element place{output, input.at};
  place.at[rows.token_axis] = IndexExpr::Of(token);
  const TracedElement all = TraceElement(reader, place);
  const auto joined = JoinedAlong(reader, all.element, token, rows.axes[kTokens], rows.fresh_token);
  if (!joined) return false;
  const TracedElement past = TraceElement(reader, joined->past);
  const TracedElement fresh = TraceElement(reader, joined->fresh);
  const bool same = past.element.Key() == rows.past.element.Key() &&
                    fresh.element.Key() == rows.fresh.element.Key();
  const auto casts = Before(rows.past.types, past.types);
  const DataType type = joined->past.value->dtype();
  return same && casts && casts == Before(rows.fresh.types, fresh.types) &&
         KeepsAll(type, all.types) && KeepsAll(type, past.types);
}

}  // namespace

CachePasts::CachePasts(const Graph& graph, const SymbolicContents& contents) : contents_(contents) {
  for (Value* output : graph.outputs()) {
    absl::flat_hash_set<Value*> sources;
    CollectSources(output, sources);
    for (const Value* source : sources) {
      if (source->is_input() && source != output) outputs_[source].push_back(output);
    }
  }
}

absl::StatusOr<CachePast> CachePasts::Find(const Node& attention, bool keys) const {
  const auto unfit = [&] {
    return Unfit(attention, "its past is no input of the graph, nor a part of one");
  };
  Value* value = attention.input(keys ? Attention::kPastKey : Attention::kPastValue);
  Value* fresh = attention.input(keys ? Attention::kKey : Attention::kValue);
  IndexingAnalysis reader(contents_, Trust::kNothing);
  if (!value) return unfit();
  PF_ASSIGN_OR_RETURN(Element element, reader.Places(value));
  if (element.at.size() != 4) return unfit();
  ReadRows rows;
  for (const IndexExpr& index : element.at) rows.axes.push_back(index.symbol());
  rows.past = TraceElement(reader, element);
  const Element& input = rows.past.element;
  CachePast found;
  found.input = input.value;
  if (!found.input->is_input() || found.input->initializer() || !rows.axes[kTokens]) return unfit();
  for (const IndexExpr& index : input.at) found.axes.push_back(AxisText(index, rows.axes));
  const auto token = std::ranges::find(found.axes, "token");
  rows.token_axis = token - found.axes.begin();
  if (token == found.axes.end() || std::ranges::count(found.axes, "") > 0 ||
      !ProvablyEqual((*found.input->shape())[static_cast<int>(rows.token_axis)],
                     rows.axes[kTokens]->extent)) {
    return unfit();
  }
  found.place = PlaceText(input);
  rows.fresh_token = reader.NewAxis((*fresh->shape())[kTokens]);
  element.value = fresh;
  element.at[kTokens] = IndexExpr::Of(rows.fresh_token);
  rows.fresh = TraceElement(reader, element);
  if (const auto outputs = outputs_.find(found.input); outputs != outputs_.end()) {
    const auto gives = [&](Value* output) { return GivesBack(reader, output, rows); };
    const auto present = std::ranges::find_if(outputs->second, gives);
    if (present != outputs->second.end()) found.present = *present;
  }
  return found;
}

}  // namespace pagefuse
