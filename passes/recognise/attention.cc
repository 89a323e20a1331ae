// SPDX-License-Identifier: Apache-2.0
// attention: scaled dot-product attention written out becomes Attention-23, with its mask as it is.
//
//   y = MatMul (Softmax (scale * q k^T + mask), v)    =>    y = Attention <scale> (q, k, v, mask)
//
// with a soft cap, the exporters' placements of the scale, and their guard against all-masked rows.
//
// The op joins batches, heads and masks by rules of its own, so each length is proved that numpy's
// broadcast would settle at run time: q, k and v have one batch, keys and values one length and as
// many heads as queries (or one for all), and the mask fits the scores without making them larger.
// A mask that may be one key wide is repeated first: from opset 24 on the op takes a short mask for
// one that hides the keys behind its end.
//
// The guard, Where(IsNaN(p), 0, p) on the probabilities p, goes on as Where(IsNaN(y), 0, y) on the
// result. Softmax makes a whole row NaN if one of its scores is NaN or inf, or all are -inf, and
// then both forms give a row of zeros: the guarded one because 0 times the values is 0, the fused
// one because each element of a NaN row of Attention is NaN, and rows that see nothing are 0. But a
// hidden key that is not finite makes a row NaN too, and Attention never looks at it: so a guard
// goes on only where keys are proved to be finite (number_ranges.h). A query that is not finite
// makes every score of its row so, the visible ones as well.
#include <algorithm>
#include <cmath>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/functions/number_ranges.h"
#include "pagefuse/passes/analysis/indexing/broadcast_proof.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/analysis/masks/mask_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/rewrite/rule.h"

namespace pagefuse {
namespace {

struct Part {
  std::string name;
  std::string lines;
};

// From q and k to `scaled`; scales stand elsewhere no longer (score_form.h).
std::vector<Part> Scores() {
  const std::string product = "kt = Transpose <perm = [0, 1, 3, 2]> (k)  raw = MatMul (q, kt)  ";
  return {{"scaled", product + "factor = Constant <value_float: float = @factor> ()  "
                               "scaled = Mul (raw, factor)"},
          {"unscaled", product + "scaled = Identity (raw)"}};
}

std::vector<Part> Caps() {
  return {{"", "capped = Identity (scaled)"},
          {"softcap",
           "cap = Constant <value_float: float = @softcap> ()  divided = Div (scaled, cap)  "
           "bounded = Tanh (divided)  capped = Mul (bounded, cap)"}};
}

// How hidden keys are taken out of the scores.
enum class Masking { kAdded, kVisible, kHidden, kNone };

std::string MaskLines(Masking masking) {
  const std::string low = "low = Constant <value_float: float = @low> ()  ";
  switch (masking) {
    case Masking::kAdded:
      return "masked = Add (capped, mask)";
    case Masking::kVisible:
      return low + "masked = Where (mask, capped, low)";
    case Masking::kHidden:
      return low + "masked = Where (mask, low, capped)";
    case Masking::kNone:
      break;
  }
  return "masked = Identity (capped)";
}

std::vector<Part> Softmaxes() {
  return {{"", "p = Softmax <axis = -1> (masked)"},
          {"guarded",
           "soft = Softmax <axis = -1> (masked)  broken = IsNaN (soft)  "
           "zero = Constant <value_float: float = 0.0> ()  p = Where (broken, zero, soft)"}};
}

// A number that the pattern bound.
std::optional<float> BoundNumber(const Match& match, std::string_view name) {
  const auto it = match.attributes.find(name);
  const float* number =
      it == match.attributes.end() ? nullptr : std::get_if<float>(&it->second.value);
  return number ? std::optional<float>(*number) : std::nullopt;
}

// The Attention op scales q k^T by `scale`; whatever was not scaled in the form counts as 1.
absl::Status DeriveScale(Match& match) {
  const float scale = BoundNumber(match, "factor").value_or(1.0f);
  // c * tanh(x / c) is the same for -c.
  const std::optional<float> cap = BoundNumber(match, "softcap");
  if (cap && (*cap == 0 || !std::isfinite(*cap))) return MatchFailure(*cap, " is no soft cap");
  const float softcap = std::abs(cap.value_or(0.0f));
  match.attributes["scale"] = {.value = scale, .doc_string = {}, .unknown_fields = {}};
  match.attributes["softcap"] = {.value = softcap, .doc_string = {}, .unknown_fields = {}};
  return absl::OkStatus();
}

Condition HasHeads() {
  return {"q, k, v are [B, H, S, D]", [](const Match& match) -> absl::Status {
            for (std::string_view name : {"q", "k", "v"}) {
              const Value* value = match.value(name);
              if (!value->shape() || value->shape()->rank() != 4) {
                return MatchFailure("\"", name, "\" is not [B, H, S, D]");
              }
            }
            return absl::OkStatus();
          }};
}

enum Axis { kBatch, kHeads, kLength };

// MatMul would repeat one batch or head for all; the op repeats heads of both keys and values only.
Condition KeysFitQueries() {
  return {"k and v are [B, H or 1, L, D] to q", [](const Match& match) -> absl::Status {
            const Value* q = match.value("q");
            const Value* k = match.value("k");
            const Value* v = match.value("v");
            PF_RETURN_IF_ERROR(CheckSameLength({k, kBatch}, {q, kBatch}));
            PF_RETURN_IF_ERROR(CheckSameLength({v, kBatch}, {q, kBatch}));
            PF_RETURN_IF_ERROR(CheckRepeats({k, kHeads}, {q, kHeads}));
            PF_RETURN_IF_ERROR(CheckSameLength({v, kHeads}, {k, kHeads}));
            return CheckSameLength({v, kLength}, {k, kLength});
          }};
}

// The last axis is left to OverAllKeys: a mask wider than the keys would need as many values, which
// are as many as keys.
Condition MaskFitsScores() {
  return {"mask repeats to [B, H, S, L]", [](const Match& match) -> absl::Status {
            const Value* mask = match.value("mask");
            if (!mask->shape() || mask->shape()->rank() > 4) {
              return MatchFailure("\"mask\" has an unfit rank");
            }
            const int rank = mask->shape()->rank();
            for (int axis = std::max(0, 4 - rank); axis <= kLength; ++axis) {
              PF_RETURN_IF_ERROR(CheckRepeats({mask, axis - (4 - rank)}, {match.value("q"), axis}));
            }
            return absl::OkStatus();
          }};
}

// The mask, repeated if it may be one key wide.
Value* OverAllKeys(GraphBuilder& builder, const Match& match) {
  Value* mask = match.value("mask");
  Value* keys = match.value("k");
  if (Reaches(mask, 0, (*keys->shape())[kLength], *match.contents)) return mask;
  return builder.Add("Expand", {mask, builder.Size(keys, kLength)});
}

// See the head of the file.
Value* Guarded(GraphBuilder& builder, const Match& match, Value* y) {
  Value* zero = match.value("p")->producer()->input(1);
  return builder.Add("Where", {builder.Add("IsNaN", {y}), zero, y});
}

// The mask as Attention takes it. A query that sees no key takes the mean of all of them where the
// number for hidden keys is finite: so it is added then, which leaves it as it is.
Value* MaskOf(GraphBuilder& builder, const Match& match, Masking masking) {
  Value* mask = OverAllKeys(builder, match);
  const auto low = BoundNumber(match, "low");
  if (low && std::isfinite(*low)) {
    const DataType type = match.value("q")->dtype();
    Value* visible = builder.Float(0, type);
    Value* hidden = builder.Float(*low, type);
    if (masking == Masking::kHidden) std::swap(visible, hidden);
    return builder.Add("Where", {mask, visible, hidden});
  }
  return masking == Masking::kHidden ? builder.Add("Not", {mask}) : mask;
}

absl::StatusOr<std::vector<Value*>> FusedAttention(const Match& match, Graph& graph, Node* anchor,
                                                   Masking masking) {
  GraphBuilder builder(graph, anchor, anchor->output(0)->name());
  std::vector<Value*> inputs = {match.value("q"), match.value("k"), match.value("v")};
  if (match.value("mask")) inputs.push_back(MaskOf(builder, match, masking));
  Node* attention = builder.AddNode("", "Attention", std::move(inputs), 1);
  attention->name = anchor->name;
  for (const char* name : {"scale", "softcap"}) {
    attention->SetAttribute(name, match.attributes.find(name)->second);
  }
  Value* y = attention->output(0);
  if (!match.value("broken")) return std::vector<Value*>{y};
  y = Guarded(builder, match, y);
  if (!anchor->name.empty()) y->producer()->name = anchor->name + ".guard";
  return std::vector<Value*>{y};
}

// True if the mask shows every query a key, as one does that is causal and no more: the first.
bool ShowsEveryQueryAKey(const Match& match, Masking masking) {
  const absl::StatusOr<MaskForm> form = AnalyseMask(match.value("mask"), *match.contents);
  if (!form.ok() || form->padding) return false;
  if (masking == Masking::kVisible) {
    return form->upper && !form->lower && ProvablyNotNegative(*form->upper);
  }
  // Hidden from i + lower on.
  return form->lower && !form->upper && ProvablyNotNegative(*form->lower - Dim(1));
}

// What is chosen for hidden keys has no part in the softmax. Where all scores are hidden it has: a
// number that is not the lowest says less of them than the differences between scores.
absl::Status Hides(const Match& match, Masking masking) {
  const auto low = BoundNumber(match, "low");
  if (!low) return absl::OkStatus();
  if (!HidesBesideSoftmax(*low)) {
    return MatchFailure("a score of ", *low, " hides no key");
  }
  const int scores = masking == Masking::kVisible ? ports::Where::kTrue : ports::Where::kFalse;
  const Node* choice = match.value("masked")->producer();
  const double from = HidingNumber(NumberRanges(*match.contents).Of(choice->input(scores)));
  if (*low > from) {
    return MatchFailure("a score of ", *low,
                        " hides no key beside scores that may be as low: ", from, " would");
  }
  if (HidesScore(*low) || ShowsEveryQueryAKey(match, masking)) return absl::OkStatus();
  return MatchFailure("a score of ", *low, " hides no key from a query that may see none");
}

// See the head of the file.
absl::Status GuardSeesNoHiddenKeys(const Match& match) {
  if (!match.value("broken")) return absl::OkStatus();
  const Value& keys = *match.value("k");
  if (NumberRanges(*match.contents).Of(&keys).finite()) return absl::OkStatus();
  return MatchFailure(keys,
                      ", which is not proved to be finite: the guard against NaN would not "
                      "see hidden keys");
}

Rule AttentionRule(const std::string& name, Masking masking) {
  const bool masked = masking != Masking::kNone;
  Rule rule(name, masked ? "attention under a mask" : "attention without a mask");
  const std::string head = masked ? "(q, k, v, mask) => (y) { " : "(q, k, v) => (y) { ";
  for (const Part& score : Scores()) {
    for (const Part& cap : Caps()) {
      for (const Part& softmax : Softmaxes()) {
        rule.MatchText(StrCat(head, score.lines, "  ", cap.lines, "  ", MaskLines(masking), "  ",
                              softmax.lines, "  y = MatMul (p, v) }"),
                       StrCat(score.name, " ", cap.name, " ", softmax.name));
      }
    }
  }
  rule.Where(HasHeads()).Where(KeysFitQueries());
  if (masked) rule.Where(MaskFitsScores());
  return rule
      .Where("hidden scores are low",
             [masking](const Match& match) { return Hides(match, masking); })
      .Where("a guard against NaN sees what the op sees", GuardSeesNoHiddenKeys)
      .Derive(DeriveScale)
      .ReplaceWith([masking](const Match& match, Graph& graph, Node* anchor) {
        return FusedAttention(match, graph, anchor, masking);
      });
}

}  // namespace

std::unique_ptr<Pass> RecogniseAttention() {
  std::vector<Rule> rules;
  rules.push_back(AttentionRule("attention", Masking::kAdded));
  rules.push_back(AttentionRule("attention-visible", Masking::kVisible));
  rules.push_back(AttentionRule("attention-hidden", Masking::kHidden));
  rules.push_back(AttentionRule("attention-unmasked", Masking::kNone));
  return MakeRulePass("attention",
                      "Recognises written-out scaled dot-product attention and makes it Attention.",
                      std::move(rules));
}

}  // namespace pagefuse
