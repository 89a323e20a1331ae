#include "pagefuse/passes/page/closed_windows.h"

#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/page/key_selection.h"
#include "pagefuse/passes/words/arrange.h"
#include "pagefuse/passes/words/logits_site.h"

namespace pagefuse {
namespace {

using Kind = IndexAtom::Kind;

// What an integer is where conditions hold.
struct Piece {
  Conditions when;
  IndexForm form;
};

class ClosedWindowsReader {
 public:
  ClosedWindowsReader(GraphBuilder& builder, ElementReader& reader, const WindowMask& of)
      : builder_(builder), reader_(reader), of_(of) {}

  absl::StatusOr<ClosedWindows> Read(const Element& mask) {
    const Element source = reader_.Source(mask);
    ClosedWindows closed;
    if (source.From("ScatterElements")) {
      PF_ASSIGN_OR_RETURN(closed.choice, ReadChoice(source));
    } else {
      PF_ASSIGN_OR_RETURN(const Conditions seen, reader_.ReadHiding(source));
      PF_RETURN_IF_ERROR(CheckClosed(source, seen));
    }
    closed.positions = positions_;
    return closed;
  }

 private:
  absl::Status Refused(const Element& got, std::string_view expected) const {
    return Refused(got, expected, StrCat("\"", got.value->name(), "\""));
  }
  static absl::Status Refused(const Element& at, std::string_view expected, std::string_view got) {
    return absl::FailedPreconditionError(StrCat("the mask over windows at \"", at.value->name(),
                                                "\": expected ", expected, ", got ", got));
  }

  // The number of windows that are closed at a token's position, if `form` is that.
  bool IsClosedCount(const IndexForm& form) {
    const AtomPtr quotient = form.atom();
    if (!quotient || quotient->kind != Kind::kDiv ||
        !ProvablyEqual(quotient->divisor, Dim(of_.ratio))) {
      return false;
    }
    const IndexForm position = quotient->args[0] - IndexForm(1);
    if (position.Key() == of_.token.Key()) return true;
    const AtomPtr load = position.atom();
    const bool is_position = load && load->kind == Kind::kLoad && load->tensor->is_input() &&
                             !load->tensor->initializer() && load->args.size() == 2 &&
                             load->args[0].Key() == of_.batch.Key() &&
                             load->args[1].Key() == of_.token.Key() &&
                             (!positions_ || positions_ == load->tensor);
    if (is_position) positions_ = load->tensor;
    return is_position;
  }

  // j < closed windows, and no more.
  absl::Status CheckClosed(const Element& mask, const Conditions& seen) {
    const IndexForm window = IndexForm::Of(of_.window);
    if (seen.size() == 1 && IsClosedCount(seen[0] + window + IndexForm(1))) return absl::OkStatus();
    std::string got;
    for (const IndexForm& condition : seen) {
      StrAppend(&got, got.empty() ? "" : " and ", condition.Key(), " >= 0");
    }
    return Refused(
        mask, StrCat("windows j with j < (position + 1) / ", of_.ratio, ", those that are closed"),
        got.empty() ? "all windows" : got);
  }

  absl::StatusOr<WindowChoice> ReadChoice(const Element& scatter) {
    const Node& node = *scatter.producer();
    PF_RETURN_IF_ERROR(CheckScatter(scatter));
    PF_ASSIGN_OR_RETURN(const Node* topk, ReadPlaces(scatter));
    PF_ASSIGN_OR_RETURN(const Element scores, ReadVisibleScores(node, *topk));
    PF_ASSIGN_OR_RETURN(const LogitsSite site, ReadIndexScores(reader_, scores, of_.window));
    PF_ASSIGN_OR_RETURN(WindowChoice choice, Build(site));
    PF_ASSIGN_OR_RETURN(choice.most, MostChosen(reader_, *topk, of_.window->extent));
    return choice;
  }

  // Zeros along the windows among numbers that hide them.
  absl::Status CheckScatter(const Element& scatter) {
    const Node& node = *scatter.producer();
    const int rank = static_cast<int>(scatter.at.size());
    const bool along = NormalAxis(IntOr(node, "axis", 0), rank) == rank - 1 &&
                       scatter.at.back().Key() == IndexForm::Of(of_.window).Key() &&
                       StringOr(node, "reduction", "none") == "none";
    if (!along) return Refused(scatter, "places along the windows, the last axis");
    place_ = reader_.NewAxis(node.input(1)->shape()->back(0));
    std::vector<IndexForm> at = scatter.at;
    at.back() = IndexForm::Of(place_);
    const auto others = reader_.Number({node.input(0), scatter.at});
    const auto chosen = reader_.Number({node.input(2), at});
    if (chosen == 0 && others && HidesScore(*others)) return absl::OkStatus();
    return Refused(scatter, "zeros scattered among numbers that hide windows",
                   chosen ? StrCat(*chosen) : std::string("what is no constant"));
  }

  // The TopK of which all places that are closed windows are scattered, and no others.
  absl::StatusOr<const Node*> ReadPlaces(const Element& scatter) {
    const Node& node = *scatter.producer();
    Element places{node.input(1), scatter.at};
    places.at.back() = IndexForm::Of(place_);
    PF_ASSIGN_OR_RETURN(const std::vector<Piece> pieces, PiecesOf(places));
    if (!topk_) return Refused(scatter, "places that TopK gave");
    const IndexForm place = IndexForm::Of(chosen_);
    bool kept = false;
    for (const Piece& piece : pieces) {
      if (piece.form.Key() == place.Key()) {
        const bool closed =
            piece.when.size() == 1 && IsClosedCount(piece.when[0] + place + IndexForm(1));
        if (!closed) return Refused(scatter, "chosen windows only where they are closed");
        kept = true;
        continue;
      }
      // Behind the last window.
      const Dim behind = (piece.form - IndexForm(of_.window->extent)).Lower();
      if (behind.known() && ProvablyNotNegative(behind)) continue;
      return Refused(scatter, "chosen windows, and what lies behind the last one",
                     piece.form.Key());
    }
    if (!kept) return Refused(scatter, "chosen windows");
    return topk_;
  }

  // An integer by cases: choices are followed as far as comparisons are between such integers.
  absl::StatusOr<std::vector<Piece>> PiecesOf(const Element& unresolved) {
    const Element element = reader_.Source(unresolved);
    if (element.From("Cast") && element.producer()->input(0)->dtype() != DataType::kBool) {
      return PiecesOf(reader_.Operand(element, 0));
    }
    if (element.From("Add") || element.From("Sub")) return PiecesOfSum(element);
    if (!element.From("Where")) return std::vector<Piece>{{{}, FormOf(element)}};
    std::vector<Piece> result;
    PF_ASSIGN_OR_RETURN(const auto truths, TruthsOf(reader_.Operand(element, 0)));
    for (const auto& [truth, when] : truths) {
      PF_ASSIGN_OR_RETURN(const auto branch, PiecesOf(reader_.Operand(element, truth ? 1 : 2)));
      for (const Piece& piece : branch) {
        Conditions both = when;
        if (!Join(both, piece.when)) continue;
        result.push_back({std::move(both), piece.form});
      }
    }
    return result;
  }

  absl::StatusOr<std::vector<Piece>> PiecesOfSum(const Element& sum) {
    PF_ASSIGN_OR_RETURN(const auto first, PiecesOf(reader_.Operand(sum, 0)));
    PF_ASSIGN_OR_RETURN(const auto second, PiecesOf(reader_.Operand(sum, 1)));
    // Of a quotient it knows what corrects it.
    if (first.size() == 1 && second.size() == 1 && !IsChosen(first[0]) && !IsChosen(second[0])) {
      return std::vector<Piece>{{{}, FormOf(sum)}};
    }
    std::vector<Piece> result;
    for (const Piece& a : first) {
      for (const Piece& b : second) {
        Conditions both = a.when;
        if (!Join(both, b.when)) continue;
        result.push_back({std::move(both), sum.From("Sub") ? a.form - b.form : a.form + b.form});
      }
    }
    return result;
  }

  bool IsChosen(const Piece& piece) const {
    return chosen_ != nullptr && piece.form.Mentions(chosen_->key);
  }

  // A place that TopK gave is a window.
  IndexForm FormOf(const Element& element) {
    const IndexForm form = reader_.ReadIndex(element);
    const AtomPtr load = form.atom();
    const Node* topk = load && load->kind == Kind::kLoad ? load->tensor->producer() : nullptr;
    if (!topk || !topk->Is("TopK") || load->tensor->producer_index() != 1) return form;
    if (topk_ && (topk_ != topk || Element{load->tensor, load->args}.Key() != chosen_at_)) {
      return form;
    }
    if (!topk_) {
      topk_ = topk;
      chosen_at_ = Element{load->tensor, load->args}.Key();
      row_ = load->args;
      const auto& scores = topk->input(0)->shape();
      chosen_ = reader_.NewAxis(scores ? scores->back(0) : Dim());
    }
    return IndexForm::Of(chosen_);
  }

  // When a comparison of integers holds and when it does not.
  using Truths = std::vector<std::pair<bool, Conditions>>;
  absl::StatusOr<Truths> TruthsOf(const Element& comparison) {
    const bool less = comparison.From("Less") || comparison.From("LessOrEqual");
    const bool greater = comparison.From("Greater") || comparison.From("GreaterOrEqual");
    if (!less && !greater) return Refused(comparison, "a comparison of places");
    const int strict = comparison.From("Less") || comparison.From("Greater") ? 1 : 0;
    PF_ASSIGN_OR_RETURN(const auto larger, PiecesOf(reader_.Operand(comparison, less ? 1 : 0)));
    PF_ASSIGN_OR_RETURN(const auto smaller, PiecesOf(reader_.Operand(comparison, less ? 0 : 1)));
    Truths truths;
    for (const Piece& a : larger) {
      for (const Piece& b : smaller) {
        Conditions when = a.when;
        if (!Join(when, b.when)) continue;
        const IndexForm gap = a.form - b.form - IndexForm(strict);
        AddTruth(when, gap, true, truths);
        AddTruth(when, gap.Times(Dim(-1)) - IndexForm(1), false, truths);
      }
    }
    return truths;
  }

  // Where `condition` cannot fail it is left out; where it cannot hold there is no such case.
  static void AddTruth(const Conditions& when, const IndexForm& condition, bool truth,
                       Truths& truths) {
    Conditions all = when;
    if (Join(all, {condition})) truths.emplace_back(truth, std::move(all));
  }

  // False if no place meets all conditions.
  static bool Join(Conditions& all, const Conditions& more) {
    for (const IndexForm& condition : more) {
      const Dim least = condition.Lower(), most = condition.Upper();
      if (most.known() && ProvablyNotNegative(most * Dim(-1) - Dim(1))) return false;
      if (least.known() && ProvablyNotNegative(least)) continue;
      bool known = false;
      for (const IndexForm& other : all) {
        known = known || other.Key() == condition.Key();
        if (other.Key() == (condition.Times(Dim(-1)) - IndexForm(1)).Key()) return false;
      }
      if (!known) all.push_back(condition);
    }
    return true;
  }

  // The scores that TopK takes the largest of, where windows are closed.
  absl::StatusOr<Element> ReadVisibleScores(const Node& scatter, const Node& topk) {
    const int rank = static_cast<int>(row_.size());
    Element scores{topk.input(0), row_};
    if (NormalAxis(IntOr(topk, "axis", -1), rank) != rank - 1 || IntOr(topk, "largest", 1) != 1 ||
        row_.back().Key() != IndexForm::Of(place_).Key()) {
      return Refused(scores, StrCat("all places of the largest scores along the last axis of ",
                                    scatter.Description()));
    }
    scores.at.back() = IndexForm::Of(of_.window);
    const auto& shape = topk.input(0)->shape();
    if (!shape || !ProvablyEqual(shape->back(0), of_.window->extent)) {
      return Refused(scores, StrCat(of_.window->extent.ToString(), " scores, one for each window"),
                     shape ? shape->back(0).ToString() : std::string("an unknown number"));
    }
    scores = reader_.Source(scores);
    if (!scores.From("Where")) return Refused(scores, "scores that hide open windows");
    for (int hidden : {1, 2}) {
      const auto low = reader_.Number(reader_.Operand(scores, hidden));
      if (!low || !HidesScore(*low)) continue;
      const Element condition = reader_.Operand(scores, 0);
      PF_ASSIGN_OR_RETURN(const Conditions seen, hidden == 1 ? reader_.ReadNegation(condition)
                                                             : reader_.ReadConditions(condition));
      PF_RETURN_IF_ERROR(CheckClosed(scores, seen));
      return reader_.Operand(scores, 3 - hidden);
    }
    return Refused(scores, "a number that hides open windows");
  }

  AxisAtoms Axis(const IndexForm& index) const {
    const AtomPtr atom = index.atom();
    return atom ? AxisAtoms{atom} : AxisAtoms{};
  }

  absl::StatusOr<WindowChoice> Build(const LogitsSite& site) {
    if (!(site.number > 0)) return Refused(site.output, "scores of a factor above 0");
    if (!site.key_factors.empty()) return Refused(site.key_factors[0], "keys without scales");
    const auto heads = site.h->extent.constant(), size = site.d->extent.constant();
    if (!heads || !size) return Refused(site.output, "heads of known number and size");
    const AxisAtoms batch = Axis(of_.batch), token = Axis(of_.token);
    Arranger arranger(builder_, {site.query.value});
    WindowChoice choice{.heads = *heads};
    PF_ASSIGN_OR_RETURN(choice.query,
                        arranger.GatheredPart(site.query, {batch, token, {site.h}, {site.d}}));
    for (const Element& factor : site.row_factors) {
      PF_ASSIGN_OR_RETURN(Value * here, arranger.GatheredPart(factor, {batch, token, {site.h}}));
      choice.weights = choice.weights ? builder_.Add("Mul", {choice.weights, here}) : here;
    }
    if (!choice.weights) return Refused(site.output, "weights of the heads", "none");
    if (site.number != 1) {
      Value* number = builder_.Float(static_cast<float>(site.number));
      choice.weights = builder_.Add("Mul", {choice.weights, number});
    }
    PF_ASSIGN_OR_RETURN(choice.keys,
                        ReadCompressedRows(reader_, {site.key, of_.batch, of_.window, site.d}));
    if (choice.keys.ratio == of_.ratio) return choice;
    return Refused(site.key, StrCat("windows of ", of_.ratio, " tokens, as the attention has"),
                   StrCat(choice.keys.ratio));
  }

  GraphBuilder& builder_;
  ElementReader& reader_;
  const WindowMask& of_;
  AtomPtr place_;                     // rank of a chosen window
  const Value* positions_ = nullptr;  // of tokens
  const Node* topk_ = nullptr;        // that chose
  std::string chosen_at_;             // which of its places
  std::vector<IndexForm> row_;        // of those
  AtomPtr chosen_;                    // one of them
};

}  // namespace

absl::StatusOr<ClosedWindows> ReadClosedWindows(GraphBuilder& builder, ElementReader& reader,
                                                const Element& mask, const WindowMask& of) {
  return ClosedWindowsReader(builder, reader, of).Read(mask);
}

}  // namespace pagefuse
