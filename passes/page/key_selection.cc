#include "pagefuse/passes/page/key_selection.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/symbolic_arithmetic.h"
#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/readers_text.h"
#include "pagefuse/passes/words/arrange.h"
#include "pagefuse/passes/words/logits_site.h"

namespace pagefuse {
namespace {

using Kind = IndexAtom::Kind;

absl::Status Refused(const Element& element, std::string_view expected, std::string_view got) {
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
    b_ = whole.at[0].atom();
    s_ = whole.at[2].atom();
    t_ = whole.at[3].atom();
    if (!s_ || !t_) return absl::NotFoundError("the mask is of one query or key");
    PF_ASSIGN_OR_RETURN(const Choice choice, ReadChoice(reader_.Source(whole)));
    PF_ASSIGN_OR_RETURN(const Node* topk, ReadPlaces(choice.scatter));
    PF_ASSIGN_OR_RETURN(const Element scores, ReadMaskedScores(*topk, choice.mask));
    PF_ASSIGN_OR_RETURN(const LogitsSite site, ReadIndexScores(reader_, scores, t_));
    PF_ASSIGN_OR_RETURN(KeySelection result, Build(choice.mask, site));
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
    const auto others = reader_.Number(Data(scatter)), chosen = reader_.Number(Updates(scatter));
    if (chosen != 0 || !others || !HidesScore(*others)) {
      return Refused(scatter, "zeros scattered among numbers that hide keys",
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
    const auto others = reader_.Number(Data(condition));
    const auto chosen = reader_.Number(Updates(condition));
    if (!others || !chosen || (*others != 0) == (*chosen != 0)) {
      return Refused(condition, "one truth scattered among the other",
                     StrCat(Text(chosen), " among ", Text(others)));
    }
    const int kept = (*chosen != 0) != negated ? 1 : 2;
    const Element others_get = reader_.Operand(mask, 3 - kept);
    const auto hidden = reader_.Number(others_get);
    if (!hidden || !HidesScore(*hidden)) {
      return Refused(mask, "a number that hides the keys that are not chosen",
                     hidden ? Text(hidden) : Text(others_get));
    }
    return Choice{condition, reader_.Operand(mask, kept)};
  }

  Element Data(const Element& scatter) const { return {scatter.producer()->input(0), scatter.at}; }
  Element Updates(const Element& scatter) {
    return {scatter.producer()->input(2), PlacesAt(scatter)};
  }
  // Where the places along t stand that go to a row of `scatter`.
  std::vector<IndexForm> PlacesAt(const Element& scatter) {
    if (!j_) j_ = reader_.NewAxis(scatter.producer()->input(1)->shape()->back(0));
    std::vector<IndexForm> at = scatter.at;
    at.back() = IndexForm::Of(j_);
    return at;
  }

  // The TopK whose places are scattered along t, each row's to its own.
  absl::StatusOr<const Node*> ReadPlaces(const Element& scatter) {
    const Node& node = *scatter.producer();
    const int64_t axis = IntOr(node, "axis", 0);
    const int scattered = RankOf(*scatter.value);
    if (NormalAxis(axis, scattered) != scattered - 1 || scatter.at.back().atom() != t_) {
      return Refused(scatter, "places along the keys of the attention, the last axis",
                     StrCat("axis ", axis, " of length ",
                            scattered == 0 ? "?" : scatter.value->shape()->back(0).ToString()));
    }
    const auto reduction = node.StringAttribute("reduction", "none");
    if (reduction.value_or("") != "none") {
      return Refused(scatter, "no reduction", StrCat("\"", reduction.value_or(""), "\""));
    }
    const AtomPtr place = reader_.ReadIndex({node.input(1), PlacesAt(scatter)}).atom();
    const Node* topk = place && place->kind == Kind::kLoad ? place->tensor->producer() : nullptr;
    if (!topk || !topk->Is("TopK") || place->tensor->producer_index() != 1) {
      return Refused(scatter, "the places that TopK gave",
                     StrCat("\"", node.input(1)->name(), "\""));
    }
    const int rank = static_cast<int>(place->args.size());
    const int64_t chosen_axis = IntOr(*topk, "axis", -1), largest = IntOr(*topk, "largest", 1);
    if (NormalAxis(chosen_axis, rank) != rank - 1 || largest != 1) {
      return Refused(
          scatter, "the largest scores along the last axis",
          StrCat("axis ", chosen_axis, " and largest ", largest, " of ", topk->Description()));
    }
    top_row_ = place->args;
    if (top_row_.back().Key() != IndexForm::Of(j_).Key()) {
      return Refused(scatter, "places in the order that TopK gave them",
                     StrCat("those at ", top_row_.back().Key()));
    }
    top_row_.back() = IndexForm::Of(t_);
    return topk;
  }

  // The scores that TopK chooses among, without the mask that both have.
  absl::StatusOr<Element> ReadMaskedScores(const Node& topk, const Element& mask) {
    const Element masked = reader_.Source({topk.input(0), top_row_});
    const auto& shape = topk.input(0)->shape();
    if (!shape || !ProvablyEqual(shape->back(0), t_->extent)) {
      return Refused(masked,
                     StrCat("as many scores as the attention has keys, ", t_->extent.ToString()),
                     shape ? shape->back(0).ToString() : std::string("an unknown number"));
    }
    if (masked.From("Add")) {
      for (int side : {0, 1}) {
        if (HidesTheSame(reader_.Operand(masked, side), mask)) {
          return reader_.Operand(masked, 1 - side);
        }
      }
    }
    return Refused(masked,
                   StrCat("scores to which ", Text(mask), ", the mask of the attention, is added"),
                   StrCat(masked.producer() ? masked.producer()->Description() : Text(masked)));
  }

  bool HidesTheSame(const Element& a, const Element& b) {
    if (a.Key() == b.Key()) return true;
    const auto keys = [&](const Element& mask) -> std::optional<std::vector<std::string>> {
      const absl::StatusOr<Conditions> conditions = reader_.ReadHiding(mask);
      if (!conditions.ok()) return std::nullopt;
      std::vector<std::string> result;
      for (const IndexForm& condition : *conditions) result.push_back(condition.Key());
      std::ranges::sort(result);
      return result;
    };
    const auto of_a = keys(a);
    return of_a && of_a == keys(b);
  }

  AxisAtoms Batch() const { return b_ ? AxisAtoms{b_} : AxisAtoms{}; }

  absl::StatusOr<KeySelection> Build(const Element& mask, const LogitsSite& site) {
    if (!(site.number > 0)) {
      return Refused(site.output, "scores of a factor above 0", StrCat(site.number));
    }
    if (!site.key_factors.empty()) {
      return Refused(site.output, "keys without scales",
                     StrCat("the factor ", Text(site.key_factors[0])));
    }
    const auto heads = site.h->extent.constant(), size = site.d->extent.constant();
    if (!heads || !size) {
      return Refused(site.output, "heads of known number and size",
                     StrCat(site.h->extent.ToString(), " of ", site.d->extent.ToString()));
    }
    // Sizes of what is kept are not read off the mask, which goes away.
    Arranger arranger(builder_, {site.query.value, site.key.value});
    Arranger mask_arranger(builder_, {mask.value});
    KeySelection result{.heads = *heads, .size = *size};
    const AxisAtoms masked = Mentions(mask, b_) ? Batch() : AxisAtoms{};
    PF_ASSIGN_OR_RETURN(result.mask, mask_arranger.Gathered(mask, {masked, {}, {s_}, {t_}}));
    PF_ASSIGN_OR_RETURN(result.query,
                        arranger.GatheredPart(site.query, {Batch(), {s_}, {site.h}, {site.d}}));
    PF_ASSIGN_OR_RETURN(result.weights, Weights(arranger, site));
    PF_RETURN_IF_ERROR(BuildKey(arranger, site, result));
    return result;
  }

  static bool Mentions(const Element& element, const AtomPtr& atom) {
    return atom && std::ranges::any_of(element.at, [&](const IndexForm& index) {
             return index.Mentions(atom->key);
           });
  }

  absl::StatusOr<Value*> Weights(Arranger& arranger, const LogitsSite& site) {
    Value* weights = nullptr;
    for (const Element& factor : site.row_factors) {
      PF_ASSIGN_OR_RETURN(Value * here, arranger.GatheredPart(factor, {Batch(), {s_}, {site.h}}));
      weights = weights ? builder_.Add("Mul", {weights, here}) : here;
    }
    if (!weights) return Refused(site.output, "weights of the heads", "none");
    if (site.number == 1) return weights;
    return builder_.Add("Mul", {weights, builder_.Float(static_cast<float>(site.number))});
  }

  // Keys [b, t, d] are those of the past and the new ones, or new ones alone.
  absl::Status BuildKey(Arranger& arranger, const LogitsSite& site, KeySelection& result) {
    Element key = site.key;
    const Node* join = key.producer();
    if (join && join->Is("Concat") && join->num_inputs() == 2 && join->input(0)->is_input() &&
        !join->input(0)->initializer()) {
      const int axis =
          static_cast<int>(NormalAxis(IntOr(*join, "axis", 0), static_cast<int>(key.at.size())));
      if (axis != 1 || key.at.size() != 3 || key.at[1].atom() != t_) {
        return Refused(key, "keys [B, T, D] joined along axis 1", StrCat("axis ", axis));
      }
      if (key.value->uses().size() != 1) {
        return Refused(key, "keys that the scores alone read", ReadersText(*key.value));
      }
      result.past = join->input(0);
      result.keys = key.value;
      key.value = join->input(1);
    }
    for (IndexForm& index : key.at) index = Renamed(index, t_, s_);
    PF_ASSIGN_OR_RETURN(result.key, arranger.GatheredPart(key, {Batch(), {s_}, {site.d}}));
    return absl::OkStatus();
  }

  GraphBuilder& builder_;
  ElementReader reader_;
  AtomPtr b_, s_, t_;               // sequence, query, key
  AtomPtr j_;                       // rank of a chosen key
  std::vector<IndexForm> top_row_;  // of the scores, at (b, s, t)
};

}  // namespace

absl::StatusOr<int64_t> MostChosen(ElementReader& reader, const Node& topk, const Dim& all) {
  const IndexForm k = reader.ReadIndex({topk.input(1), {IndexForm(0)}});
  if (const auto number = k.number()) return *number;
  if (k.is_constant()) {
    if (const auto number = NumberInMin(k.constant(), all)) return *number;
  }
  const AtomPtr least = k.atom();
  if (least && least->kind == Kind::kMin && least->args.size() == 2) {
    for (int side : {0, 1}) {
      const auto number = least->args[side].number();
      const IndexForm& other = least->args[1 - side];
      if (number && other.is_constant() && ProvablyEqual(other.constant(), all)) return *number;
    }
  }
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
