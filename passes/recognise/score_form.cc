// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/recognise/score_form.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/passes/analysis/functions/number_ranges.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/analysis/masks/mask_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/simplify/peephole.h"

namespace pagefuse {
namespace {

using ports::Where;

constexpr int kMostSteps = 24;

// A mask that is added, or the condition under which a number hides keys.
struct ScoreMask {
  Value* mask = nullptr;
  double factor = 1;               // of what is added
  std::optional<double> low = {};  // chosen for hidden keys
  const Value* scores = nullptr;   // in whose place; null: it is added
  bool shows = true;               // the condition is true for visible keys
};

struct Scores {
  Node* product = nullptr;
  Value *query = nullptr, *key = nullptr;  // of the product, without scales
  double scale = 1, softcap = 0;
  std::optional<std::vector<int64_t>> order = {};  // that makes keys columns, if not the usual one
  std::vector<ScoreMask> masks;
  bool in_form = true;
};

// A factor of all elements: x * number, number * x, x / number. Factors are joined, so none may be
// as large or small as to make scores infinite, or nothing, on the way.
struct Scaled {
  Value* x = nullptr;
  double factor = 1;
  bool divided = false;
};

bool IsUsualFactor(double factor) {
  constexpr double kLeast = 1e-6, kMost = 1e6;
  return std::abs(factor) >= kLeast && std::abs(factor) <= kMost;
}

std::optional<Scaled> ScaledBy(const Node& node) {
  if (node.Is("Div")) {
    const auto divisor = NumberOf(node.input(1));
    if (!divisor || !IsUsualFactor(*divisor)) return std::nullopt;
    return Scaled{node.input(0), 1 / *divisor, true};
  }
  if (!node.Is("Mul")) return std::nullopt;
  for (int side : {0, 1}) {
    const auto factor = NumberOf(node.input(side));
    if (factor && IsUsualFactor(*factor)) return Scaled{node.input(1 - side), *factor};
  }
  return std::nullopt;
}

bool HasRank4(const Value* value) { return value->shape() && value->shape()->rank() == 4; }

// A product of what depends on inputs on both sides, of rows of heads.
bool IsProduct(const Node& node) {
  return node.Is("MatMul") && HasRank4(node.input(0)) && HasRank4(node.input(1)) &&
         !ConstantOf(node.input(0)) && !ConstantOf(node.input(1));
}

// Whether scores are computed by way of the value.
bool LeadsToProduct(const Value* value, absl::flat_hash_set<const Value*>& seen) {
  const Node* node = value->producer();
  if (!node || seen.size() > kMostSteps || !seen.insert(value).second) return false;
  if (IsProduct(*node)) return true;
  if (node->Is("Tanh")) return LeadsToProduct(node->input(0), seen);
  if (!IsAnyOf(*node, {"Add", "Sub", "Mul", "Div", "Max", "Where"})) return false;
  return std::ranges::any_of(node->inputs(),
                             [&](const Value* input) { return LeadsToProduct(input, seen); });
}

bool LeadsToProduct(const Value* value) {
  absl::flat_hash_set<const Value*> seen;
  return LeadsToProduct(value, seen);
}

constexpr std::array<int64_t, 4> kColumns = {0, 1, 3, 2};

// The order of the axes that makes keys columns: of heads that are moved, too, in that step, or of
// columns as they are, which nothing turns. Nullopt where keys are turned alone.
std::optional<std::vector<int64_t>> OtherOrder(const Value& columns) {
  const Node* turn = columns.producer();
  if (!turn || !turn->Is("Transpose")) return std::vector<int64_t>{0, 1, 2, 3};
  const auto perm = turn->IntsAttribute("perm", {});
  const bool other = perm.ok() && perm->size() == kColumns.size() && perm->front() == 0 &&
                     !std::ranges::equal(*perm, kColumns);
  return other ? std::optional(*perm) : std::nullopt;
}

// Whether a product reads weights, of values: no one else asks for keys in rows.
bool WeighValues(const Value& weights, int steps = 4) {
  return steps > 0 && std::ranges::any_of(weights.uses(), [steps](const Use& use) {
           if (use.node->Is("MatMul")) return true;
           const bool passes = IsAnyOf(*use.node, {"Cast", "Dropout", "Identity", "Where"});
           return passes && WeighValues(*use.node->output(0), steps - 1);
         });
}

class ScoreReader {
 public:
  explicit ScoreReader(bool weighs) : weighs_(weighs) {}

  std::optional<Scores> Read(Value* value) {
    for (int step = 0; step < kMostSteps; ++step) {
      Node* node = value->producer();
      if (!node) return std::nullopt;
      if (IsProduct(*node)) return OfProduct(node);
      value = Behind(*node);
      if (!value) return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  // What a node scales, caps or masks; null if it does something else.
  Value* Behind(const Node& node) {
    if (const auto scaled = ScaledBy(node)) {
      // One factor behind the product, or of the cap, is the form.
      in_form_ &= factors_ == 0 && !scaled->divided;
      ++factors_;
      scale_ *= scaled->factor;
      return scaled->x;
    }
    if (node.Is("Tanh")) return BehindCap(node);
    if (scores_.softcap != 0) return nullptr;
    if (node.Is("Add") || node.Is("Sub")) return BehindSum(node);
    if (node.Is("Where")) return BehindChoice(node);
    return node.Is("Max") ? BehindBound(node) : nullptr;
  }

  // cap * tanh (x): x = scaled / cap.
  Value* BehindCap(const Node& node) {
    if (scores_.softcap != 0 || factors_ == 0) return nullptr;
    scores_.softcap = scale_;
    factors_ = 0;
    const Node* quotient = node.input(0)->producer();
    const auto inner = quotient ? ScaledBy(*quotient) : std::nullopt;
    if (!inner) {
      in_form_ = false;
      return node.input(0);
    }
    in_form_ &= inner->divided &&
                static_cast<float>(1 / inner->factor) == static_cast<float>(scores_.softcap);
    scale_ *= inner->factor;
    return inner->x;
  }

  Value* BehindSum(const Node& node) {
    const bool first = LeadsToProduct(node.input(0)), second = LeadsToProduct(node.input(1));
    if (first == second) return nullptr;
    const int side = first ? 0 : 1;
    if (node.Is("Sub")) return first && NoteTakenOff(node) ? node.input(0) : nullptr;
    NoteMask({.mask = node.input(1 - side), .factor = scale_});
    return node.input(side);
  }

  // What a difference takes off: a mask times a number, or a large number for hidden keys.
  bool NoteTakenOff(const Node& difference) {
    const Node* node = difference.input(1)->producer();
    if (!node || !(node->Is("Mul") || node->Is("Where"))) return false;
    const int first = node->Is("Mul") ? 0 : Where::kTrue;
    for (int side : {first, first + 1}) {
      const auto number = NumberOf(node->input(side));
      Value* other = node->input(2 * first + 1 - side);
      const double taken = number ? -scale_ * *number : 0;
      if (node->Is("Mul") && number && taken != -1) {
        NoteMask({.mask = other, .factor = taken});
      } else if (node->Is("Where") && HidesBesideSoftmax(taken) && NumberOf(other) == 0.0) {
        NoteMask(
            {.mask = node->input(Where::kCondition), .low = taken, .shows = side == Where::kFalse});
      } else {
        continue;
      }
      in_form_ = false;
      return true;
    }
    return false;
  }

  Value* BehindChoice(const Node& node) {
    for (int branch : {Where::kTrue, Where::kFalse}) {
      const int other = branch == Where::kTrue ? Where::kFalse : Where::kTrue;
      const auto low = NumberOf(node.input(other));
      if (!low || !HidesBesideSoftmax(*low * scale_)) continue;
      NoteMask({.mask = node.input(Where::kCondition),
                .low = *low * scale_,
                .scores = node.input(branch),
                .shows = branch == Where::kTrue});
      return node.input(branch);
    }
    return nullptr;
  }

  // No score that is seen is as low as what hides others.
  Value* BehindBound(const Node& node) {
    if (node.num_inputs() != 2 || scale_ < 0) return nullptr;
    for (int side : {0, 1}) {
      const auto low = NumberOf(node.input(side));
      if (!low || !HidesScore(*low * scale_)) continue;
      in_form_ = false;
      return node.input(1 - side);
    }
    return nullptr;
  }

  void NoteMask(const ScoreMask& mask) {
    in_form_ &= scores_.masks.empty() && factors_ == 0;
    scores_.masks.push_back(mask);
  }

  Scores OfProduct(Node* product) {
    scores_.product = product;
    scores_.query = Unscaled(product->input(0));
    scores_.key = Unscaled(product->input(1));
    scores_.scale = scale_;
    const Node* turn = scores_.key->producer();
    if (weighs_ || (turn && turn->Is("Transpose"))) scores_.order = OtherOrder(*scores_.key);
    scores_.in_form = in_form_ && !scores_.order;
    return std::move(scores_);
  }

  Value* Unscaled(Value* operand) {
    const Node* node = operand->producer();
    const auto scaled = node ? ScaledBy(*node) : std::nullopt;
    if (!scaled) return operand;
    in_form_ = false;
    scale_ *= scaled->factor;
    return scaled->x;
  }

  bool weighs_;  // values, by these scores
  Scores scores_;
  double scale_ = 1;
  int factors_ = 0;  // behind the product, or the cap, so far
  bool in_form_ = true;
};

// Builds the form before the softmax.
class FormWriter {
 public:
  FormWriter(Graph& graph, Node* softmax, const SymbolicContents& contents)
      : builder_(graph, softmax, softmax->output(0)->name()), contents_(contents) {}

  // Null if a number hides nothing beside its scores.
  Value* Write(const Scores& scores) {
    type_ = scores.product->output(0)->dtype();
    if (scores.masks.size() > 1 && !std::ranges::all_of(scores.masks, [&](const ScoreMask& mask) {
          return !mask.scores || HidesBeside(*mask.low, *mask.scores);
        })) {
      return nullptr;
    }
    Value* value = builder_.Add("MatMul", {scores.query, Columns(scores)});
    if (scores.scale != 1) value = builder_.Add("Mul", {value, Number(scores.scale)});
    if (scores.softcap != 0) {
      Value* cap = Number(scores.softcap);
      Value* bounded = builder_.Add("Tanh", {builder_.Add("Div", {value, cap})});
      value = builder_.Add("Mul", {bounded, cap});
    }
    if (scores.masks.size() == 1 && scores.masks[0].scores) return Chosen(value, scores.masks[0]);
    Value* sum = nullptr;
    for (const ScoreMask& mask : scores.masks) {
      Value* added = Added(mask);
      sum = sum ? builder_.Add("Add", {added, sum}) : added;
    }
    return sum ? builder_.Add("Add", {value, sum}) : value;
  }

 private:
  bool HidesBeside(double low, const Value& scores) const {
    return HidesScore(low) || low <= HidingNumber(NumberRanges(contents_).Of(&scores));
  }

  Value* Number(double number) { return builder_.Float(static_cast<float>(number), type_); }

  Value* Chosen(Value* value, const ScoreMask& mask) {
    Value* low = Number(*mask.low);
    return mask.shows ? builder_.Add("Where", {mask.mask, value, low})
                      : builder_.Add("Where", {mask.mask, low, value});
  }

  Value* Added(const ScoreMask& mask) {
    if (mask.low) return Chosen(Number(0), mask);
    if (mask.factor == 1 || HidesUnder(mask.factor, mask.mask)) return mask.mask;
    return builder_.Add("Mul", {mask.mask, Number(mask.factor)});
  }

  // What adds 0 or hides a key does so under a factor too.
  bool HidesUnder(double factor, const Value* mask) const {
    const auto form = factor > 0 ? AnalyseMask(mask, contents_) : absl::NotFoundError("");
    return form.ok() && HidesScore(form->low * std::min(factor, 1.0));
  }

  // Keys whose heads are moved first, and which then become columns.
  Value* Columns(const Scores& scores) {
    if (!scores.order) return scores.key;
    std::vector<int64_t> order = *scores.order;
    std::swap(order[2], order[3]);
    const Node* turn = scores.key->producer();
    Value* source = turn && turn->Is("Transpose") ? turn->input(0) : scores.key;
    Value* rows = builder_.Add("Transpose", {source}, {{"perm", order}});
    return builder_.Add("Transpose", {rows},
                        {{"perm", std::vector<int64_t>(kColumns.begin(), kColumns.end())}});
  }

  GraphBuilder builder_;
  const SymbolicContents& contents_;
  DataType type_ = DataType::kFloat;
};

bool IsOverLastAxis(const Node& softmax) {
  const auto& shape = softmax.input(0)->shape();
  return shape && NormalAxis(IntOr(softmax, "axis", -1), shape->rank()) == shape->rank() - 1;
}

// Brings a softmax over [B, H, S, L] to the form.
bool FormScores(Graph& graph, Node* softmax, const SymbolicContents& contents) {
  if (!HasRank4(softmax->input(0)) || !IsOverLastAxis(*softmax)) return false;
  Value* before = softmax->input(0);
  const std::optional<Scores> scores = ScoreReader(WeighValues(*softmax->output(0))).Read(before);
  if (!scores || scores->in_form) return false;
  Value* formed = FormWriter(graph, softmax, contents).Write(*scores);
  if (!formed) return false;
  softmax->SetInput(0, formed);
  graph.EraseIfDead(before->producer());
  return true;
}

// [B, H, S, L] -- Reshape [B * H, S, L] -- Softmax -- Reshape [B, H, S, L]  =>  Softmax. It begins at
// the last of them, so that nothing is erased that is still to be visited.
bool TakeHeadsApart(Graph& graph, Node* view, const SymbolicContents& contents) {
  const Node* softmax = view->input(0)->producer();
  if (!softmax || !softmax->Is("Softmax") || !IsOverLastAxis(*softmax)) return false;
  const Node* flattening = softmax->input(0)->producer();
  if (!flattening || !flattening->Is("Reshape") || !HasRank4(flattening->input(0))) return false;
  Value* scores = flattening->input(0);
  const auto &rows = softmax->input(0)->shape(), &heads = view->output(0)->shape();
  const bool same = !rows->empty() && ProvablyEqual(rows->back(0), scores->shape()->back(0)) &&
                    heads && ProvablyEqual(*heads, *scores->shape());
  if (!same || !ScoreReader(WeighValues(*view->output(0))).Read(scores)) return false;
  GraphBuilder builder(graph, view, softmax->output(0)->name());
  Value* weights = builder.Add("Softmax", {scores}, {{"axis", int64_t{-1}}});
  ReplaceNode(view, weights);
  FormScores(graph, weights->producer(), contents);
  return true;
}

}  // namespace

bool BringScoresToForm(Graph& graph, Node* node, const SymbolicContents& contents) {
  if (node->Is("Softmax")) return FormScores(graph, node, contents);
  return node->Is("Reshape") && TakeHeadsApart(graph, node, contents);
}

}  // namespace pagefuse
