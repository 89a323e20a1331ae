// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/attention/attention_parts.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/ports.h"

namespace pagefuse {
namespace {

using ports::Attention;

class OpReader {
 public:
  OpReader(IndexingAnalysis& reader, AttentionMatch& match) : reader_(reader), match_(match) {}

  absl::Status Read() {
    const Node& node = *match_.output.value->producer();
    if (node.num_outputs() > 1 || node.input(Attention::kPastKey) ||
        node.input(Attention::kPastValue)) {
      return absl::NotFoundError("the op joins its caches itself");
    }
    const Value* key = node.input(Attention::kKey);
    const Value* value = node.input(Attention::kValue);
    if (match_.output.at.size() != 4 || !key->shape() || key->shape()->rank() != 4 ||
        !value->shape() || value->shape()->rank() != 4) {
      return MatchFailure(*match_.output.value, ": queries, keys and values are not [B, H, S, D]");
    }
    const std::vector<IndexExpr>& at = match_.output.at;
    const Shape& shape = *key->shape();
    const Dim groups = (*match_.output.value->shape())[1].FloorDiv(shape[1]);
    if (!groups.known()) return MatchFailure(*match_.output.value, ": its heads are not known");
    const IndexExpr head = DivMod(at[1], groups).first;
    match_.d = at[3].symbol();
    match_.n = reader_.NewAxis(shape[2], {(*value->shape())[2]});
    match_.e = reader_.NewAxis(shape[3]);
    if (!match_.d)
      return MatchFailure(*match_.output.value, ": its last axis is no axis of values");
    const IndexExpr n = IndexExpr::Of(match_.n);
    const IndexExpr e = IndexExpr::Of(match_.e);
    reader_.Visit(node);
    match_.key = FactorsOf(reader_, {node.input(Attention::kKey), {at[0], head, n, e}});
    match_.value = FactorsOf(
        reader_, {node.input(Attention::kValue), {at[0], head, n, IndexExpr::Of(match_.d)}});
    PF_RETURN_IF_ERROR(ReadAttributes(node, shape[3]));
    PF_RETURN_IF_ERROR(ReadMask(node));
    ReadQuery(reader_, reader_.Source({node.input(Attention::kQuery), {at[0], at[1], at[2], e}}),
              match_);
    return absl::OkStatus();
  }

 private:
  absl::Status ReadAttributes(const Node& node, const Dim& head_size) {
    const auto size = head_size.constant();
    if (!node.attribute("scale") && !size)
      return MatchFailure(*match_.output.value, ": its scale is not known");
    const double usual = size ? 1 / std::sqrt(static_cast<double>(*size)) : 0;
    PF_ASSIGN_OR_RETURN(const float scale, node.FloatAttribute("scale", static_cast<float>(usual)));
    PF_ASSIGN_OR_RETURN(const float softcap, node.FloatAttribute("softcap", 0));
    match_.scale *= scale;
    match_.softcap = std::abs(softcap);
    return absl::OkStatus();
  }

  absl::Status ReadMask(const Node& node) {
    const IndexExpr n = IndexExpr::Of(match_.n);
    const std::vector<IndexExpr>& at = match_.output.at;
    const Dim rows = (*match_.output.value->shape())[2];
    IndexExpr position = at[2];
    if (Value* lengths = node.input(Attention::kKeyLengths)) {
      const IndexExpr length = reader_.ReadIndex({lengths, {at[0]}});
      match_.visible.push_back(length - IndexExpr(1) - n);
      position = position + length - IndexExpr(rows);
    }
    if (IntOr(node, "is_causal", 0) != 0) match_.visible.push_back(position - n);
    const int64_t left = IntOr(node, "left_window_size", -1);
    const int64_t right = IntOr(node, "right_window_size", -1);
    if (left >= 0) match_.visible.push_back(n - position + IndexExpr(left));
    if (right >= 0) match_.visible.push_back(position + IndexExpr(right) - n);
    Value* mask = node.input(Attention::kMask);
    if (!mask) return absl::OkStatus();
    const auto& shape = mask->shape();
    if (!shape) return MatchFailure(*match_.output.value, ": the shape of its mask is not known");
    std::vector<IndexExpr> place = {at[0], at[1], at[2], n};
    place.erase(place.begin(), place.end() - std::min(4, shape->rank()));
    PF_ASSIGN_OR_RETURN(const Conditions conditions, reader_.ReadMask({mask, place}));
    match_.visible.insert(match_.visible.end(), conditions.begin(), conditions.end());
    return absl::OkStatus();
  }

  IndexingAnalysis& reader_;
  AttentionMatch& match_;
};

}  // namespace

absl::Status ReadAttentionOp(IndexingAnalysis& reader, AttentionMatch& match) {
  return OpReader(reader, match).Read();
}

}  // namespace pagefuse
