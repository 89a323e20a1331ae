// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/attention/attention_match.h"

#include <algorithm>
#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/attention/attention_parts.h"
#include "pagefuse/passes/analysis/functions/number_ranges.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

class MatchReader {
 public:
  MatchReader(IndexingAnalysis& reader, Value* output) : reader_(reader), output_(output) {}

  absl::StatusOr<AttentionMatch> Read(const AxisSplits& splits) {
    PF_ASSIGN_OR_RETURN(match_.output, reader_.Whole(output_));
    for (const auto& [axis, fast] : splits) Split(axis, fast);
    if (match_.output.From("Attention")) {
      PF_RETURN_IF_ERROR(ReadAttentionOp(reader_, match_));
    } else {
      PF_RETURN_IF_ERROR(ReadSum());
    }
    return std::move(match_);
  }

 private:
  void Split(int axis, const Dim& fast) {
    const Dim length = (*output_->shape())[axis];
    const IndexSymbolPtr slow = reader_.NewAxis(length.FloorDiv(fast));
    const IndexSymbolPtr quick = reader_.NewAxis(fast);
    match_.output.at[axis] = IndexExpr::Of(slow).Times(fast) + IndexExpr::Of(quick);
  }

  absl::Status ReadSum() {
    ReadResult();
    const auto product = ProductOf(reader_, sum_of_products_);
    if (!product) return absl::NotFoundError("no sum of products");
    // Probabilities may stand on either side.
    for (const bool left : {true, false}) {
      Conditions kept;
      const auto side = KeptElement(reader_, left ? product->left : product->right, kept);
      if (!side.ok()) continue;
      Factors weights = FactorsOf(reader_, *side);
      TakeInverse(weights);
      for (size_t i = 0; i < weights.others.size(); ++i) {
        const std::optional<Element> scores = ScoresOf(weights.others[i], product->summed);
        if (!scores) continue;
        match_.n = product->summed;
        PF_ASSIGN_OR_RETURN(const Element value,
                            KeptElement(reader_, left ? product->right : product->left, kept));
        match_.value = FactorsOf(reader_, value);
        AddFactors(weights, i, match_.value);
        PF_RETURN_IF_ERROR(SetValueAxis());
        PF_RETURN_IF_ERROR(ReadScores(reader_, *scores, softmax_axis_, kept_keys_, match_));
        PF_RETURN_IF_ERROR(CheckKept(kept_keys_));
        return CheckKept(kept);
      }
    }
    return absl::NotFoundError("no softmax among the factors");
  }

  // The sum of products behind what a result may be: divided by the sum of the powers, 0 in rows
  // that see no key.
  void ReadResult() {
    Element result = reader_.Source(match_.output);
    if (result.From("Where")) {
      for (int side : {1, 2}) {
        if (reader_.Number(reader_.Operand(result, side)) != 0.0) continue;
        guard_ = reader_.Operand(result, 0);
        guard_keeps_ = side == 2;
        result = reader_.Operand(result, 3 - side);
        break;
      }
    }
    if (result.From("Div") && ReadSinkBehind(reader_.Operand(result, 1))) {
      result = reader_.Operand(result, 0);
    }
    if (result.From("Div") && !reader_.Number(reader_.Operand(result, 1))) {
      divisor_ = reader_.Operand(result, 1);
      result = reader_.Operand(result, 0);
    }
    if (result.From("Mul") && !divisor_) {
      for (int factor : {0, 1}) {
        const Element inverse = reader_.Operand(result, factor);
        if (!inverse.From("Reciprocal")) continue;
        divisor_ = reader_.Operand(inverse, 0);
        result = reader_.Operand(result, 1 - factor);
        break;
      }
    }
    sum_of_products_ = result;
  }

  // x * (1 / sum): the sum divides.
  void TakeInverse(Factors& weights) {
    inverse_.reset();
    if (divisor_) return;
    for (size_t i = 0; i < weights.others.size(); ++i) {
      if (!weights.others[i].From("Reciprocal")) continue;
      inverse_ = reader_.Operand(weights.others[i], 0);
      weights.others.erase(weights.others.begin() + static_cast<int64_t>(i));
      return;
    }
  }

  // 1 + exp(sink - log sum): a sum without its sink, divided by that, is one with it.
  bool ReadSinkBehind(const Element& divisor) {
    if (!divisor.From("Add")) return false;
    for (int side : {0, 1}) {
      const Element power = reader_.Operand(divisor, 1 - side);
      if (reader_.Number(reader_.Operand(divisor, side)) != 1.0 || !power.From("Exp")) continue;
      const Element difference = reader_.Operand(power, 0);
      if (!difference.From("Sub")) continue;
      sink_ = reader_.Operand(difference, 0);
      sink_logsum_ = reader_.Operand(difference, 1);
      return true;
    }
    return false;
  }

  // Nothing is hidden from the sum of products that the softmax sees.
  absl::Status CheckKept(const Conditions& kept) const {
    for (const IndexExpr& condition : kept) {
      const bool seen =
          std::any_of(match_.visible.begin(), match_.visible.end(),
                      [&](const IndexExpr& visible) { return visible.Key() == condition.Key(); });
      if (!seen) {
        return MatchFailure(*match_.output.value, ": weights, keys or values are 0 but where ",
                            condition.Key(), " >= 0, which the scores do not say");
      }
    }
    return absl::OkStatus();
  }

  // The axis of the output that runs along a value, the last one.
  absl::Status SetValueAxis() {
    match_.d = match_.output.at.back().symbol();
    if (match_.d) return absl::OkStatus();
    return MatchFailure(*match_.output.value, ": its last axis is no axis of values");
  }

  // The scores whose softmax over `n` the element is.
  std::optional<Element> ScoresOf(const Element& element, const IndexSymbolPtr& n) {
    // 0 where all keys are hidden.
    if (element.From("Where")) {
      const auto zero = reader_.Number(reader_.Operand(element, 1));
      const Element broken = reader_.Operand(element, 0);
      if (!zero || *zero != 0 || !broken.From("IsNaN")) return std::nullopt;
      (void)reader_.Operand(broken, 0);
      return ScoresOf(reader_.Operand(element, 2), n);
    }
    if (element.From("Exp")) {
      const std::optional<Element>& divisor = divisor_ ? divisor_ : inverse_;
      return divisor ? OfPowers(element, *divisor, n) : OfLogProbability(element, n);
    }
    if (divisor_ || inverse_) return std::nullopt;
    if (element.From("Softmax")) return guard_ || sink_ ? std::nullopt : OfSoftmax(element, n);
    if (!element.From("Div")) return std::nullopt;
    return OfPowers(reader_.Operand(element, 0), reader_.Operand(element, 1), n);
  }

  std::optional<Element> OfSoftmax(const Element& element, const IndexSymbolPtr& n) {
    const int rank = static_cast<int>(element.at.size());
    const auto axis = NormalAxis(IntOr(*element.producer(), "axis", -1), rank);
    if (!element.at[axis].Mentions(n->key)) return std::nullopt;
    softmax_axis_ = static_cast<int>(axis);
    return SameElement(element);
  }

  // exp(log softmax x).
  std::optional<Element> OfLogProbability(const Element& power, const IndexSymbolPtr& n) {
    WrittenSoftmax softmax(reader_);
    if (guard_ || sink_ || !softmax.ReadLogProbability(power, n)) return std::nullopt;
    softmax_axis_ = softmax.axis();
    return softmax.scores();
  }

  // exp(x - max x) / sum exp(x - max x).
  std::optional<Element> OfPowers(const Element& power, const Element& sum,
                                  const IndexSymbolPtr& n) {
    const auto softmax = std::make_shared<WrittenSoftmax>(reader_);
    if (!softmax->ReadPower(power, n) || !softmax->ReadSum(sum)) return std::nullopt;
    if (guard_) {
      const bool zero = guard_keeps_ ? softmax->IsFullRow(*guard_) : softmax->IsEmptyRow(*guard_);
      if (!zero) return std::nullopt;
    }
    softmax_axis_ = softmax->axis();
    match_.sink = softmax->sink();
    if (sink_) {
      WrittenSoftmax sums = *softmax;
      if (match_.sink || !sums.ReadLogSum(sink_logsum_)) return std::nullopt;
      match_.sink = sink_;
    }
    match_.softmax = softmax;
    return softmax->scores();
  }

  // The first operand, not yet followed to where it comes from: a sink may have been joined to it.
  std::optional<Element> SameElement(const Element& element) {
    (void)reader_.Operand(element, 0);
    return Element{element.producer()->input(0), element.at};
  }

  IndexingAnalysis& reader_;
  Value* output_;
  AttentionMatch match_;
  Element sum_of_products_;
  std::optional<Element> divisor_;  // behind the sum of products
  std::optional<Element> inverse_;  // of which the weights have the reciprocal
  std::optional<Element> sink_;     // of the divisor behind that, with the logarithm of the sum
  Element sink_logsum_;
  std::optional<Element> guard_;  // of rows that see no key
  bool guard_keeps_ = false;      // it is true in the other rows
  Conditions kept_keys_;          // where keys are not 0
  int softmax_axis_ = -1;
};

}  // namespace

std::vector<Node*> AttentionNodes(const Graph& graph) {
  const auto reads = [](const Node& node, std::string_view op) {
    return std::ranges::any_of(
        node.inputs(), [&](const Value* input) { return ProducerIf(input, op) != nullptr; });
  };
  std::vector<Node*> nodes = NodesOf(graph, [&](const Node& node) {
    const bool sum_of_products = node.Is("ReduceSum") && reads(node, "Mul");
    const bool inverse = node.Is("Mul") && reads(node, "Reciprocal");
    return sum_of_products || inverse ||
           IsAnyOf(node, {"MatMul", "Einsum", "Attention", "Div", "Where"});
  });
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

namespace {

// Numbers that hide keys are beyond all scores.
absl::Status CheckHides(const IndexingAnalysis& reader, const AttentionMatch& match) {
  if (std::isinf(reader.highest_hiding())) return absl::OkStatus();
  NumberRanges ranges(reader.contents());
  NumberRange keys = NumberRange::Between(match.key.number, match.key.number, 1);
  for (const Element& factor : match.key.others) keys = Product(keys, ranges.Of(factor.value));
  const auto count = match.e ? match.e->extent.constant() : std::nullopt;
  constexpr double kMostChannels = 1 << 16;
  const ScoreScale scale = {.count = count ? static_cast<double>(*count) : kMostChannels,
                            .scale = match.scale,
                            .softcap = match.softcap};
  const double low = HidingNumber(ScoresOf(ranges.Of(match.query.value), keys, scale));
  if (reader.highest_hiding() <= low) return absl::OkStatus();
  return MatchFailure(*match.output.value, ": ", reader.highest_hiding(),
                      " hides no key from scores that may be as low");
}

}  // namespace

absl::StatusOr<AttentionMatch> ReadAttention(IndexingAnalysis& reader, Value* output,
                                             const AxisSplits& split) {
  reader.HideFrom(kLowBesideSoftmax);
  PF_ASSIGN_OR_RETURN(AttentionMatch match, MatchReader(reader, output).Read(split));
  PF_RETURN_IF_ERROR(CheckHides(reader, match));
  return match;
}

absl::Status CheckNoBias(const AttentionMatch& match) {
  if (match.biases.empty()) return absl::OkStatus();
  return MatchFailure(*match.biases.front().element.value,
                      ": is added to the scores and is no mask");
}

namespace {

// Whatever reads the value, behind views, reads it in that type.
bool IsReadAs(const Value& value, DataType type) {
  return !value.is_output() && !value.uses().empty() &&
         std::all_of(value.uses().begin(), value.uses().end(), [type](const Use& use) {
           const Value* output = use.node->output(0);
           if (use.node->Is("Cast")) return output->dtype() == type;
           const bool moves = IsViewNode(*use.node) || use.node->Is("Transpose");
           return moves && use.index == 0 && IsReadAs(*output, type);
         });
}

}  // namespace

Element NarrowQuery(IndexingAnalysis& reader, const AttentionMatch& match) {
  if (!match.query.From("Cast")) return match.query;
  const Element narrow = reader.Operand(match.query, 0);
  return IsReadAs(*match.output.value, narrow.value->dtype()) ? narrow : match.query;
}

}  // namespace pagefuse
