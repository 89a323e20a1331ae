// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/latent_matches.h"

#include <limits>
#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/graph_ports.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/edit/readers_text.h"
#include "pagefuse/passes/paging/grouped_attention.h"
#include "pagefuse/passes/paging/packed_heads.h"
#include "pagefuse/passes/recognise/latent_attention.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

using ports::Attention;

// Rows along the last axis but one; those of earlier steps, if there are any.
struct Joined {
  Value* fresh = nullptr;
  Value* past = nullptr;  // a graph input
  Value* all = nullptr;   // with the new rows, if there is a past
};

bool IsJoin(const Node* node, int rank) {
  return node && node->Is("Concat") && node->num_inputs() == 2 &&
         NormalAxis(IntOr(*node, "axis", 0), rank) == rank - 2 && node->input(0)->is_input() &&
         !node->input(0)->initializer();
}

// `all` has one reader, the expansion.
absl::StatusOr<Joined> SplitJoin(const Node& attention, Value* all) {
  const Node* concat = all->producer();
  if (!IsJoin(concat, all->shape()->rank())) return Joined{.fresh = all};
  // The present that an export gives back is no reader: paging drops it.
  if (all->uses().size() != 1) {
    return Unfit(attention, StrCat("its latent rows \"", all->name(),
                                   "\": expected one reader, got ", ReadersText(*all)));
  }
  return Joined{.fresh = concat->input(1), .past = concat->input(0), .all = all};
}

Value* WithHeadAxis(GraphBuilder& builder, Value* rows) {
  if (rows->shape()->rank() == 4) return rows;
  return builder.Add("Unsqueeze", {rows, builder.Ints({1})});
}

const Value* IfOutput(const Value* value) { return value && value->is_output() ? value : nullptr; }

class Lowering {
 public:
  Lowering(Graph& graph, const SymbolicContents& contents, PastLedger& pasts)
      : graph_(graph), contents_(contents), pasts_(pasts) {}

  absl::Status Lower(Node* node, const LatentAttention& found) {
    PF_RETURN_IF_ERROR(Check(*node));
    PF_ASSIGN_OR_RETURN(Joined latent, SplitJoin(*node, found.latent));
    PF_ASSIGN_OR_RETURN(Joined k_pe, SplitJoin(*node, found.k_pe));
    LatentMatch match{.latent = latent.fresh,
                      .k_pe = k_pe.fresh,
                      .heads = found.heads,
                      .latent_size = found.latent_size,
                      .rope_size = found.rope};
    PF_RETURN_IF_ERROR(CheckJoins(*node, latent, k_pe));
    PF_RETURN_IF_ERROR(NotePasts(*node, latent, k_pe));
    PF_RETURN_IF_ERROR(ReadSelection(node, latent.past || node->input(Attention::kPastKey), match));
    if (node->input(Attention::kPastKey)) StandIn(*node, found, latent, k_pe, match);
    for (Value* past : {latent.past, k_pe.past}) {
      if (past) match.pasts.push_back(past);
    }
    RemoveOutput(graph_, found.latent);
    RemoveOutput(graph_, found.k_pe);
    return Build(node, found, latent, k_pe, std::move(match));
  }

  LatentMatches matches() { return std::move(matches_); }

 private:
  static absl::Status Check(const Node& node) {
    PF_RETURN_IF_ERROR(CheckPresentsUnread(node));
    if (node.output(Attention::kScores)) return Unfit(node, "its scores are read");
    return absl::OkStatus();
  }

  static absl::Status CheckJoins(const Node& node, const Joined& latent, const Joined& k_pe) {
    if ((latent.past == nullptr) != (k_pe.past == nullptr)) {
      return Unfit(node, "of its latent rows and rotated parts one has a past");
    }
    if (!latent.past) return absl::OkStatus();
    if (node.input(Attention::kPastKey)) return Unfit(node, "has two pasts");
    if (IntOr(node, "is_causal", 0) != 0) {
      return Unfit(node, "counts positions from the first row of the past");
    }
    const auto& rows = latent.past->shape();
    const auto& rotated = k_pe.past->shape();
    if (!rows || !rotated || !ProvablyEqual(rows->back(1), rotated->back(1))) {
      return Unfit(node, "its pasts are not known to be of one length");
    }
    return absl::OkStatus();
  }

  // Of joined rows, or of expanded keys and values.
  absl::Status NotePasts(const Node& node, const Joined& latent, const Joined& k_pe) {
    if (latent.past) {
      PF_RETURN_IF_ERROR(pasts_.Note(node, {.past = latent.past,
                                            .role = "latent rows",
                                            .fresh = latent.fresh,
                                            .present = IfOutput(latent.all)}));
      return pasts_.Note(node, {.past = k_pe.past,
                                .role = "rotated parts of keys",
                                .fresh = k_pe.fresh,
                                .present = IfOutput(k_pe.all)});
    }
    if (!node.input(Attention::kPastKey)) {
      pasts_.NoteNone(node);
      return absl::OkStatus();
    }
    for (const bool keys : {true, false}) {
      const Value* past = node.input(keys ? Attention::kPastKey : Attention::kPastValue);
      if (!past || !past->is_input() || past->initializer() || !past->shape()) {
        return Unfit(node, "its past is no input of the graph");
      }
      PF_RETURN_IF_ERROR(pasts_.Note(
          node, {.past = past,
                 .role = keys ? "keys" : "values",
                 .fresh = node.input(keys ? Attention::kKey : Attention::kValue),
                 .present = IfOutput(
                     node.output(keys ? Attention::kPresentKey : Attention::kPresentValue))}));
    }
    return absl::OkStatus();
  }

  // A mask of chosen keys gives way to the one that they are chosen under.
  absl::Status ReadSelection(Node* node, bool has_past, LatentMatch& match) {
    Value* mask = node->input(Attention::kMask);
    if (!mask) return absl::OkStatus();
    GraphBuilder builder(graph_, node, StrCat(node->output(0)->name(), ".chosen"));
    absl::StatusOr<KeySelection> selection = ReadKeySelection(builder, mask, contents_);
    if (absl::IsNotFound(selection.status())) return absl::OkStatus();
    if (!selection.ok()) return Unfit(*node, StdView(selection.status().message()));
    node->SetInput(Attention::kMask, selection->mask);
    if ((selection->past != nullptr) != has_past) {
      return Unfit(*node, "of its rows and the index keys that choose among them one has a past");
    }
    if (selection->past) {
      PF_RETURN_IF_ERROR(pasts_.Note(*node, {.past = selection->past,
                                             .role = "index keys",
                                             .fresh = selection->key,
                                             .present = IfOutput(selection->keys)}));
      match.pasts.push_back(selection->past);
    }
    if (selection->keys) RemoveOutput(graph_, selection->keys);
    match.selection = *std::move(selection);
    return absl::OkStatus();
  }

  // Inputs of latent rows for a past of expanded ones.
  void StandIn(const Node& node, const LatentAttention& found, Joined& latent, Joined& k_pe,
               LatentMatch& match) {
    for (int port : {Attention::kPastKey, Attention::kPastValue}) {
      match.pasts.push_back(node.input(port));
    }
    const Shape& shape = *node.input(Attention::kPastKey)->shape();
    const auto add = [&](std::string_view name, int64_t size) {
      return graph_.AddInput(graph_.UniqueName(std::string(name)), found.latent->dtype(),
                             Shape{shape[0], Dim(1), shape[2], Dim(size)});
    };
    latent.past = add("past_latent", found.latent_size);
    k_pe.past = add("past_k_pe", found.rope);
  }

  absl::Status Build(Node* node, const LatentAttention& found, const Joined& latent,
                     const Joined& k_pe, LatentMatch match) {
    GraphBuilder builder(graph_, node, node->output(0)->name());
    PF_ASSIGN_OR_RETURN(const AbsorbedOperands operands,
                        AbsorbExpansion(graph_, builder, *node, found));
    const auto& [query, w_uv] = operands;
    match.latent = RowsAsExpanded(builder, found, latent.fresh);
    Value* value = WithHeadAxis(builder, match.latent);
    Value* key = builder.Add("Concat", {value, k_pe.fresh}, {{"axis", -1}});
    std::vector<Value*> inputs = {query, key, value, node->input(Attention::kMask)};
    if (latent.past) {
      Value* past = WithHeadAxis(builder, latent.past);
      inputs.push_back(builder.Add("Concat", {past, k_pe.past}, {{"axis", -1}}));
      inputs.push_back(past);
    }
    Node* absorbed = builder.AddNode("", "Attention", std::move(inputs), 1, *node);
    TakePlace(*absorbed, *node);
    matches_.emplace(absorbed, std::move(match));
    graph_.ReplaceAllUses(node->output(0), builder.Add("MatMul", {absorbed->output(0), w_uv}));
    for (int present : {Attention::kPresentKey, Attention::kPresentValue}) {
      if (node->output(present)) RemoveOutput(graph_, node->output(present));
    }
    graph_.EraseNode(node);
    return absl::OkStatus();
  }

  Graph& graph_;
  const SymbolicContents& contents_;
  PastLedger& pasts_;
  LatentMatches matches_;
};

}  // namespace

absl::StatusOr<LatentMatches> LowerLatentAttention(Model& model, const SymbolicContents& contents,
                                                   PastLedger& pasts) {
  Graph& graph = *model.graph;
  Lowering lowering(graph, contents, pasts);
  bool any = false;
  for (Node* node : NodesOf(graph)) {
    if (!node->Is("Attention")) continue;
    const absl::StatusOr<LatentAttention> found = FindLatentAttention(*node);
    // What is not expanded from latent rows as it is understood is cached as heads.
    if (!found.ok()) continue;
    PF_RETURN_IF_ERROR(lowering.Lower(node, *found));
    any = true;
  }
  if (any) {
    // Masks over joined rows are over a past and new rows now.
    PassContext context;
    PF_RETURN_IF_ERROR(InferShapes(model, &context.contents));
    PF_RETURN_IF_ERROR(RecogniseAttentionMask()->Run(model, context).status());
  }
  return lowering.matches();
}

TokenOwners FindTokenOwners(GraphBuilder& builder, Value* slot_mapping, Value* seq_lens,
                            Value* query_start_loc) {
  Value* zero = builder.Int(0);
  Value* one = builder.Int(1);
  const auto wide = [&](Value* value) { return builder.Cast(value, DataType::kInt64); };
  Value* count = builder.Add("Shape", {slot_mapping});
  Value* token = builder.Add("Range", {zero, builder.Add("Squeeze", {count}), one});
  Value* most = builder.Ints({std::numeric_limits<int32_t>::max()});
  Value* ends =
      builder.Add("Slice", {wide(query_start_loc), builder.Ints({1}), most, builder.Ints({0})});
  Value* behind =
      builder.Add("GreaterOrEqual", {builder.Add("Unsqueeze", {token, builder.Ints({1})}),
                                     builder.Add("Unsqueeze", {ends, builder.Ints({0})})});
  Value* sequence = builder.Add("ReduceSum", {wide(behind), builder.Ints({1})}, {{"keepdims", 0}});
  Value* length = builder.Add("Gather", {wide(seq_lens), sequence});
  Value* to_end = builder.Add("Sub", {builder.Add("Gather", {ends, sequence}), token});
  Value* visible = builder.Add("Add", {builder.Add("Sub", {length, to_end}), one});
  const auto narrow = [&](Value* value) { return builder.Cast(value, DataType::kInt32); };
  return {.sequence = narrow(sequence),
          .visible = narrow(visible),
          .none = narrow(builder.Add("Mul", {sequence, zero}))};
}

namespace {

// The slots of the chosen rows [T, most], and the cache of index keys with the new ones.
struct ChosenRows {
  Value* slots = nullptr;
  Value* index_cache = nullptr;
};

ChosenRows ChooseRows(GraphBuilder& builder, const KeySelection& selection,
                      const LatentCacheInputs& inputs) {
  Value* keys = builder.Reshape(selection.key, {-1, selection.size});
  Value* cache =
      builder.AddOurs("MlaCacheInsert", {keys, nullptr, inputs.slot_mapping, inputs.index_cache});
  Value* weights = builder.Reshape(selection.weights, {-1, selection.heads});
  if (weights->dtype() != DataType::kFloat) weights = builder.Cast(weights, DataType::kFloat);
  Value* query = builder.Reshape(selection.query, {-1, selection.heads, selection.size});
  Value* scores = builder.AddOurs(
      "PagedMqaLogits",
      {query, cache, weights, inputs.seq_lens, inputs.block_table, nullptr, inputs.query_start_loc},
      {{"format", "bf16"}});
  const TokenOwners& owners = *inputs.owners;
  Value* chosen = builder.AddOurs("IndexerTopK", {scores, owners.none, owners.visible},
                                  {{"topk", selection.most}});
  Node* slots =
      builder.AddNode("pagefuse", "ReqIndexToSlot", {owners.sequence, inputs.block_table, chosen},
                      2, {{"block_size", inputs.block_size}});
  return {.slots = slots->output(0), .index_cache = cache};
}

}  // namespace

AttendedRows AttendLatentRows(GraphBuilder& builder, const Node& attention,
                              const LatentMatch& match, const LatentCacheInputs& inputs,
                              float scale) {
  Value* latent = builder.Reshape(match.latent, {-1, match.latent_size});
  Value* k_pe = builder.Reshape(match.k_pe, {-1, match.rope_size});
  Value* cache =
      builder.AddOurs("MlaCacheInsert", {latent, k_pe, inputs.slot_mapping, inputs.cache});
  Value* query =
      PackedHeads(builder, attention.input(Attention::kQuery), match.heads, match.row_size());
  std::vector<Value*> ports(kSparseMlaIn["query_start_loc"] + 1);
  ports[kSparseMlaIn["q"]] = query;
  ports[kSparseMlaIn["kv_cache"]] = cache;
  AttendedRows result{.cache = cache};
  if (match.selection) {
    const ChosenRows chosen = ChooseRows(builder, *match.selection, inputs);
    ports[kSparseMlaIn["indices"]] = chosen.slots;
    result.index_cache = chosen.index_cache;
  } else {
    ports[kSparseMlaIn["block_table"]] = inputs.block_table;
    ports[kSparseMlaIn["seq_lens"]] = inputs.seq_lens;
    ports[kSparseMlaIn["query_start_loc"]] = inputs.query_start_loc;
  }
  while (!ports.back()) ports.pop_back();
  result.attention = builder.AddNode("pagefuse", "SparseMlaAttention", std::move(ports), 1,
                                     {{"scale", scale}, {"head_dim_v", match.latent_size}});
  return result;
}

}  // namespace pagefuse
