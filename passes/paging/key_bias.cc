// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/key_bias.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/functions/number_ranges.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/analysis/masks/mask_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

using ports::Attention;
using ports::Where;

bool Moves(const Node& node) {
  return IsAnyOf(node,
                 {"Reshape", "Expand", "Unsqueeze", "Squeeze", "Transpose", "Slice", "Identity"});
}

// Sizes of an attention over heads; nullopt where they are not known, or where it does more to scores
// than to scale them and to add its mask.
struct Sizes {
  Dim batch, keys;
  int64_t query_heads = 0, kv_heads = 0;
  float scale = 0;
};

std::optional<Sizes> SizesOf(const Node& node) {
  const auto& query = node.input(Attention::kQuery)->shape();
  const auto& key = node.input(Attention::kKey)->shape();
  if (!query || !key || query->rank() != 4 || key->rank() != 4) return std::nullopt;
  const auto query_heads = (*query)[1].constant(), kv_heads = (*key)[1].constant();
  const auto size = (*key)[3].constant();
  if (!query_heads || !kv_heads || !size || *kv_heads < 1 || *query_heads % *kv_heads != 0) {
    return std::nullopt;
  }
  if (node.input(Attention::kPastKey) || node.num_outputs() != 1) return std::nullopt;
  const auto scale = node.FloatAttribute("scale", 1.0f / std::sqrt(static_cast<float>(*size)));
  // The cap would be over the bias too.
  const auto softcap = node.FloatAttribute("softcap", 0.0f);
  if (!scale.ok() || !std::isnormal(*scale) || !softcap.ok() || *softcap != 0) return std::nullopt;
  return Sizes{(*key)[0], (*key)[2], *query_heads, *kv_heads, *scale};
}

// A bias as the graph computes it, with the axes that are those of batch, heads and keys; -1 where it
// is the same along one.
struct KeyBias {
  Value* value = nullptr;
  int batch = -1, head = -1, key = -1;
};

constexpr int kMostSteps = 64;  // through what a mask is joined of

class BiasTaker {
 public:
  BiasTaker(Graph& graph, Node* node, const Sizes& sizes, const SymbolicContents& contents)
      : node_(node),
        sizes_(sizes),
        builder_(graph, node, "key_bias"),
        reader_(contents, Trust::kNothing) {
    reader_.HideFrom(kLowBesideSoftmax);
  }

  // Whether there was one.
  bool Take() {
    Value* mask = node_->input(Attention::kMask);
    const auto places = reader_.Places(mask);
    if (!places.ok() || places->at.size() < 2 || places->at.size() > 4) return false;
    places_ = places->at;
    Value* rest = Without(mask, reader_.Source(*places));
    if (!rest || reader_.GaveUp()) return false;
    node_->SetInput(Attention::kMask, rest);
    AddColumn();
    return true;
  }

 private:
  // The value, whose source is `element`, without the bias; null if none was found in it. All else of a
  // mask is as it was, so that its shape is too.
  Value* Without(Value* value, const Element& element) {
    Value* source = WithoutAt(element);
    return source ? Moved(value, element.value, source) : nullptr;
  }

  Value* WithoutAt(const Element& element) {
    const Node* node = element.producer();
    // Sums may share what they add.
    if (!node || reader_.GaveUp() || ++steps_ > kMostSteps) return nullptr;
    if (node->Is("Where")) {
      for (const int branch : {Where::kTrue, Where::kFalse}) {
        const int other = branch == Where::kTrue ? Where::kFalse : Where::kTrue;
        const auto low = reader_.Number(reader_.Operand(element, other));
        if (low && reader_.Hides(*low)) return WithInput(element, branch);
      }
      return nullptr;
    }
    if (node->Is("Add")) {
      for (const int side : {0, 1}) {
        if (Value* rest = WithInput(element, side)) return rest;
      }
      return nullptr;
    }
    if (reader_.ReadMask(element).ok()) return nullptr;
    const auto bias = BiasAt(element);
    if (!bias) return nullptr;
    bias_ = *bias;
    return builder_.Add(
        "Expand", {builder_.Float(0, bias->value->dtype()), builder_.Add("Shape", {bias->value})});
  }

  Value* WithInput(const Element& element, int input) {
    Value* rest = Without(element.producer()->input(input), reader_.Operand(element, input));
    return rest ? Copy(*element.producer(), input, rest) : nullptr;
  }

  // `value`, which moves elements of `source`, with those of another in their place.
  Value* Moved(Value* value, const Value* source, Value* other) {
    if (value == source) return other;
    const Node* node = value->producer();
    if (!node || !Moves(*node)) return nullptr;
    Value* input = Moved(node->input(0), source, other);
    return input ? Copy(*node, 0, input) : nullptr;
  }

  Value* Copy(const Node& node, int input, Value* value) {
    std::vector<Value*> inputs = node.inputs();
    inputs[input] = value;
    return builder_.AddNode(node.domain(), node.op_type(), std::move(inputs), 1, node)->output(0);
  }

  // The index of the mask along an axis that is counted from the last one; null if it is 0 everywhere.
  IndexSymbolPtr AxisFromLast(size_t back) const {
    return back < places_.size() ? places_[places_.size() - 1 - back].symbol() : nullptr;
  }

  std::optional<KeyBias> BiasAt(const Element& element) const {
    const auto& shape = element.value->shape();
    if (!shape || element.value->dtype() != node_->input(Attention::kKey)->dtype()) {
      return std::nullopt;
    }
    const IndexSymbolPtr key = AxisFromLast(0), head = AxisFromLast(2), batch = AxisFromLast(3);
    const int64_t group = sizes_.query_heads / sizes_.kv_heads;
    // An axis that is as long as that of the attention is not repeated, whatever the mask calls its own.
    const auto runs = [](IndexExpr index, const IndexSymbolPtr& along, int64_t each = 1) {
      const IndexSymbolPtr symbol = index.symbol();
      if (symbol && IsPart(*symbol)) index = symbol->args[0];
      return along && index.Key() == DivMod(IndexExpr::Of(along), Dim(each)).first.Key();
    };
    KeyBias bias{.value = element.value};
    for (int axis = 0; axis < shape->rank(); ++axis) {
      const IndexExpr& index = element.at[axis];
      const Dim& length = (*shape)[axis];
      if (length.constant() == 1) continue;
      if (bias.key < 0 && runs(index, key) && ProvablyEqual(length, sizes_.keys)) {
        bias.key = axis;
      } else if (bias.batch < 0 && runs(index, batch) && ProvablyEqual(length, sizes_.batch)) {
        bias.batch = axis;
      } else if (bias.head < 0 && runs(index, head, group) && length == Dim(sizes_.kv_heads)) {
        bias.head = axis;
      } else {
        return std::nullopt;
      }
    }
    return bias.key < 0 ? std::nullopt : std::optional(bias);
  }

  // The bias as a column [B, Hkv, T, 1].
  Value* Column() {
    std::vector<int64_t> order, dims;
    for (const int axis : {bias_.batch, bias_.head, bias_.key}) {
      if (axis >= 0) order.push_back(axis);
    }
    const int rank = bias_.value->shape()->rank();
    for (int axis = 0; axis < rank; ++axis) {
      if (axis != bias_.batch && axis != bias_.head && axis != bias_.key) order.push_back(axis);
    }
    Value* turned = builder_.Add("Transpose", {bias_.value}, {{"perm", order}});
    Value* key = node_->input(Attention::kKey);
    const auto size = [&](int axis, bool varies) {
      return varies ? builder_.Size(key, axis) : builder_.Ints({1});
    };
    const auto shape = [&](bool batch, bool head) {
      return builder_.Add("Concat",
                          {size(0, batch), size(1, head), size(2, true), builder_.Ints({1})},
                          {{"axis", 0}});
    };
    Value* column = builder_.Add("Reshape", {turned, shape(bias_.batch >= 0, bias_.head >= 0)});
    return bias_.batch >= 0 && bias_.head >= 0
               ? column
               : builder_.Add("Expand", {column, shape(true, true)});
  }

  void AddColumn() {
    Value* query = node_->input(Attention::kQuery);
    Value* sizes = builder_.Add("Concat",
                                {builder_.Size(query, 0), builder_.Size(query, 1),
                                 builder_.Size(query, 2), builder_.Ints({1})},
                                {{"axis", 0}});
    Value* ones = builder_.Add("Expand", {builder_.Float(1 / sizes_.scale, query->dtype()), sizes});
    const auto beside = [&](int port, Value* column) {
      node_->SetInput(port, builder_.Add("Concat", {node_->input(port), column}, {{"axis", -1}}));
    };
    beside(Attention::kKey, Column());
    beside(Attention::kQuery, ones);
    node_->SetAttribute("scale", MakeAttribute(sizes_.scale));
  }

  Node* node_;
  const Sizes& sizes_;
  GraphBuilder builder_;
  IndexingAnalysis reader_;
  std::vector<IndexExpr> places_;  // of the mask
  KeyBias bias_;
  int steps_ = 0;
};

bool HasUnreadMask(const Node& node, const SymbolicContents& contents) {
  if (!node.Is("Attention")) return false;
  const Value* mask = node.input(Attention::kMask);
  return mask && mask->dtype() != DataType::kBool && !PaddingInputOf(mask, contents) &&
         !AnalyseMask(mask, contents).ok();
}

}  // namespace

absl::StatusOr<bool> LowerKeyBias(Model& model, const SymbolicContents& contents,
                                  ExtrasOfAttention& extras) {
  Graph& graph = *model.graph;
  bool changed = false;
  for (Node* node : NodesOf(graph)) {
    if (!HasUnreadMask(*node, contents)) continue;
    const auto sizes = SizesOf(*node);
    if (!sizes || !BiasTaker(graph, node, *sizes, contents).Take()) continue;
    changed = true;
    extras.At(node).key_bias = true;
  }
  if (!changed) return false;
  PassContext context;
  PF_RETURN_IF_ERROR(InferShapes(model, &context.contents));
  PF_RETURN_IF_ERROR(RecogniseAttentionMask()->Run(model, context).status());
  return true;
}

void TakeBiasAsEstimated(const Node& attention, NumberRanges& ranges) {
  constexpr double kEstimates = 64;
  const Value* bias = attention.input(Attention::kKey)->producer()->input(1);
  while (bias->producer() && Moves(*bias->producer())) bias = bias->producer()->input(0);
  if (!bias->producer() || !bias->producer()->Is("Exp")) return;
  const NumberRange of = ranges.Of(bias->producer()->input(0));
  const double most = std::exp(kEstimates * of.typical);
  const NumberRange held = NumberRange::Between(0, most, most);
  if (!of.finite() || !Within(bias->dtype(), held).finite()) return;
  ranges.TakeAs(bias, NumberRange::Between(0, most, std::exp(of.typical)));
}

}  // namespace pagefuse
