// SPDX-License-Identifier: Apache-2.0
// attention-forms: brings variants of attention to the form that the rules of attention match.
//
//   Softmax (scores + causal + padding)      =>  Softmax (scores + (causal + padding))
//   Softmax (Where (causal, scores, low) + padding)
//     =>  Softmax (scores + (Where (causal, 0, low) + padding))
//   scores * causal - 1e4 * (1 - causal)     =>  Where (causal, scores, -1e4), also as a sum
//   a . k[:m] + b . k[m:]                    =>  [a, b] . k
//   Attention <q_num_heads = H> (q [B, S, H * D], k, v)
//     =>  Attention over [B, H, S, D], with Reshape and Transpose before and behind
//   scores of other axes                     =>  [B, H, S, L] (attention_axes.h)
//   p . v, p . w  with  p = Softmax (s)      =>  Softmax (s) . v, Softmax (s) . w
//
// The first two hold where both are masks (mask_analysis.h): what they add is 0, or hides a key
// whatever is added to it. The third holds for a mask of 0 and 1.
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "pagefuse/passes/analysis/functions/number_ranges.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/analysis/masks/mask_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/attention_axes.h"
#include "pagefuse/passes/recognise/joined_products.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/recognise/score_form.h"
#include "pagefuse/passes/simplify/peephole.h"

namespace pagefuse {
namespace {

using ports::Attention;

bool IsMask(const Value* value, const SymbolicContents& contents) {
  return value->dtype() != DataType::kBool && AnalyseMask(value, contents).ok();
}

// Scores under a mask: an Add of both, or a Where whose condition is the mask, with a number for
// hidden keys.
struct Masked {
  Value* scores = nullptr;
  Value* mask = nullptr;
  Value* low = nullptr;  // null: added
};

std::optional<Masked> MaskedBy(const Node* add, const SymbolicContents& contents) {
  if (!add || !add->Is("Add")) return std::nullopt;
  for (int side : {1, 0}) {
    if (IsMask(add->input(side), contents)) return Masked{add->input(1 - side), add->input(side)};
  }
  return std::nullopt;
}

std::optional<Masked> ChosenBy(const Node* where, const SymbolicContents& contents) {
  if (!where || !where->Is("Where")) return std::nullopt;
  const auto low = NumberOf(where->input(ports::Where::kFalse));
  const auto hides = [&] {
    const Value* scores = where->input(ports::Where::kTrue);
    return *low <= HidingNumber(NumberRanges(contents).Of(scores));
  };
  const bool chooses = low && HidesBesideSoftmax(*low) && hides() &&
                       AnalyseMask(where->input(ports::Where::kCondition), contents).ok();
  if (!chooses) return std::nullopt;
  return Masked{where->input(ports::Where::kTrue), where->input(ports::Where::kCondition),
                where->input(ports::Where::kFalse)};
}

bool JoinMasks(Graph& graph, Node* softmax, const SymbolicContents& contents) {
  if (!softmax->Is("Softmax")) return false;
  Node* last = softmax->input(0)->producer();
  const auto outer = MaskedBy(last, contents);
  if (!outer || outer->scores->uses().size() != 1 || outer->scores->is_output()) return false;
  auto inner = MaskedBy(outer->scores->producer(), contents);
  if (!inner) inner = ChosenBy(outer->scores->producer(), contents);
  if (!inner) return false;
  GraphBuilder builder(graph, last, last->output(0)->name());
  Value* added = inner->mask;
  if (inner->low) {
    Value* visible = builder.Float(0, inner->low->dtype());
    added = builder.Add("Where", {inner->mask, visible, inner->low});
  }
  Value* mask = builder.Add("Add", {added, outer->mask});
  ReplaceNode(last, builder.Add("Add", {inner->scores, mask}));
  return true;
}

// The operand beside `known`; null if the node is another op or has not that operand.
Value* OtherOperand(const Node* node, std::string_view op, const Value* known) {
  if (!node || !node->Is(op)) return nullptr;
  if (node->input(0) == known) return node->input(1);
  return node->input(1) == known ? node->input(0) : nullptr;
}

// Where a node is `low` * (1 - mask): the mask, which is 0 or 1, and the number. Null mask if it is
// another.
Masked HiddenPart(const Node* product, const SymbolicContents& contents) {
  if (!product || !product->Is("Mul")) return {};
  for (int side : {0, 1}) {
    const Node* rest = product->input(side)->producer();
    if (!rest || !rest->Is("Sub") || NumberOf(rest->input(0)) != 1.0) continue;
    if (!NumberOf(product->input(1 - side)) || !IsZeroOrOne(rest->input(1), contents)) continue;
    return {nullptr, rest->input(1), product->input(1 - side)};
  }
  return {};
}

// Where the rest is taken off rather than added, `sign` is -1.
bool ChooseByMask(Node* node, Node* seen, const Masked& hidden, double sign,
                  const SymbolicContents& contents) {
  if (!hidden.mask || !HidesBesideSoftmax(sign * *NumberOf(hidden.low))) return false;
  Value* scores = OtherOperand(seen, "Mul", hidden.mask);
  if (!scores || !IsFloatingPoint(scores->dtype())) return false;
  // 0 times what is not finite is NaN.
  if (!NumberRanges(contents).Of(scores).finite()) return false;
  Graph& graph = *node->graph();
  GraphBuilder builder(graph, node, node->output(0)->name());
  Value* visible = builder.Cast(hidden.mask, DataType::kBool);
  Value* low = builder.Float(static_cast<float>(sign * *NumberOf(hidden.low)), scores->dtype());
  ReplaceNode(node, builder.Add("Where", {visible, scores, low}));
  return true;
}

// A sum, or a difference, of scores times a mask and of a number where the mask is 0.
bool ChooseByMask(Node* node, const SymbolicContents& contents) {
  const bool sum = node->Is("Add");
  if (!sum && !node->Is("Sub")) return false;
  Node *first = node->input(0)->producer(), *second = node->input(1)->producer();
  return ChooseByMask(node, first, HiddenPart(second, contents), sum ? 1 : -1, contents) ||
         (sum && ChooseByMask(node, second, HiddenPart(first, contents), 1, contents));
}

// Columns of one head; nullopt if they are not known.
std::optional<int64_t> HeadSize(const Value* rows, int64_t heads) {
  if (!rows || !rows->shape() || rows->shape()->rank() != 3 || heads < 1) return std::nullopt;
  const auto columns = rows->shape()->back(0).constant();
  if (!columns || *columns % heads != 0) return std::nullopt;
  return *columns / heads;
}

Value* Heads(GraphBuilder& builder, Value* rows, int64_t heads, int64_t size) {
  Value* split = builder.Add("Reshape", {rows, builder.Ints({0, 0, heads, size})});
  return builder.Add("Transpose", {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
}

bool SplitHeads(Graph& graph, Node* node) {
  if (!node->Is("Attention")) return false;
  const int64_t heads = IntOr(*node, "q_num_heads", 0);
  const int64_t kv_heads = IntOr(*node, "kv_num_heads", 0);
  const auto query = HeadSize(node->input(Attention::kQuery), heads);
  const auto key = HeadSize(node->input(Attention::kKey), kv_heads);
  const auto value = HeadSize(node->input(Attention::kValue), kv_heads);
  if (!query || !key || !value) return false;
  GraphBuilder builder(graph, node, node->output(0)->name());
  std::vector<Value*> inputs = node->inputs();
  inputs[0] = Heads(builder, inputs[0], heads, *query);
  inputs[1] = Heads(builder, inputs[1], kv_heads, *key);
  inputs[2] = Heads(builder, inputs[2], kv_heads, *value);
  Node* split = builder.AddNode("", "Attention", inputs, node->num_outputs());
  TakePlace(*split, *node);
  for (const auto& [name, attribute] : node->attributes()) {
    if (name != "q_num_heads" && name != "kv_num_heads") split->SetAttribute(name, attribute);
  }
  Value* back =
      builder.Add("Transpose", {split->output(0)}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  graph.ReplaceAllUses(node->output(0),
                       builder.Add("Reshape", {back, builder.Ints({0, 0, heads * *value})}));
  for (int output = 1; output < node->num_outputs(); ++output) {
    if (node->output(output)) graph.ReplaceAllUses(node->output(output), split->output(output));
  }
  graph.EraseIfDead(node);
  return true;
}

// Between the product of queries and keys and its probabilities.
bool KeepsPlaces(const Node& node) {
  return IsAnyOf(node, {"Add", "Cast", "Div", "IsNaN", "Mul", "Softmax", "Sub", "Tanh", "Where"});
}

constexpr int kMostSteps = 12;  // from probabilities to the product

// The nodes between a value and the product that it is computed from, each behind those it reads;
// false if there is no product.
bool CollectScores(Value* value, std::vector<Node*>& nodes, int steps = kMostSteps) {
  Node* node = value->producer();
  if (!node || steps == 0) return false;
  if (std::ranges::count(nodes, node) > 0) return true;
  bool found = node->Is("MatMul");
  for (Value* input : node->inputs()) {
    if (KeepsPlaces(*node) && CollectScores(input, nodes, steps - 1)) found = true;
  }
  if (found) nodes.push_back(node);
  return found;
}

// Values of which several products are taken by the same probabilities (differential attention): each
// has an attention of its own.
bool SplitProbabilities(Graph& graph, Node* product) {
  if (!product->Is("MatMul")) return false;
  Value* weights = product->input(0);
  const auto& uses = weights->uses();
  const Node* maker = weights->producer();
  const bool apart = maker && (maker->Is("Softmax") || maker->Is("Where")) &&
                     !weights->is_output() && uses.size() > 1 &&
                     std::ranges::all_of(uses, [&](const Use& use) {
                       return use.node->Is("MatMul") && use.index == 0;
                     });
  std::vector<Node*> nodes;
  if (!apart || !CollectScores(weights, nodes)) return false;
  GraphBuilder builder(graph, product, weights->name());
  std::map<const Value*, Value*> copies;
  for (const Node* node : nodes) {
    std::vector<Value*> inputs = node->inputs();
    for (Value*& input : inputs) {
      if (copies.contains(input)) input = copies[input];
    }
    copies[node->output(0)] = builder.Add(node->op_type(), inputs, *node);
  }
  product->SetInput(0, copies[weights]);
  return true;
}

absl::StatusOr<bool> Rewrite(Graph& graph, Node* node, const SymbolicContents& contents) {
  return SplitProbabilities(graph, node) || ChooseByMask(node, contents) ||
         BringScoresToForm(graph, node, contents) || JoinMasks(graph, node, contents) ||
         JoinProducts(graph, node, contents) || SplitHeads(graph, node) ||
         BringAxesToForm(graph, node, contents);
}

}  // namespace

std::unique_ptr<Pass> RecogniseAttentionForms() {
  return MakeNodePass(
      "attention-forms",
      "Brings variants of attention to the form that the pass attention matches: masks are "
      "added up before the scores, products over parts of rows become one product, rows of heads "
      "are split into heads, and axes are brought to [B, H, S, L].",
      Rewrite);
}

}  // namespace pagefuse
