#include <algorithm>
#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/ports.h"
#include "pagefuse/passes/refused.h"
#include "pagefuse/passes/words/attention_parts.h"

namespace pagefuse {
namespace {

using ports::Attention;

class OpReader {
 public:
  OpReader(ElementReader& reader, AttentionSite& site) : reader_(reader), site_(site) {}

  absl::Status Read() {
    const Node& node = *site_.output.value->producer();
    if (node.num_outputs() > 1 || node.input(Attention::kPastKey) ||
        node.input(Attention::kPastValue)) {
      return absl::NotFoundError("the op joins its caches itself");
    }
    const Value* key = node.input(Attention::kKey);
    const Value* value = node.input(Attention::kValue);
    if (site_.output.at.size() != 4 || !key->shape() || key->shape()->rank() != 4 ||
        !value->shape() || value->shape()->rank() != 4) {
      return Refused(*site_.output.value, ": queries, keys and values are not [B, H, S, D]");
    }
    const std::vector<IndexForm>& at = site_.output.at;
    const Shape& shape = *key->shape();
    const Dim groups = (*site_.output.value->shape())[1].FloorDiv(shape[1]);
    if (!groups.known()) return Refused(*site_.output.value, ": its heads are not known");
    const IndexForm head = DivMod(at[1], groups).first;
    site_.d = at[3].atom();
    site_.n = reader_.NewAxis(shape[2], {(*value->shape())[2]});
    site_.e = reader_.NewAxis(shape[3]);
    if (!site_.d) return Refused(*site_.output.value, ": its last axis is no axis of values");
    const IndexForm n = IndexForm::Of(site_.n);
    const IndexForm e = IndexForm::Of(site_.e);
    reader_.Visit(node);
    site_.key = FactorsOf(reader_, {node.input(Attention::kKey), {at[0], head, n, e}});
    site_.value = FactorsOf(
        reader_, {node.input(Attention::kValue), {at[0], head, n, IndexForm::Of(site_.d)}});
    PF_RETURN_IF_ERROR(ReadAttributes(node, shape[3]));
    PF_RETURN_IF_ERROR(ReadMask(node));
    ReadQuery(reader_, reader_.Source({node.input(Attention::kQuery), {at[0], at[1], at[2], e}}),
              site_);
    return absl::OkStatus();
  }

 private:
  absl::Status ReadAttributes(const Node& node, const Dim& head_size) {
    const auto size = head_size.constant();
    if (!node.attribute("scale") && !size)
      return Refused(*site_.output.value, ": its scale is not known");
    const double usual = size ? 1 / std::sqrt(static_cast<double>(*size)) : 0;
    PF_ASSIGN_OR_RETURN(const float scale, node.FloatAttribute("scale", static_cast<float>(usual)));
    PF_ASSIGN_OR_RETURN(const float softcap, node.FloatAttribute("softcap", 0));
    site_.scale *= scale;
    site_.softcap = softcap;
    return absl::OkStatus();
  }

  absl::Status ReadMask(const Node& node) {
    const IndexForm n = IndexForm::Of(site_.n);
    const std::vector<IndexForm>& at = site_.output.at;
    const Dim rows = (*site_.output.value->shape())[2];
    IndexForm position = at[2];
    if (Value* lengths = node.input(Attention::kKeyLengths)) {
      const IndexForm length = reader_.ReadIndex({lengths, {at[0]}});
      site_.visible.push_back(length - IndexForm(1) - n);
      position = position + length - IndexForm(rows);
    }
    if (IntOr(node, "is_causal", 0) != 0) site_.visible.push_back(position - n);
    const int64_t left = IntOr(node, "left_window_size", -1);
    const int64_t right = IntOr(node, "right_window_size", -1);
    if (left >= 0) site_.visible.push_back(n - position + IndexForm(left));
    if (right >= 0) site_.visible.push_back(position + IndexForm(right) - n);
    Value* mask = node.input(Attention::kMask);
    if (!mask) return absl::OkStatus();
    const auto& shape = mask->shape();
    if (!shape) return Refused(*site_.output.value, ": the shape of its mask is not known");
    std::vector<IndexForm> place = {at[0], at[1], at[2], n};
    place.erase(place.begin(), place.end() - std::min(4, shape->rank()));
    const Element element{mask, place};
    const bool is_bool = mask->dtype() == DataType::kBool;
    PF_ASSIGN_OR_RETURN(const Conditions conditions,
                        is_bool ? reader_.ReadConditions(element) : reader_.ReadHiding(element));
    site_.visible.insert(site_.visible.end(), conditions.begin(), conditions.end());
    return absl::OkStatus();
  }

  ElementReader& reader_;
  AttentionSite& site_;
};

}  // namespace

absl::Status ReadAttentionOp(ElementReader& reader, AttentionSite& site) {
  return OpReader(reader, site).Read();
}

}  // namespace pagefuse
