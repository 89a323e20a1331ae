// SPDX-License-Identifier: Apache-2.0
// attention-inputs: keys and values that were repeated for grouped queries, and caches joined by
// Concat, go into Attention itself.
//
//   k_all = Concat <axis = -2> (past_k, k)    v_all = Concat <axis = -2> (past_v, v)
//   y = Attention (q, Reshape (Expand (Unsqueeze (k_all, 2))), .., mask)
//     =>  y, k_all, v_all = Attention (q, k, v, mask, past_k, past_v)
//
// Where heads are repeated as a whole, by Tile, queries are put in the order of their heads before, and
// back behind. Layers that share keys and values (Gemma 3n) read those of the first one. k_all and v_all, the
// present caches, may be outputs of the graph. Where keys are another view of joined rows
// (joined_cache.h), that view of either part goes into Attention, and the rows stay joined for what
// else reads them.

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/indexing/broadcast_proof.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/head_order.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/joined_cache.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "attention-inputs";

using ports::Attention;

bool IsView(const Node* node) {
  return node->Is("Reshape") || node->Is("Unsqueeze") || node->Is("Squeeze");
}

// The value [B, K, T, D] whose heads `gathered` [B, K*G, T, D] takes by 0, 0, ..., 1, 1, ..., or
// null.
Value* GatheredHeads(const Node& gather, const Shape& wide) {
  if (IntOr(gather, "axis", 0) != 1 && IntOr(gather, "axis", 0) != -3) return nullptr;
  Value* source = gather.input(0);
  const Tensor* indices = ConstantOf(gather.input(1));
  const auto heads = wide[1].constant();
  if (!indices || !heads || !source->shape() || source->shape()->rank() != 4) return nullptr;
  const auto shared = (*source->shape())[1].constant();
  const auto places = IntegerValues(*indices);
  if (!shared || *shared < 1 || *heads % *shared != 0 || !places.ok()) return nullptr;
  if (indices->rank() != 1) return nullptr;
  for (int64_t head = 0; head < *heads; ++head) {
    if ((*places)[head] != head / (*heads / *shared)) return nullptr;
  }
  return source;
}

// The value [B, 1, T, D] that is expanded to all heads, or null.
Value* OnlyHead(const Node& expand, const Shape& wide) {
  Value* source = expand.input(0);
  const auto& narrow = source->shape();
  if (!narrow || narrow->rank() != 4 || (*narrow)[1].constant() != 1) return nullptr;
  for (int axis : {0, 2, 3}) {
    if (!ProvablyEqual((*narrow)[axis], wide[axis])) return nullptr;
  }
  return source;
}

// The value [B, K, T, D] that `expanded` [B, K*G, T, D] repeats G times along heads, or null.
Value* SharedHeads(Value* expanded) {
  if (!expanded || !expanded->shape() || expanded->shape()->rank() != 4) return nullptr;
  const Shape& wide = *expanded->shape();
  const Node* reshape = expanded->producer();
  if (reshape && reshape->Is("Gather")) return GatheredHeads(*reshape, wide);
  if (reshape && reshape->Is("Expand")) return OnlyHead(*reshape, wide);
  if (!reshape || !IsView(reshape)) return nullptr;
  const Node* expand = reshape->input(0)->producer();
  if (!expand || !expand->Is("Expand")) return nullptr;
  const auto& groups = expand->output(0)->shape();
  const auto& narrow = expand->input(0)->shape();
  if (!groups || !narrow || groups->rank() != 5 || narrow->rank() != 5) return nullptr;
  // [B, K, 1, T, D] -> [B, K, G, T, D] -> [B, K*G, T, D]
  for (int axis : {0, 1, 3, 4}) {
    if (!ProvablyEqual((*narrow)[axis], (*groups)[axis])) return nullptr;
  }
  if ((*narrow)[2].constant() != 1) return nullptr;
  const Shape flat{(*groups)[0], (*groups)[1] * (*groups)[2], (*groups)[3], (*groups)[4]};
  if (!ProvablyEqual(flat, wide)) return nullptr;
  const Node* unsqueeze = expand->input(0)->producer();
  if (!unsqueeze || !IsView(unsqueeze)) return nullptr;
  Value* source = unsqueeze->input(0);
  const Shape heads{(*groups)[0], (*groups)[1], (*groups)[3], (*groups)[4]};
  return source->shape() && ProvablyEqual(*source->shape(), heads) ? source : nullptr;
}

struct Cache {
  JoinedCache key, value;
};

// Positions count from the first key that Attention has as an input; with a past, from the first
// new one.
absl::Status CheckCountsNoPositions(const Node& attention) {
  for (const char* name : {"is_causal", "left_window_size", "right_window_size"}) {
    const int64_t none = std::string_view(name) == "is_causal" ? 0 : -1;
    const int64_t value = IntOr(attention, name, none);
    if (value == none) continue;
    return MatchFailure(attention, ": expected ", name, " = ", none, " over joined keys, got ",
                        value);
  }
  if (!attention.input(Attention::kKeyLengths)) return absl::OkStatus();
  return MatchFailure(*attention.input(Attention::kKeyLengths),
                      " gives lengths of the joined keys");
}

absl::StatusOr<Cache> FindCache(const Node& attention, const SymbolicContents& contents) {
  if (attention.input(Attention::kPastKey))
    return MatchFailure(*attention.input(Attention::kPastKey), " is a past already");
  if (attention.num_outputs() > 1) {
    return MatchFailure(attention, " has further outputs");
  }
  IndexingAnalysis reader(contents, Trust::kNothing);
  PF_ASSIGN_OR_RETURN(JoinedCache key, FindJoinedCache(reader, attention, Attention::kKey));
  PF_ASSIGN_OR_RETURN(JoinedCache value, FindJoinedCache(reader, attention, Attention::kValue));
  // Attention has a cache of keys and one of values: a tensor that is both has no two pasts.
  if (!key.present && attention.input(Attention::kKey) == attention.input(Attention::kValue)) {
    return MatchFailure(*attention.input(Attention::kKey), " is keys and values");
  }
  PF_RETURN_IF_ERROR(CheckCountsNoPositions(attention));
  PF_RETURN_IF_ERROR(CheckSameLength(value.past_rows, key.past_rows));
  return Cache{std::move(key), std::move(value)};
}

// Replaces an input and lets go of what only fed the old one.
void Rewire(Graph& graph, Node* node, int index, Value* value) {
  Node* before = node->input(index)->producer();
  node->SetInput(index, value);
  if (before) graph.EraseIfDead(before);
}

// The value [B, K, T, D] whose heads `tiled` [B, G*K, T, D] repeats as a whole, or null.
Value* TiledHeads(Value* tiled, const SymbolicContents& contents) {
  const Node* tile = tiled->producer();
  if (!tile || !tile->Is("Tile") || !tile->input(0)->shape()) return nullptr;
  const auto repeats = KnownInts(tile->input(1), contents);
  if (!repeats || repeats->size() != 4 || (*repeats)[1] < 2) return nullptr;
  for (const int axis : {0, 2, 3}) {
    if ((*repeats)[axis] != 1) return nullptr;
  }
  return (*tile->input(0)->shape())[1].is_constant() ? tile->input(0) : nullptr;
}

// Heads g * K + k of [B, G*K, S, D] in the order k * G + g.
Value* Reordered(GraphBuilder& builder, Value* heads, int64_t groups, int64_t shared,
                 int64_t size) {
  Value* apart = builder.Reshape(heads, {0, groups, shared, -1, size});
  Value* turned =
      builder.Add("Transpose", {apart}, {{"perm", std::vector<int64_t>{0, 2, 1, 3, 4}}});
  return builder.Reshape(turned, {0, groups * shared, -1, size});
}

// Queries of the same head stand side by side in Attention: where keys are repeated as a whole, they
// do not. The node in place of this one; null if its keys are not repeated so.
Node* OrderTiledHeads(Graph& graph, Node* node, const SymbolicContents& contents) {
  if (node->input(Attention::kPastKey) || node->num_outputs() > 1) return nullptr;
  if (FindMetadata(node->metadata, kKeepsHeads)) return nullptr;
  Value* key = TiledHeads(node->input(Attention::kKey), contents);
  Value* value = TiledHeads(node->input(Attention::kValue), contents);
  const Value* mask = node->input(Attention::kMask);
  const auto& queries = node->input(Attention::kQuery)->shape();
  if (!key || !value || !queries || queries->rank() != 4 || !queries->back(0).constant() ||
      !value->shape()->back(0).constant()) {
    return nullptr;
  }
  const int64_t shared = *(*key->shape())[1].constant();
  const auto heads = (*queries)[1].constant();
  const bool same = ProvablyEqual((*value->shape())[1], Dim(shared)) && heads &&
                    *heads % std::max<int64_t>(shared, 1) == 0;
  const auto head_axis = [](const Shape& shape) {
    return shape.rank() < 3 ? Dim(1) : shape.back(2);
  };
  if (!same || (mask && (!mask->shape() || head_axis(*mask->shape()).constant() != 1))) {
    return nullptr;
  }
  const int64_t groups = *heads / shared;
  GraphBuilder builder(graph, node, node->output(0)->name());
  std::vector<Value*> inputs = node->inputs();
  inputs[Attention::kQuery] =
      Reordered(builder, inputs[Attention::kQuery], groups, shared, *queries->back(0).constant());
  inputs[Attention::kKey] = key;
  inputs[Attention::kValue] = value;
  Node* ordered = builder.AddNode("", "Attention", std::move(inputs), 1, *node);
  TakePlace(*ordered, *node);
  // And back.
  Value* rows =
      Reordered(builder, ordered->output(0), shared, groups, *value->shape()->back(0).constant());
  ReplaceNode(node, rows);
  return ordered;
}

bool ShareHeads(Graph& graph, Node* node) {
  // A past and presents have as many heads as the keys.
  if (node->input(Attention::kPastKey) || node->num_outputs() > 1) return false;
  Value* key = SharedHeads(node->input(Attention::kKey));
  Value* value = SharedHeads(node->input(Attention::kValue));
  if (!key || !value || !ProvablyEqual((*key->shape())[1], (*value->shape())[1])) return false;
  Rewire(graph, node, 1, key);
  Rewire(graph, node, 2, value);
  return true;
}

// What gives the joined rows back may stand before the node that joins them now.
void MoveToEnd(Graph& graph, const Value& value) {
  for (const Use& use : std::vector<Use>(value.uses())) {
    if (use.node->Is("Attention")) continue;
    graph.MoveBefore(use.node, nullptr);
    for (const Value* output : use.node->outputs()) MoveToEnd(graph, *output);
  }
}

void TakeCache(Graph& graph, Node* node, const Cache& cache) {
  const auto& [key, value] = cache;
  // A node's outputs are fixed, so a new node takes the old one's place.
  GraphBuilder builder(graph, node, node->output(0)->name());
  const bool gives = key.concat || value.concat;
  Node* cached = builder.AddNode(
      "", "Attention",
      {node->input(Attention::kQuery), FreshOf(builder, key), FreshOf(builder, value),
       node->input(Attention::kMask), PastOf(builder, key), PastOf(builder, value)},
      gives ? 3 : 1);
  TakePlace(*cached, *node);
  for (const auto& [attribute, content] : node->attributes())
    cached->SetAttribute(attribute, content);
  for (const JoinedCache* joined : {&key, &value}) {
    if (joined->concat) MoveToEnd(graph, *joined->concat->output(0));
  }
  graph.ReplaceAllUses(node->output(0), cached->output(0));
  const Value* rows[] = {node->input(Attention::kKey), node->input(Attention::kValue)};
  graph.EraseNode(node);
  if (key.concat) {
    graph.ReplaceAllUses(key.concat->output(0), cached->output(Attention::kPresentKey));
  }
  if (value.concat) {
    graph.ReplaceAllUses(value.concat->output(0), cached->output(Attention::kPresentValue));
  }
  // One may have been made of the other, and be gone with it.
  for (const std::string& name : {rows[0]->name(), rows[1]->name()}) {
    const Value* left = graph.FindValue(name);
    if (left && left->producer()) graph.EraseIfDead(left->producer());
  }
}

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  Graph& graph = *model.graph;
  bool changed = false;
  std::vector<Node*> attentions = NodesOf(graph, "Attention");
  // First all, since several may share what they repeat.
  absl::flat_hash_set<const Node*> sharing;
  for (Node*& node : attentions) {
    Node* ordered = OrderTiledHeads(graph, node, context.contents);
    if (ordered) node = ordered;
    if (ordered || ShareHeads(graph, node)) sharing.insert(node);
  }
  for (Node* node : attentions) {
    const bool shared = sharing.contains(node);
    const absl::StatusOr<Cache> cache = FindCache(*node, context.contents);
    if (cache.ok()) {
      TakeCache(graph, node, *cache);
    } else {
      context.AddMissedMatch(kName, node->output(0)->name(), StdView(cache.status().message()));
    }
    if (!shared && !cache.ok()) continue;
    changed = true;
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> RecogniseAttentionInputs() {
  return MakePass(
      kName,
      "Moves the repetition of shared heads, and the Concat of past and new keys and values, "
      "into Attention.",
      Run);
}

}  // namespace pagefuse
