// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/key_selection.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/infer/symbolic_arithmetic.h"
#include "pagefuse/passes/analysis/attention/logits_match.h"
#include "pagefuse/passes/analysis/indexing/layout.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/readers_text.h"

namespace pagefuse {
namespace {

using Kind = IndexSymbol::Kind;

absl::Status MatchFailure(const Element& element, std::string_view expected, std::string_view got) {
  return absl::FailedPreconditionError(StrCat("the choice of keys at \"", element.value->name(),
                                              "\": expected ", expected, ", got ", got));
}

std::string Text(const std::optional<double>& number) {
  return number ? StrCat(*number) : std::string("what is no constant");
}

std::string Text(const Element& element) { return StrCat("\"", element.value->name(), "\""); }

int RankOf(const Value& value) { return value.shape() ? value.shape()->rank() : 0; }

// What a mask of chosen keys is made of: elements at (b, s, t).
struct Choice {
  Element scatter;  // of the chosen places
  Element mask;     // where they are chosen
};

class SelectionReader {
 public:
  SelectionReader(GraphBuilder& builder, const SymbolicContents& contents)
      : builder_(builder), reader_(contents) {}

  absl::StatusOr<KeySelection> Read(Value* mask) {
    PF_ASSIGN_OR_RETURN(const Element whole, reader_.Whole(mask));
    if (whole.at.size() != 4) return absl::NotFoundError("the mask has no four axes");
    b_ = whole.at[0].symbol();
    s_ = whole.at[2].symbol();
    t_ = whole.at[3].symbol();
    if (!s_ || !t_) return absl::NotFoundError("the mask is of one query or key");
    PF_ASSIGN_OR_RETURN(const Choice choice, ReadChoice(reader_.Source(whole)));
    PF_ASSIGN_OR_RETURN(const Node* topk, ReadPlaces(choice.scatter));
    PF_ASSIGN_OR_RETURN(const Element scores, ReadMaskedScores(*topk, choice.mask));
    PF_ASSIGN_OR_RETURN(const LogitsMatch match, ReadIndexScores(reader_, scores, t_));
    PF_ASSIGN_OR_RETURN(KeySelection result, Build(choice.mask, match));
    PF_ASSIGN_OR_RETURN(result.most, MostChosen(reader_, *topk, t_->extent));
    return result;
  }

 private:
  absl::StatusOr<Choice> ReadChoice(const Element& mask) {
    if (mask.From("Where")) return ReadWhere(mask);
    if (mask.From("Add")) {
      for (int side : {0, 1}) {
        const Element scatter = reader_.Operand(mask, side);
        if (scatter.From("ScatterElements"))
          return ReadSum(scatter, reader_.Operand(mask, 1 - side));
      }
    }
    return absl::NotFoundError("the mask chooses no keys");
  }

  // Zeros among numbers that hide keys.
  absl::StatusOr<Choice> ReadSum(const Element& scatter, Element mask) {
    PF_RETURN_IF_ERROR(CheckShape(scatter));
    const auto others = reader_.Number(Data(scatter)), chosen = reader_.Number(Updates(scatter));
    if (chosen != 0 || !others || !HidesScore(*others)) {
      return MatchFailure(scatter, "zeros scattered among numbers that hide keys",
                          StrCat(Text(chosen), " among ", Text(others)));
    }
    return Choice{scatter, std::move(mask)};
  }

  absl::StatusOr<Choice> ReadWhere(const Element& mask) {
    Element condition = reader_.Operand(mask, 0);
    bool negated = false;
    while (condition.From("Not")) {
      condition = reader_.Operand(condition, 0);
      negated = !negated;
    }
    if (!condition.From("ScatterElements")) return absl::NotFoundError("no places are scattered");
    PF_RETURN_IF_ERROR(CheckShape(condition));
    const auto others = reader_.Number(Data(condition));
    const auto chosen = reader_.Number(Updates(condition));
    if (!others || !chosen || (*others != 0) == (*chosen != 0)) {
      return MatchFailure(condition, "one truth scattered among the other",
                          StrCat(Text(chosen), " among ", Text(others)));
    }
    const int kept = (*chosen != 0) != negated ? 1 : 2;
    const Element others_get = reader_.Operand(mask, 3 - kept);
    const auto hidden = reader_.Number(others_get);
    if (!hidden || !HidesScore(*hidden)) {
      return MatchFailure(mask, "a number that hides the keys that are not chosen",
                          hidden ? Text(hidden) : Text(others_get));
    }
    return Choice{condition, reader_.Operand(mask, kept)};
  }

  Element Data(const Element& scatter) const { return {scatter.producer()->input(0), scatter.at}; }
  Element Updates(const Element& scatter) {
    return {scatter.producer()->input(2), PlacesAt(scatter)};
  }
  // Behind a control flow shapes may be unknown.
  static absl::Status CheckShape(const Element& scatter) {
    const Value* places = scatter.producer()->input(1);
    if (places->shape() && places->shape()->rank() > 0) return absl::OkStatus();
    return MatchFailure(scatter, "places of a known shape", StrCat("\"", places->name(), "\""));
  }

  // Where the places along t stand that go to a row of `scatter`.
  std::vector<IndexExpr> PlacesAt(const Element& scatter) {
    if (!j_) j_ = reader_.NewAxis(scatter.producer()->input(1)->shape()->back(0));
    std::vector<IndexExpr> at = scatter.at;
    at.back() = IndexExpr::Of(j_);
    return at;
  }

  // The TopK whose places are scattered along t, each row's to its own.
  absl::StatusOr<const Node*> ReadPlaces(const Element& scatter) {
    const Node& node = *scatter.producer();
    const int64_t axis = IntOr(node, "axis", 0);
    const int scattered = RankOf(*scatter.value);
    if (NormalAxis(axis, scattered) != scattered - 1 || scatter.at.back().symbol() != t_) {
      return MatchFailure(
          scatter, "places along the keys of the attention, the last axis",
          StrCat("axis ", axis, " of length ",
                 scattered == 0 ? "?" : scatter.value->shape()->back(0).ToString()));
    }
    const auto reduction = node.StringAttribute("reduction", "none");
    if (reduction.value_or("") != "none") {
      return MatchFailure(scatter, "no reduction", StrCat("\"", reduction.value_or(""), "\""));
    }
    const IndexSymbolPtr place = reader_.ReadIndex({node.input(1), PlacesAt(scatter)}).symbol();
    const Node* topk = place && place->kind == Kind::kLoad ? place->tensor->producer() : nullptr;
    if (!topk || !topk->Is("TopK") || place->tensor->producer_index() != 1) {
      return MatchFailure(scatter, "the places that TopK gave",
                          StrCat("\"", node.input(1)->name(), "\""));
    }
    const int rank = static_cast<int>(place->args.size());
    const int64_t chosen_axis = IntOr(*topk, "axis", -1), largest = IntOr(*topk, "largest", 1);
    if (NormalAxis(chosen_axis, rank) != rank - 1 || largest != 1) {
      return MatchFailure(
          scatter, "the largest scores along the last axis",
          StrCat("axis ", chosen_axis, " and largest ", largest, " of ", topk->Description()));
    }
    top_row_ = place->args;
    if (top_row_.back().Key() != IndexExpr::Of(j_).Key()) {
      return MatchFailure(scatter, "places in the order that TopK gave them",
                          StrCat("those at ", top_row_.back().Key()));
    }
    top_row_.back() = IndexExpr::Of(t_);
    return topk;
  }

  // The scores that TopK chooses among, without the mask that both have.
  absl::StatusOr<Element> ReadMaskedScores(const Node& topk, const Element& mask) {
    const Element masked = reader_.Source({topk.input(0), top_row_});
    const auto& shape = topk.input(0)->shape();
    if (!shape || !ProvablyEqual(shape->back(0), t_->extent)) {
      return MatchFailure(
          masked, StrCat("as many scores as the attention has keys, ", t_->extent.ToString()),
          shape ? shape->back(0).ToString() : std::string("an unknown number"));
    }
    if (masked.From("Add")) {
      for (int side : {0, 1}) {
        if (HidesTheSame(reader_.Operand(masked, side), mask)) {
          return reader_.Operand(masked, 1 - side);
        }
      }
    }
    return MatchFailure(
        masked, StrCat("scores to which ", Text(mask), ", the mask of the attention, is added"),
        StrCat(masked.producer() ? masked.producer()->Description() : Text(masked)));
  }

  bool HidesTheSame(const Element& a, const Element& b) {
    if (a.Key() == b.Key()) return true;
    const auto keys = [&](const Element& mask) -> std::optional<std::vector<std::string>> {
      const absl::StatusOr<Conditions> conditions = reader_.ReadHiding(mask);
      if (!conditions.ok()) return std::nullopt;
      std::vector<std::string> result;
      for (const IndexExpr& condition : *conditions) result.push_back(condition.Key());
      std::ranges::sort(result);
      return result;
    };
    const auto of_a = keys(a);
    return of_a && of_a == keys(b);
  }

  AxisSymbols Batch() const { return b_ ? AxisSymbols{b_} : AxisSymbols{}; }

  absl::StatusOr<KeySelection> Build(const Element& mask, const LogitsMatch& match) {
    if (!(match.number > 0)) {
      return MatchFailure(match.output, "scores of a factor above 0", StrCat(match.number));
    }
    if (!match.key_factors.empty()) {
      return MatchFailure(match.output, "keys without scales",
                          StrCat("the factor ", Text(match.key_factors[0])));
    }
    const auto heads = match.h->extent.constant(), size = match.d->extent.constant();
    if (!heads || !size) {
      return MatchFailure(match.output, "heads of known number and size",
                          StrCat(match.h->extent.ToString(), " of ", match.d->extent.ToString()));
    }
    // Sizes of what is kept are not read off the mask, which goes away.
    Layout layout(builder_, {match.query.value, match.key.value});
    Layout mask_arranger(builder_, {mask.value});
    KeySelection result{.heads = *heads, .size = *size};
    const AxisSymbols masked = Mentions(mask, b_) ? Batch() : AxisSymbols{};
    PF_ASSIGN_OR_RETURN(result.mask, mask_arranger.Gathered(mask, {masked, {}, {s_}, {t_}}));
    PF_ASSIGN_OR_RETURN(result.query,
                        layout.GatheredPart(match.query, {Batch(), {s_}, {match.h}, {match.d}}));
    PF_ASSIGN_OR_RETURN(result.weights, Weights(layout, match));
    PF_RETURN_IF_ERROR(BuildKey(layout, match, result));
    return result;
  }

  static bool Mentions(const Element& element, const IndexSymbolPtr& symbol) {
    return symbol && std::ranges::any_of(element.at, [&](const IndexExpr& index) {
             return index.Mentions(symbol->key);
           });
  }

  absl::StatusOr<Value*> Weights(Layout& layout, const LogitsMatch& match) {
    Value* weights = nullptr;
    for (const Element& factor : match.row_factors) {
      PF_ASSIGN_OR_RETURN(Value * here, layout.GatheredPart(factor, {Batch(), {s_}, {match.h}}));
      weights = weights ? builder_.Add("Mul", {weights, here}) : here;
    }
    if (!weights) return MatchFailure(match.output, "weights of the heads", "none");
    if (match.number == 1) return weights;
    return builder_.Add(
        "Mul", {weights, builder_.Float(static_cast<float>(match.number), match.weight_type())});
  }

  // Keys [b, t, d] are those of the past and the new ones, or new ones alone.
  absl::Status BuildKey(Layout& layout, const LogitsMatch& match, KeySelection& result) {
    Element key = match.key;
    const Node* join = key.producer();
    if (join && join->Is("Concat") && join->num_inputs() == 2 && join->input(0)->is_input() &&
        !join->input(0)->initializer()) {
      const int axis =
          static_cast<int>(NormalAxis(IntOr(*join, "axis", 0), static_cast<int>(key.at.size())));
      if (axis != 1 || key.at.size() != 3 || key.at[1].symbol() != t_) {
        return MatchFailure(key, "keys [B, T, D] joined along axis 1", StrCat("axis ", axis));
      }
      if (key.value->uses().size() != 1) {
        return MatchFailure(key, "keys that the scores alone read", ReadersText(*key.value));
      }
      result.past = join->input(0);
      result.keys = key.value;
      key.value = join->input(1);
    }
    for (IndexExpr& index : key.at) index = Renamed(index, t_, s_);
    PF_ASSIGN_OR_RETURN(result.key, layout.GatheredPart(key, {Batch(), {s_}, {match.d}}));
    return absl::OkStatus();
  }

  GraphBuilder& builder_;
  IndexingAnalysis reader_;
  IndexSymbolPtr b_, s_, t_;        // sequence, query, key
  IndexSymbolPtr j_;                // rank of a chosen key
  std::vector<IndexExpr> top_row_;  // of the scores, at (b, s, t)
};

}  // namespace

namespace {

// The number of what is chosen, of all where these are fewer; nullopt if it is no constant.
std::optional<int64_t> ConstantNumber(const IndexExpr& k, const Dim& all) {
  if (const auto number = k.number()) return number;
  if (k.is_constant()) {
    if (const auto number = NumberInMin(k.constant(), all)) return number;
  }
  const IndexSymbolPtr least = k.symbol();
  if (!least || least->kind != Kind::kMin || least->args.size() != 2) return std::nullopt;
  for (int side : {0, 1}) {
    const auto number = least->args[side].number();
    const IndexExpr& other = least->args[1 - side];
    if (number && other.is_constant() && ProvablyEqual(other.constant(), all)) return number;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<int64_t> MostChosen(IndexingAnalysis& reader, const Node& topk, const Dim& all) {
  const IndexExpr k = reader.ReadIndex({topk.input(1), {IndexExpr(0)}});
  const auto number = ConstantNumber(k, all);
  if (number && *number > 0) return *number;
  // Where none is chosen, all are hidden alike, which is to see all of them.
  if (number) return absl::FailedPreconditionError(StrCat(topk.Description(), " chooses no key"));
  return absl::FailedPreconditionError(StrCat("the number of keys that ", topk.Description(),
                                              " chooses is no constant, nor all keys if that "
                                              "is less: got ",
                                              k.Key()));
}

absl::StatusOr<KeySelection> ReadKeySelection(GraphBuilder& builder, Value* mask,
                                              const SymbolicContents& contents) {
  return SelectionReader(builder, contents).Read(mask);
}

}  // namespace pagefuse
