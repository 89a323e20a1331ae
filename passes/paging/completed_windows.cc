// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/completed_windows.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/attention/logits_match.h"
#include "pagefuse/passes/analysis/indexing/layout.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/paging/key_selection.h"

namespace pagefuse {
namespace {

using Kind = IndexSymbol::Kind;

// What an integer is where conditions hold.
struct Piece {
  Conditions when;
  IndexExpr form;
};

class CompletedWindowsReader {
 public:
  CompletedWindowsReader(GraphBuilder& builder, IndexingAnalysis& reader, const WindowMask& of)
      : builder_(builder), reader_(reader), of_(of) {}

  absl::StatusOr<CompletedWindows> Read(const Element& mask) {
    const Element source = reader_.Source(mask);
    CompletedWindows closed;
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
  absl::Status MatchFailure(const Element& got, std::string_view expected) const {
    return MatchFailure(got, expected, StrCat("\"", got.value->name(), "\""));
  }
  static absl::Status MatchFailure(const Element& at, std::string_view expected,
                                   std::string_view got) {
    return absl::FailedPreconditionError(StrCat("the mask over windows at \"", at.value->name(),
                                                "\": expected ", expected, ", got ", got));
  }

  // The number of windows that are closed at a token's position, if `form` is that.
  bool IsClosedCount(const IndexExpr& form) {
    const IndexSymbolPtr quotient = form.symbol();
    if (!quotient || quotient->kind != Kind::kDiv ||
        !ProvablyEqual(quotient->divisor, Dim(of_.ratio))) {
      return false;
    }
    const IndexExpr position = quotient->args[0] - IndexExpr(1);
    if (position.Key() == of_.token.Key()) return true;
    const IndexSymbolPtr load = position.symbol();
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
    const IndexExpr window = IndexExpr::Of(of_.window);
    if (seen.size() == 1 && IsClosedCount(seen[0] + window + IndexExpr(1))) return absl::OkStatus();
    std::string got;
    for (const IndexExpr& condition : seen) {
      StrAppend(&got, got.empty() ? "" : " and ", condition.Key(), " >= 0");
    }
    return MatchFailure(
        mask, StrCat("windows j with j < (position + 1) / ", of_.ratio, ", those that are closed"),
        got.empty() ? "all windows" : got);
  }

  absl::StatusOr<WindowChoice> ReadChoice(const Element& scatter) {
    const Node& node = *scatter.producer();
    PF_RETURN_IF_ERROR(CheckScatter(scatter));
    PF_ASSIGN_OR_RETURN(const Node* topk, ReadPlaces(scatter));
    PF_ASSIGN_OR_RETURN(const Element scores, ReadVisibleScores(node, *topk));
    PF_ASSIGN_OR_RETURN(const LogitsMatch match, ReadIndexScores(reader_, scores, of_.window));
    PF_ASSIGN_OR_RETURN(WindowChoice choice, Build(match));
    PF_ASSIGN_OR_RETURN(choice.most, MostChosen(reader_, *topk, of_.window->extent));
    return choice;
  }

  // Zeros along the windows among numbers that hide them.
  absl::Status CheckScatter(const Element& scatter) {
    const Node& node = *scatter.producer();
    const int rank = static_cast<int>(scatter.at.size());
    const bool along = NormalAxis(IntOr(node, "axis", 0), rank) == rank - 1 &&
                       scatter.at.back().Key() == IndexExpr::Of(of_.window).Key() &&
                       StringOr(node, "reduction", "none") == "none";
    if (!along) return MatchFailure(scatter, "places along the windows, the last axis");
    place_ = reader_.NewAxis(node.input(1)->shape()->back(0));
    std::vector<IndexExpr> at = scatter.at;
    at.back() = IndexExpr::Of(place_);
    const auto others = reader_.Number({node.input(0), scatter.at});
    const auto chosen = reader_.Number({node.input(2), at});
    if (chosen == 0 && others && HidesScore(*others)) return absl::OkStatus();
    return MatchFailure(scatter, "zeros scattered among numbers that hide windows",
                        chosen ? StrCat(*chosen) : std::string("what is no constant"));
  }

  // The TopK of which all places that are closed windows are scattered, and no others.
  absl::StatusOr<const Node*> ReadPlaces(const Element& scatter) {
    const Node& node = *scatter.producer();
    Element places{node.input(1), scatter.at};
    places.at.back() = IndexExpr::Of(place_);
    PF_ASSIGN_OR_RETURN(const std::vector<Piece> pieces, PiecesOf(places));
    if (!topk_) return MatchFailure(scatter, "places that TopK gave");
    const IndexExpr place = IndexExpr::Of(chosen_);
    bool kept = false;
    for (const Piece& piece : pieces) {
      if (piece.form.Key() == place.Key()) {
        const bool closed =
            piece.when.size() == 1 && IsClosedCount(piece.when[0] + place + IndexExpr(1));
        if (!closed) return MatchFailure(scatter, "chosen windows only where they are closed");
        kept = true;
        continue;
      }
      // Behind the last window.
      const Dim behind = (piece.form - IndexExpr(of_.window->extent)).Lower();
      if (behind.known() && ProvablyNotNegative(behind)) continue;
      return MatchFailure(scatter, "chosen windows, and what lies behind the last one",
                          piece.form.Key());
    }
    if (!kept) return MatchFailure(scatter, "chosen windows");
    return topk_;
  }

  // An integer by cases: choices are followed as far as comparisons are between such integers.
  absl::StatusOr<std::vector<Piece>> PiecesOf(const Element& unresolved) {
    const Element element = reader_.Source(unresolved);
    constexpr int kMostElements = 1024;
    if (++elements_ > kMostElements) return MatchFailure(element, "fewer sums of choices");
    if (element.From("Cast") && element.producer()->input(0)->dtype() != DataType::kBool) {
      PF_ASSIGN_OR_RETURN(auto pieces, PiecesOf(reader_.Operand(element, 0)));
      const bool exact = std::ranges::all_of(pieces, [&](const Piece& piece) {
        return reader_.ComesOut(element.value->dtype(), piece.form);
      });
      if (!exact) return std::vector<Piece>{{{}, FormOf(element)}};
      return pieces;
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
    if (result.size() > kMostPieces) return MatchFailure(element, "fewer choices");
    return result;
  }

  absl::StatusOr<std::vector<Piece>> PiecesOfSum(const Element& sum) {
    PF_ASSIGN_OR_RETURN(const auto first, PiecesOf(reader_.Operand(sum, 0)));
    PF_ASSIGN_OR_RETURN(const auto second, PiecesOf(reader_.Operand(sum, 1)));
    // Of a quotient it knows what corrects it.
    if (first.size() == 1 && second.size() == 1 && !IsChosen(first[0]) && !IsChosen(second[0])) {
      return std::vector<Piece>{{{}, FormOf(sum)}};
    }
    if (first.size() * second.size() > kMostPieces) return MatchFailure(sum, "fewer choices");
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
  IndexExpr FormOf(const Element& element) {
    const IndexExpr form = reader_.ReadIndex(element);
    const IndexSymbolPtr load = form.symbol();
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
    return IndexExpr::Of(chosen_);
  }

  // When a comparison of integers holds and when it does not.
  using Truths = std::vector<std::pair<bool, Conditions>>;
  absl::StatusOr<Truths> TruthsOf(const Element& comparison) {
    const bool less = comparison.From("Less") || comparison.From("LessOrEqual");
    const bool greater = comparison.From("Greater") || comparison.From("GreaterOrEqual");
    if (!less && !greater) return MatchFailure(comparison, "a comparison of places");
    const int strict = comparison.From("Less") || comparison.From("Greater") ? 1 : 0;
    PF_ASSIGN_OR_RETURN(const auto larger, PiecesOf(reader_.Operand(comparison, less ? 1 : 0)));
    PF_ASSIGN_OR_RETURN(const auto smaller, PiecesOf(reader_.Operand(comparison, less ? 0 : 1)));
    if (larger.size() * smaller.size() > kMostPieces) {
      return MatchFailure(comparison, "fewer choices");
    }
    Truths truths;
    for (const Piece& a : larger) {
      for (const Piece& b : smaller) {
        Conditions when = a.when;
        if (!Join(when, b.when)) continue;
        const IndexExpr gap = a.form - b.form - IndexExpr(strict);
        AddTruth(when, gap, true, truths);
        AddTruth(when, gap.Times(Dim(-1)) - IndexExpr(1), false, truths);
      }
    }
    return truths;
  }

  // Where `condition` cannot fail it is left out; where it cannot hold there is no such case.
  static void AddTruth(const Conditions& when, const IndexExpr& condition, bool truth,
                       Truths& truths) {
    Conditions all = when;
    if (Join(all, {condition})) truths.emplace_back(truth, std::move(all));
  }

  // False if no place meets all conditions.
  static bool Join(Conditions& all, const Conditions& more) {
    for (const IndexExpr& condition : more) {
      const Dim least = condition.Lower(), most = condition.Upper();
      if (most.known() && ProvablyNotNegative(most * Dim(-1) - Dim(1))) return false;
      if (least.known() && ProvablyNotNegative(least)) continue;
      bool known = false;
      for (const IndexExpr& other : all) {
        known = known || other.Key() == condition.Key();
        if (other.Key() == (condition.Times(Dim(-1)) - IndexExpr(1)).Key()) return false;
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
        row_.back().Key() != IndexExpr::Of(place_).Key()) {
      return MatchFailure(scores, StrCat("all places of the largest scores along the last axis of ",
                                         scatter.Description()));
    }
    scores.at.back() = IndexExpr::Of(of_.window);
    const auto& shape = topk.input(0)->shape();
    if (!shape || !ProvablyEqual(shape->back(0), of_.window->extent)) {
      return MatchFailure(scores,
                          StrCat(of_.window->extent.ToString(), " scores, one for each window"),
                          shape ? shape->back(0).ToString() : std::string("an unknown number"));
    }
    scores = reader_.Source(scores);
    if (!scores.From("Where")) return MatchFailure(scores, "scores that hide open windows");
    for (int hidden : {1, 2}) {
      const auto low = reader_.Number(reader_.Operand(scores, hidden));
      if (!low || !HidesScore(*low)) continue;
      const Element condition = reader_.Operand(scores, 0);
      PF_ASSIGN_OR_RETURN(const Conditions seen, hidden == 1 ? reader_.ReadNegation(condition)
                                                             : reader_.ReadConditions(condition));
      PF_RETURN_IF_ERROR(CheckClosed(scores, seen));
      return reader_.Operand(scores, 3 - hidden);
    }
    return MatchFailure(scores, "a number that hides open windows");
  }

  absl::StatusOr<WindowChoice> Build(const LogitsMatch& match) {
    if (!(match.number > 0)) return MatchFailure(match.output, "scores of a factor above 0");
    if (!match.key_factors.empty())
      return MatchFailure(match.key_factors[0], "keys without scales");
    const auto heads = match.h->extent.constant(), size = match.d->extent.constant();
    if (!heads || !size) return MatchFailure(match.output, "heads of known number and size");
    const AxisSymbols batch = SymbolOf(of_.batch), token = SymbolOf(of_.token);
    Layout layout(builder_, {match.query.value});
    WindowChoice choice{.heads = *heads};
    PF_ASSIGN_OR_RETURN(choice.query,
                        layout.GatheredPart(match.query, {batch, token, {match.h}, {match.d}}));
    for (const Element& factor : match.row_factors) {
      PF_ASSIGN_OR_RETURN(Value * here, layout.GatheredPart(factor, {batch, token, {match.h}}));
      choice.weights = choice.weights ? builder_.Add("Mul", {choice.weights, here}) : here;
    }
    if (!choice.weights) return MatchFailure(match.output, "weights of the heads", "none");
    if (match.number != 1) {
      Value* number = builder_.Float(static_cast<float>(match.number), match.weight_type());
      choice.weights = builder_.Add("Mul", {choice.weights, number});
    }
    PF_ASSIGN_OR_RETURN(choice.keys,
                        ReadCompressedRows(reader_, {match.key, of_.batch, of_.window, match.d}));
    if (choice.keys.ratio == of_.ratio) return choice;
    return MatchFailure(match.key,
                        StrCat("windows of ", of_.ratio, " tokens, as the attention has"),
                        StrCat(choice.keys.ratio));
  }

  GraphBuilder& builder_;
  static constexpr size_t kMostPieces = 256;
  IndexingAnalysis& reader_;
  const WindowMask& of_;
  IndexSymbolPtr place_;              // rank of a chosen window
  const Value* positions_ = nullptr;  // of tokens
  const Node* topk_ = nullptr;        // that chose
  std::string chosen_at_;             // which of its places
  std::vector<IndexExpr> row_;        // of those
  int elements_ = 0;                  // that were read by cases
  IndexSymbolPtr chosen_;             // one of them
};

}  // namespace

absl::StatusOr<CompletedWindows> ReadCompletedWindows(GraphBuilder& builder,
                                                      IndexingAnalysis& reader, const Element& mask,
                                                      const WindowMask& of) {
  return CompletedWindowsReader(builder, reader, of).Read(mask);
}

}  // namespace pagefuse
