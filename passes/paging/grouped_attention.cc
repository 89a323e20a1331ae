// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/grouped_attention.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/functions/number_ranges.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/analysis/masks/mask_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/graph_ports.h"
#include "pagefuse/passes/edit/ports.h"

namespace pagefuse {
namespace {

using Gqa = ports::GroupQueryAttention;

float FloatOr(const Node& node, std::string_view name, float otherwise) {
  const auto value = node.FloatAttribute(name, otherwise);
  return value.ok() ? *value : otherwise;
}

// The input [B, T] that lengths are counted from, or null.
const Value* CountedInput(const Value* value) {
  constexpr int kLongestChain = 16;
  for (int i = 0; i < kLongestChain && value; ++i) {
    if (value->is_input()) return value;
    const Node* node = value->producer();
    value = node && node->num_inputs() > 0 ? node->input(0) : nullptr;
  }
  return nullptr;
}

// The number that all elements of the value are, unknown if they are not known to be the same.
// `sequence`: new tokens, of which there is one at least where anything is computed.
Dim NumberOfAll(const Value* value, const Dim& sequence, const SymbolicContents& contents) {
  IndexingAnalysis reader(contents, Trust::kNothing);
  reader.Assume({IndexExpr(sequence - Dim(1))});
  const auto places = reader.Places(const_cast<Value*>(value));
  const IndexExpr number = places.ok() ? reader.ReadIndex(*places) : IndexExpr(Dim::Unknown());
  return number.is_constant() ? number.constant() : Dim::Unknown();
}

// True if each row has all tokens before the new ones and these as keys, whatever a mask says.
bool CountsAll(const Node& node, const SymbolicContents& contents) {
  const Value* past = node.input(Gqa::kPastKey);
  const auto& query = node.input(Gqa::kQuery)->shape();
  if (!query || query->rank() != 3 || (past && (!past->shape() || past->shape()->rank() != 4))) {
    return false;
  }
  const Dim& sequence = (*query)[1];
  const Dim all = (past ? (*past->shape())[2] : Dim(0)) + sequence;
  return ProvablyEqual(NumberOfAll(node.input(Gqa::kLengths), sequence, contents), all - Dim(1)) &&
         ProvablyEqual(NumberOfAll(node.input(Gqa::kTotal), sequence, contents), all);
}

// Lengths count the ones of a mask less one, and the total is the mask's length; or both are inputs
// that nothing else reads; or they are those of all tokens. The mask, null if there is none.
absl::StatusOr<const Value*> ReadLengths(const Node& node, const SymbolicContents& contents) {
  const Value* lengths = node.input(Gqa::kLengths);
  const Value* total = node.input(Gqa::kTotal);
  if (!lengths || !total) return Unfit(node, "its lengths are missing");
  if (lengths->is_input() && total->is_input()) return nullptr;
  if (CountsAll(node, contents)) return nullptr;
  const Value* mask = CountedInput(lengths);
  if (!mask || !mask->shape() || mask->shape()->rank() != 2) {
    return Unfit(node, StrCat("\"", lengths->name(),
                              "\": expected the ones of a mask [B, T], or all "
                              "tokens, less one"));
  }
  const Dim length = (*mask->shape())[1];
  IndexingAnalysis reader(contents, Trust::kNothing);
  reader.TakeAs(mask, 1);
  const auto places = reader.Places(const_cast<Value*>(lengths));
  const IndexExpr counted = places.ok() ? reader.ReadIndex(*places) : IndexExpr(Dim::Unknown());
  if (!counted.is_constant() || !ProvablyEqual(counted.constant(), length - Dim(1))) {
    return Unfit(node, StrCat("\"", lengths->name(), "\": expected the ones of \"", mask->name(),
                              "\" in each row, less one"));
  }
  const auto known = KnownDims(total, contents);
  if (!known || known->size() != 1 || !ProvablyEqual((*known)[0], length)) {
    return Unfit(node, StrCat("\"", total->name(), "\": expected the length ", length.ToString(),
                              " of \"", mask->name(), "\""));
  }
  return mask;
}

// The window of a node under what its bias hides, 0 for none. The bias may hide keys behind a query,
// keys a fixed distance before it, and the padding that lengths are counted from: all that the node
// hides itself, or by its window. Anything else would be left out of the scores.
absl::StatusOr<int64_t> WindowUnderBias(const Node& node, const SymbolicContents& contents) {
  const int64_t own = std::max<int64_t>(IntOr(node, "local_window_size", -1), 0);
  const Value* bias = node.input(Gqa::kBias);
  if (!bias) return own;
  const auto unfit = [&](std::string_view why) {
    return Unfit(node, StrCat("attention_bias \"", bias->name(), "\": ", why));
  };
  const absl::StatusOr<MaskForm> form = AnalyseMask(bias, contents);
  if (!form.ok()) {
    return unfit(StrCat("expected a mask of padding and distance, got a bias on scores; ",
                        StdView(form.status().message())));
  }
  // Of queries and keys that are packed no more is known than that they are near 1.
  constexpr double kChannels = 256, kLeastScale = 1.0 / 16;
  const double scale = std::max<double>(FloatOr(node, "scale", 0), kLeastScale);
  const NumberRange scores = ScoresOf({}, {}, {.count = kChannels, .scale = scale});
  if (form->low > HidingNumber(scores)) {
    return unfit(StrCat(form->low, " hides no key from scores that may be as low"));
  }
  const Value* counted = CountedInput(node.input(Gqa::kLengths));
  if (form->padding && form->padding != counted) {
    return unfit(StrCat("expected padding of \"", counted ? counted->name() : "",
                        "\", which lengths are counted from, got \"", form->padding->name(), "\""));
  }
  if (!form->upper && !form->lower) return own;
  const auto total = KnownDims(node.input(Gqa::kTotal), contents);
  const auto& query = node.input(Gqa::kQuery)->shape();
  if (!total || total->size() != 1 || !query || query->rank() != 3) {
    return unfit("expected a total length that is known, for limits by distance");
  }
  const Dim& length = (*query)[1];
  if (!ProvablyEqual(form->queries, length) || !ProvablyEqual(form->keys, (*total)[0])) {
    return unfit(StrCat("expected limits over ", length.ToString(), " queries and ",
                        (*total)[0].ToString(), " keys, got ", form->queries.ToString(), " and ",
                        form->keys.ToString()));
  }
  // Query 0 is key total - length.
  const Dim own_key = (*total)[0] - length;
  if (form->upper && !ProvablyEqual(*form->upper, own_key)) {
    return unfit(StrCat("expected keys up to i + ", own_key.ToString(), ", got i + ",
                        form->upper->ToString()));
  }
  if (!form->lower) return own;
  const auto width = (own_key - *form->lower + Dim(1)).constant();
  if (!width || *width < 1) return unfit("its window has no constant positive width");
  return own > 0 ? std::min(own, *width) : *width;
}

// What is read of a node before any gives way to others: what these compute has no shape yet.
struct Site {
  int64_t window = 0;  // keys that a query sees, 0: all
  int64_t head_size = 0;
  Dim batch, sequence;
  const Value* lengths = nullptr;  // the mask whose ones count its keys, or null
  Dim past = {};                   // tokens before the new ones
};

class Lowering {
 public:
  Lowering(Model& model, const SymbolicContents& contents, const GroupedAttentionNotes& notes)
      : graph_(*model.graph), contents_(contents), notes_(notes) {}

  absl::StatusOr<bool> Run() {
    const std::vector<Node*> nodes = NodesOf(graph_, "GroupQueryAttention", "com.microsoft");
    for (const Node* node : nodes) {
      PF_RETURN_IF_ERROR(CheckAttributes(*node));
      PF_RETURN_IF_ERROR(CheckPresentsUnread(*node));
      PF_ASSIGN_OR_RETURN(sites_[node], Read(*node));
      PF_RETURN_IF_ERROR(CheckSameLengths(*nodes[0], *node));
      PF_RETURN_IF_ERROR(NotePasts(*node));
    }
    for (Node* node : nodes) Lower(node);
    return !nodes.empty();
  }

 private:
  static absl::Status CheckAttributes(const Node& node) {
    if (IntOr(node, "causal", 1) != 1) return Unfit(node, "is not causal");
    if (IntOr(node, "local_window_size", -1) == 0) {
      return Unfit(node,
                   "local_window_size: expected -1 or a window of 1 key or more, got 0, "
                   "which hides all keys");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Site> Read(const Node& node) const {
    const auto& shape = node.input(Gqa::kQuery)->shape();
    if (!shape || shape->rank() != 3 || !shape->back(0).is_constant()) {
      return Unfit(node, "its query must be [B, S, H * D] with known size");
    }
    const int64_t heads = IntOr(node, "num_heads", 0);
    const int64_t parts = heads + (node.input(Gqa::kKey) ? 0 : 2 * IntOr(node, "kv_num_heads", 0));
    const int64_t columns = *shape->back(0).constant();
    if (heads < 1 || IntOr(node, "kv_num_heads", 0) < 1 || columns % parts != 0) {
      return Unfit(node, StrCat("its query has ", columns, " columns for ", parts, " heads"));
    }
    Site site{.head_size = columns / parts, .batch = (*shape)[0], .sequence = (*shape)[1]};
    PF_ASSIGN_OR_RETURN(site.lengths, ReadLengths(node, contents_));
    PF_ASSIGN_OR_RETURN(site.past, PastOf(node, site));
    PF_ASSIGN_OR_RETURN(site.window, WindowUnderBias(node, contents_));
    return site;
  }

  // As many keys as the mask has ones, less the new tokens; without a mask those that are given.
  static absl::StatusOr<Dim> PastOf(const Node& node, const Site& site) {
    const Value* given = node.input(Gqa::kPastKey);
    if (!site.lengths && node.input(Gqa::kLengths)->is_input()) return Dim::Unknown();
    if (!given) return Dim(0);
    if (!site.lengths) return (*given->shape())[2];
    const Dim past = (*site.lengths->shape())[1] - site.sequence;
    if (past.constant() != 0) return past;
    return Unfit(
        node, StrCat("has a past, and \"", site.lengths->name(), "\" counts the new tokens alone"));
  }

  absl::Status CheckSameLengths(const Node& first, const Node& node) const {
    const Site &a = sites_.at(&first), &b = sites_.at(&node);
    const bool same_inputs = first.input(Gqa::kLengths) == node.input(Gqa::kLengths) &&
                             first.input(Gqa::kTotal) == node.input(Gqa::kTotal);
    // Without masks, lengths of all tokens are the same if the pasts are.
    const bool same =
        a.lengths == b.lengths && (a.lengths || same_inputs || ProvablyEqual(a.past, b.past));
    if (same) return absl::OkStatus();
    return Unfit(node,
                 StrCat("\"", node.input(Gqa::kLengths)->name(), "\": expected the lengths that ",
                        first.Description(), " has, \"", first.input(Gqa::kLengths)->name(), "\""));
  }

  // What ONNX Runtime reads of a past are the rows of the keys and values that earlier calls of the
  // same node gave back: those of the paged cache, if they come back as they are.
  absl::Status NotePasts(const Node& node) {
    if (notes_.packed_lengths && node.input(Gqa::kLengths) == notes_.packed_lengths) {
      return absl::OkStatus();
    }
    const Value* const pasts[] = {node.input(Gqa::kPastKey), node.input(Gqa::kPastValue)};
    if (!pasts[0] && !pasts[1]) {
      notes_.pasts.NoteNone(node);
      return absl::OkStatus();
    }
    for (const bool keys : {true, false}) {
      const Value* past = pasts[keys ? 0 : 1];
      if (!past || !past->is_input() || past->initializer()) {
        return Unfit(node, StrCat("past ", keys ? "keys" : "values",
                                  ": expected an input of the graph, got ",
                                  past ? StrCat("\"", past->name(), "\"") : "none"));
      }
      const Value* present = node.output(keys ? Gqa::kPresentKey : Gqa::kPresentValue);
      PF_RETURN_IF_ERROR(notes_.pasts.Note(
          node, {.past = past,
                 .role = keys ? "keys" : "values",
                 .present = present && present->is_output() ? present : nullptr}));
    }
    return absl::OkStatus();
  }

  // [B, S, n * D] as [B, n, S, D].
  static Value* Heads(GraphBuilder& builder, Value* rows, int64_t heads, int64_t head_size) {
    return builder.SwapHeadsAndTokens(builder.Reshape(rows, {0, 0, heads, head_size}));
  }

  Value* PositionIds(const Node& node) {
    if (node.input(Gqa::kPositionIds)) return node.input(Gqa::kPositionIds);
    if (!positions_) {
      const Site& site = sites_.at(&node);
      positions_ = graph_.AddInput(graph_.UniqueName("position_ids"), DataType::kInt64,
                                   Shape{site.batch, site.sequence});
      SetMetadata(positions_->metadata, kCountedBy, node.Description());
    }
    return positions_;
  }

  Value* Normed(GraphBuilder& builder, const Node& node, Value* heads, Gqa::In weight) {
    if (!node.input(weight)) return heads;
    return builder.Add("RMSNormalization", {heads, node.input(weight)},
                       {{"axis", -1}, {"epsilon", FloatOr(node, "qk_norm_epsilon", 1e-6f)}});
  }

  Value* Rotated(GraphBuilder& builder, const Node& node, Value* heads) {
    if (IntOr(node, "do_rotary", 0) == 0) return heads;
    Value* ids = PositionIds(node);
    Value* cos = builder.Add("Gather", {node.input(Gqa::kCos), ids});
    Value* sin = builder.Add("Gather", {node.input(Gqa::kSin), ids});
    Attributes attributes = {{"interleaved", IntOr(node, "rotary_interleaved", 0)}};
    const auto& table = node.input(Gqa::kCos)->shape();
    if (table && table->back(0).constant()) {
      attributes.Add("rotary_embedding_dim", *table->back(0).constant() * 2);
    }
    return builder.Add("RotaryEmbedding", {heads, cos, sin}, attributes);
  }

  // What a cache of 8 or 4 bits with `scale` gives back. An empty past says the type, which is that
  // of codes otherwise.
  Value* Rounded(GraphBuilder& builder, const Node& node, Value* heads, Gqa::In scale) {
    const char* type = scale == Gqa::kKeyScale ? "k_quant_type" : "v_quant_type";
    if (!node.input(scale) || StringOr(node, type, "NONE") == "NONE") return heads;
    // Scales are float beside heads of every type.
    const DataType dtype = node.input(Gqa::kQuery)->dtype();
    Value* wide = dtype == DataType::kFloat ? heads : builder.Cast(heads, DataType::kFloat);
    Value* quotient = builder.Add("Div", {wide, node.input(scale)});
    Value* rounded = builder.Add("Mul", {CodesOf(builder, node, quotient), node.input(scale)});
    return dtype == DataType::kFloat ? rounded : builder.Cast(rounded, dtype);
  }

  // The floats that the codes of a cache give back.
  Value* CodesOf(GraphBuilder& builder, const Node& node, Value* quotient) {
    const Value* past = node.input(Gqa::kPastKey);
    if (past && past->dtype() == DataType::kFloat8E4M3FN) {
      Value* kept = builder.Add("Clip", {quotient, builder.Float(-448), builder.Float(448)});
      return builder.Cast(builder.Cast(kept, DataType::kFloat8E4M3FN), DataType::kFloat);
    }
    const float most = IntOr(node, "kv_cache_bit_width", 8) == 4 ? 7.0f : 127.0f;
    Value* codes = builder.Add("Round", {quotient});
    return builder.Add("Clip", {codes, builder.Float(-most - 1), builder.Float(most)});
  }

  void Lower(Node* node) {
    GraphBuilder builder(graph_, node, node->output(0)->name());
    const int64_t heads = IntOr(*node, "num_heads", 0);
    const int64_t kv_heads = IntOr(*node, "kv_num_heads", 0);
    const Site& site = sites_.at(node);
    const int64_t size = site.head_size;
    Value* rows[3] = {node->input(Gqa::kQuery), node->input(Gqa::kKey), node->input(Gqa::kValue)};
    if (!rows[1]) {
      Value* sizes = builder.Ints({heads * size, kv_heads * size, kv_heads * size});
      Node* split = builder.AddNode("", "Split", {rows[0], sizes}, 3, {{"axis", -1}});
      for (int i = 0; i < 3; ++i) rows[i] = split->output(i);
    }
    Value* query = Heads(builder, rows[0], heads, size);
    Value* key = Heads(builder, rows[1], kv_heads, size);
    Value* value = Heads(builder, rows[2], kv_heads, size);
    query = Rotated(builder, *node, Normed(builder, *node, query, Gqa::kQueryNorm));
    key = Rotated(builder, *node, Normed(builder, *node, key, Gqa::kKeyNorm));
    key = Rounded(builder, *node, key, Gqa::kKeyScale);
    value = Rounded(builder, *node, value, Gqa::kValueScale);
    // What is paged reads it where the attention stands.
    Value* sinks = Sinks(builder, *node, heads);
    Node* attention =
        builder.AddNode("", "Attention", {query, key, value}, 1, AttributesOf(*node, site.window));
    attention->name = node->name.empty() ? node->output(0)->name() : node->name;
    attention->metadata = node->metadata;
    notes_.extras.At(attention) = {.sinks = sinks, .lengths = site.lengths, .past = site.past};
    Value* back = builder.SwapHeadsAndTokens(attention->output(0));
    Value* joined = builder.Reshape(back, {0, 0, heads * size});
    for (int present : {Gqa::kPresentKey, Gqa::kPresentValue}) {
      if (node->output(present)) RemoveOutput(graph_, node->output(present));
    }
    ReplaceNode(node, joined);
  }

  static Attributes AttributesOf(const Node& node, int64_t window) {
    Attributes attributes = {{"is_causal", 1}};
    const float scale = FloatOr(node, "scale", 0);
    const float cap = FloatOr(node, "softcap", 0);
    if (scale != 0) attributes.Add("scale", scale);
    if (cap != 0) attributes.Add("softcap", cap);
    if (window > 0) attributes.Add("left_window_size", window - 1);
    return attributes;
  }

  static Value* Sinks(GraphBuilder& builder, const Node& node, int64_t heads) {
    if (Value* sinks = node.input(Gqa::kSink)) {
      // Nothing else may read what computes them, once the op is gone.
      return sinks->producer() ? builder.Add("Identity", {sinks}) : sinks;
    }
    if (IntOr(node, "smooth_softmax", 0) != 1) return nullptr;
    return builder.Add("Expand", {builder.Float(0), builder.Ints({heads})});
  }

  Graph& graph_;
  const SymbolicContents& contents_;
  const GroupedAttentionNotes& notes_;
  Value* positions_ = nullptr;
  absl::flat_hash_map<const Node*, Site> sites_;
};

}  // namespace

absl::Status Unfit(const Node& node, std::string_view why) {
  return absl::FailedPreconditionError(StrCat(node.Description(), ": ", why));
}

absl::Status CheckPresentsUnread(const Node& node) {
  static_assert(int{Gqa::kPresentKey} == int{ports::Attention::kPresentKey} &&
                int{Gqa::kPresentValue} == int{ports::Attention::kPresentValue});
  for (int present : {Gqa::kPresentKey, Gqa::kPresentValue}) {
    const Value* value = node.output(present);
    if (value && !value->uses().empty()) return Unfit(node, "its present is read inside the graph");
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> LowerGroupedAttention(Model& model, const SymbolicContents& contents,
                                           const GroupedAttentionNotes& notes) {
  return Lowering(model, contents, notes).Run();
}

}  // namespace pagefuse
