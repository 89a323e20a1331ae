// SPDX-License-Identifier: Apache-2.0
// insert-paged-cache: every Attention node reads and writes a paged cache, and the step's tokens
// are packed.
//
//   y, present_k?, present_v? = Attention <is_causal = 1, left_window_size = W - 1>
//                                         (q, k, v, padding?, past_k?, past_v?)
//     =>  kv_cache_out = PagedCacheInsert (k, v, kv_cache, slot_mapping.window_W)
//         y = PagedAttention <sliding_window = W>
//                            (q, kv_cache_out, query_start_loc, seq_lens, block_table.window_W)
//
// Works on graphs with past/present tensors and on graphs without any cache. The batch becomes one
// row of packed tokens; padding masks disappear, since nothing is padded. Either every Attention
// node is rewritten or none, and only if the rest of the graph provably works on each token alone
// (token_roles.h). Positions that the graph counts itself are those of the packed step afterwards,
// and where it picks the rows of last tokens, all rows go on (select-logits picks them).
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "absl/strings/numbers.h"
#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/shape.h"
#include "pagefuse/ops/cache/cache_groups.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"
#include "pagefuse/passes/analysis/functions/number_ranges.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_ports.h"
#include "pagefuse/passes/edit/nan_guard.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/paging/compressed_attention.h"
#include "pagefuse/passes/paging/grouped_attention.h"
#include "pagefuse/passes/paging/key_bias.h"
#include "pagefuse/passes/paging/packed_heads.h"
#include "pagefuse/passes/paging/paged_attention_uses.h"
#include "pagefuse/passes/paging/paged_logits.h"
#include "pagefuse/passes/paging/paging.h"
#include "pagefuse/passes/paging/premises.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

using ports::Attention;
using AttentionUse = PagedAttentionSite;

constexpr char kName[] = "insert-paged-cache";
constexpr int kHeadSink = kPagedAttentionIn["head_sink"];
constexpr int kAlibiSlopes = kPagedAttentionIn["alibi_slopes"];

class PagedCacheInserter {
 public:
  PagedCacheInserter(Model& model, int64_t block_size, Premises premises = {})
      : model_(model),
        graph_(*model.graph),
        block_size_(block_size),
        premises_(std::move(premises)) {}

  // OK with `changed` false if there is no Attention; FailedPrecondition, nothing changed, if one
  // cannot be paged.
  absl::StatusOr<bool> Run() {
    PF_ASSIGN_OR_RETURN(uses_, FindPagedAttention(model_, contents_));
    if (uses_.empty()) return false;
    PF_ASSIGN_OR_RETURN(DecoderInputs inputs, DecoderInputsOf(graph_, uses_));
    found_inputs_ = true;
    PF_RETURN_IF_ERROR(CheckPremises(premises_, inputs, uses_));
    PF_ASSIGN_OR_RETURN(const TokenTrace trace, TraceTokensOf(graph_, uses_, inputs, contents_));
    PF_RETURN_IF_ERROR(CheckFinite());
    for (const AttentionUse& use : uses_) premises_.LimitTokens(use.most_keys);
    FreeStepNames(graph_);
    PF_ASSIGN_OR_RETURN(const DecoderLogits logits, FindLogits(graph_, inputs, trace));
    const bool needs_positions = !trace.places.empty() || !trace.cuts.empty() ||
                                 std::ranges::any_of(uses_, [](const AttentionUse& use) {
                                   return use.compressed.has_value();
                                 });
    positions_ = PackTokenInputs(graph_, inputs, needs_positions);
    ReplacePlaces(graph_, trace, positions_);
    PassOnAllRows(graph_, trace);
    AddStepInputs();
    AddTokenOwners();
    for (size_t layer = 0; layer < uses_.size(); ++layer) {
      PF_RETURN_IF_ERROR(Rewrite(uses_[layer], static_cast<int>(layer)));
    }
    EraseDeadNodes(graph_, contents_);
    for (Value* output : cache_outputs_) graph_.AddOutput(output);
    PF_RETURN_IF_ERROR(DropSizedInputs(graph_, inputs));
    EraseDeadNodes(graph_, contents_);
    FinishLogits(graph_, logits);
    ForgetShapes(graph_);
    WriteGroups();
    if (!inputs.zero_inputs.empty()) {
      SetMetadata(model_.metadata, "pagefuse.zero_inputs",
                  nlohmann::json(inputs.zero_inputs).dump());
    }
    if (!pasts_.empty()) SetMetadata(model_.metadata, "pagefuse.pasts", pasts_.dump());
    WritePremises(model_, premises_);
    model_.opset_imports["pagefuse"] = 1;
    return true;
  }

  // Whether inputs were found to be those of a decoder.
  bool found_inputs() const { return found_inputs_; }

 private:
  struct Group {
    CacheGroup layers;
    Value* block_table = nullptr;
    Value* slot_mapping = nullptr;
  };

  // What infinities and NaN come to depends on keys that a query does not see, which paged attention
  // never looks at, and a query whose scores all are minus infinity sees none there.
  absl::Status CheckFinite() {
    NumberRanges ranges(contents_);
    for (const AttentionUse& use : uses_) {
      if (use.key_bias) TakeBiasAsEstimated(*use.node, ranges);
      const bool guarded = FindNanGuard(*use.node->output(0)).has_value();
      for (const int port : {Attention::kQuery, Attention::kKey, Attention::kValue}) {
        // A guard makes nothing of a row of such a query.
        const Value* input = guarded && port == Attention::kQuery ? nullptr : use.node->input(port);
        PF_RETURN_IF_ERROR(CheckFinite(*use.node, input, ranges));
      }
      for (const Value* part : IndexPartsOf(use)) {
        PF_RETURN_IF_ERROR(CheckFinite(*use.node, part, ranges));
      }
      if (!guarded) PF_RETURN_IF_ERROR(CheckProducts(*use.node, ranges));
      PF_ASSIGN_OR_RETURN(const float scale, use.node->FloatAttribute("scale", 1.0f));
      if (!std::isfinite(scale)) {
        return Unfit(*use.node, StrCat("expected a finite scale, got ", scale));
      }
    }
    return absl::OkStatus();
  }

  static absl::Status CheckFinite(const Node& node, const Value* value, NumberRanges& ranges) {
    const Value* cause = value ? ranges.CauseOf(value) : nullptr;
    if (!cause) return absl::OkStatus();
    return Unfit(node, StrCat("expected finite numbers in \"", value->name(), "\", got what \"",
                              cause->name(), "\" may be"));
  }

  // What the scores are computed of by which an indexer chooses; a score of NaN is chosen before all
  // others, of a key that is not seen, too.
  static std::vector<const Value*> IndexPartsOf(const AttentionUse& use) {
    if (use.latent && use.latent->selection) {
      const KeySelection& chosen = *use.latent->selection;
      return {chosen.query, chosen.key, chosen.weights};
    }
    if (use.compressed && use.compressed->choice) {
      const WindowChoice& choice = *use.compressed->choice;
      return {choice.query, choice.weights, choice.keys.kv, choice.keys.gate};
    }
    return {};
  }

  // A graph may scale queries and keys before it multiplies them, paged attention scales the products.
  static absl::Status CheckProducts(const Node& node, NumberRanges& ranges) {
    constexpr double kWidestHead = 1024;
    const NumberRange queries = ranges.Input(node, Attention::kQuery);
    const NumberRange keys = ranges.Input(node, Attention::kKey);
    const NumberRange products = SumOfProducts(queries, keys, kWidestHead);
    const bool known = queries.finite() && keys.finite();
    if (!known || Within(DataType::kFloat, products).finite()) return absl::OkStatus();
    return Unfit(node, StrCat("expected products of queries and keys that a float holds, got some "
                              "estimated at ",
                              products.typical));
  }

  static CacheGroupKey KeyOf(const AttentionUse& use) {
    return use.window == 0 ? CacheGroupKey::Full() : CacheGroupKey::Window(use.window);
  }

  Group& GroupOf(const AttentionUse& use) { return groups_.at(KeyOf(use)); }

  Value* AddStepInput(const std::string& name, DataType dtype, Shape shape) {
    return graph_.AddInput(graph_.UniqueName(name), dtype, std::move(shape));
  }

  void AddStepInputs() {
    const Dim sequences = Dim::Symbol("num_sequences");
    query_start_loc_ = AddStepInput("query_start_loc", DataType::kInt32, Shape{sequences + Dim(1)});
    seq_lens_ = AddStepInput("seq_lens", DataType::kInt32, Shape{sequences});
    for (const AttentionUse& use : uses_) {
      for (const CacheGroupKey& key : KeysOf(use)) AddGroup(key);
    }
  }

  // The use's own group, and those of what it compresses.
  static std::vector<CacheGroupKey> KeysOf(const AttentionUse& use) {
    std::vector<CacheGroupKey> keys = {KeyOf(use)};
    if (!use.compressed || !use.compressed->rows) return keys;
    const CompressedRows& rows = *use.compressed->rows;
    keys.push_back(StateKey(rows));
    if (use.compressed->choice) keys.push_back(StateKey(use.compressed->choice->keys));
    keys.push_back(CacheGroupKey::Compressed(rows.ratio));
    return keys;
  }

  static CacheGroupKey StateKey(const CompressedRows& rows) {
    return CacheGroupKey::State(rows.ratio, rows.overlap);
  }

  void AddGroup(const CacheGroupKey& key) {
    if (groups_.contains(key)) return;
    Group& group = groups_[key];
    group.layers = MakeCacheGroup(key, block_size_);
    const std::string& name = group.layers.name;
    group.block_table =
        AddStepInput("block_table." + name, DataType::kInt32,
                     Shape{Dim::Symbol("num_sequences"), Dim::Symbol("max_blocks." + name)});
    group.slot_mapping =
        AddStepInput("slot_mapping." + name, DataType::kInt64, Shape{Dim::Symbol("num_tokens")});
  }

  // Read by the uses that choose among their rows, before the first of which they are computed.
  void AddTokenOwners() {
    for (const AttentionUse& use : uses_) {
      if (!use.compressed && (!use.latent || !use.latent->selection)) continue;
      GraphBuilder builder(graph_, use.node, "tokens");
      owners_ = FindTokenOwners(builder, GroupOf(use).slot_mapping, seq_lens_, query_start_loc_);
      return;
    }
  }

  Value* AddCache(const AttentionUse& use, const std::string& name, std::vector<Dim> row) {
    return AddCache(KeyOf(use), use.dtype, name, std::move(row));
  }

  Value* AddCache(const CacheGroupKey& key, DataType dtype, const std::string& name,
                  std::vector<Dim> row) {
    CacheGroup& layers = groups_.at(key).layers;
    row.insert(row.begin(), {Dim::Symbol("num_blocks." + layers.name), Dim(layers.block_size)});
    Value* cache = graph_.AddInput(graph_.UniqueName(name), dtype, Shape(std::move(row)));
    layers.caches.push_back(cache->name());
    return cache;
  }

  void AddCacheOutput(Value* value, int layer, std::string_view part) {
    graph_.Rename(value, graph_.UniqueName(StrCat("kv_cache_out.", layer, ".", part)));
    cache_outputs_.push_back(value);
  }

  absl::Status Rewrite(const AttentionUse& use, int layer) {
    Node* node = use.node;
    GraphBuilder builder(graph_, node, StrCat("layers.", layer));
    Node* attention = nullptr;
    if (use.latent) {
      PF_ASSIGN_OR_RETURN(attention, AttendLatent(builder, use, layer));
    } else if (use.compressed) {
      attention = AttendRows(builder, use, layer);
    } else {
      PF_ASSIGN_OR_RETURN(attention, AttendHeads(builder, use, layer));
    }
    TakePlace(*attention, *node);
    const int64_t heads = use.latent ? use.latent->heads : use.query_heads;
    const int64_t size = use.latent ? use.latent->latent_size : use.value_size;
    const std::optional<NanGuard> guard = FindNanGuard(*node->output(0));
    Value* rows = attention->output(0);
    if (guard) rows = GuardedRows(builder, *guard, rows);
    if (size < use.row_size()) {
      rows =
          builder.Add("Slice", {rows, builder.Ints({0}), builder.Ints({size}), builder.Ints({-1})});
    }
    Value* result = builder.SwapHeadsAndTokens(builder.Reshape(rows, {1, -1, heads, size}));
    graph_.ReplaceAllUses(guard ? guard->result : node->output(0), result);
    return absl::OkStatus();
  }

  GroupInputs InputsOf(const CacheGroupKey& key) const {
    const Group& group = groups_.at(key);
    return {group.block_table, group.slot_mapping, group.layers.block_size};
  }

  // Over a window, and over what is compressed.
  Node* AttendRows(GraphBuilder& builder, const AttentionUse& use, int layer) {
    const CompressedMatch& compressed = *use.compressed;
    CompressedStep step{.window = InputsOf(KeyOf(use)),
                        .positions = positions_,
                        .seq_lens = seq_lens_,
                        .query_start_loc = query_start_loc_,
                        .owners = &owners_};
    const auto part = [&](std::string_view name) { return StrCat("kv_cache.", layer, ".", name); };
    CompressedCaches caches;
    caches.row = AddCache(use, part("row"), {Dim(compressed.size)});
    if (compressed.rows) {
      const CompressedRows& rows = *compressed.rows;
      const CacheGroupKey windows = CacheGroupKey::Compressed(rows.ratio);
      step.state = InputsOf(StateKey(rows));
      step.compressed = InputsOf(windows);
      caches.state = AddCache(StateKey(rows), DataType::kFloat, part("compressor_state"),
                              {Dim(2 * rows.width())});
      caches.compressed = AddCache(windows, use.dtype, part("compressed"), {Dim(rows.size)});
    }
    if (compressed.choice) {
      const CompressedRows& keys = compressed.choice->keys;
      step.index_state = InputsOf(StateKey(keys));
      caches.index_state = AddCache(StateKey(keys), DataType::kFloat, part("indexer_state"),
                                    {Dim(2 * keys.width())});
      caches.compressed_index = AddCache(CacheGroupKey::Compressed(keys.ratio), use.dtype,
                                         part("compressed_index"), {Dim(keys.size)});
    }
    Node* attention = AttendCompressed(builder, *use.node, compressed, step, caches);
    const std::pair<Value*, std::string_view> updated[] = {
        {caches.row, "row"},
        {caches.state, "compressor_state"},
        {caches.compressed, "compressed"},
        {caches.index_state, "indexer_state"},
        {caches.compressed_index, "compressed_index"}};
    for (const auto& [cache, name] : updated) {
      if (cache) AddCacheOutput(cache, layer, name);
    }
    return attention;
  }

  absl::StatusOr<Node*> AttendLatent(GraphBuilder& builder, const AttentionUse& use, int layer) {
    if (!use.node->attribute("scale")) return Unfit(*use.node, "has no scale");
    PF_ASSIGN_OR_RETURN(const float scale, use.node->FloatAttribute("scale", 0.0f));
    Value* cache =
        AddCache(use, StrCat("kv_cache.", layer, ".latent"), {Dim(use.latent->row_size())});
    Value* index_cache = nullptr;
    if (use.latent->selection) {
      index_cache = AddCache(use, StrCat("kv_cache.", layer, ".index_key"),
                             {Dim(use.latent->selection->size)});
    }
    const Group& group = GroupOf(use);
    const AttendedRows rows = AttendLatentRows(builder, *use.node, *use.latent,
                                               {.cache = cache,
                                                .index_cache = index_cache,
                                                .block_size = block_size_,
                                                .slot_mapping = group.slot_mapping,
                                                .block_table = group.block_table,
                                                .seq_lens = seq_lens_,
                                                .query_start_loc = query_start_loc_,
                                                .owners = &owners_},
                                               scale);
    AddCacheOutput(rows.cache, layer, "latent");
    if (rows.index_cache) AddCacheOutput(rows.index_cache, layer, "index_key");
    return rows.attention;
  }

  // Which input of the graph as it was exported has the rows of a cache, and where. That is not told
  // where it is past_key_values.N.key [B, H, P, D] for kv_cache.N.key. Who has data for that graph
  // asks (tools/check).
  void NotePast(const Value& cache, const CachePast& past, int64_t channels) {
    const std::string usual =
        StrCat("past_key_values", cache.name().substr(std::string_view("kv_cache").size()));
    const std::vector<std::string> axes = {"batch", "head", "token", "channel"};
    // Of one head, or one sequence, the axis is 0.
    const bool in_order = past.place.empty() && past.axes.size() == axes.size() &&
                          past.axes[2] == axes[2] && past.axes[3] == axes[3];
    const bool whole = cache.shape()->back(0).constant() == channels;
    if (past.input->name() == usual && in_order && whole) return;
    nlohmann::json& noted = pasts_[cache.name()];
    noted = {{"input", past.input->name()}, {"axes", past.axes}};
    if (!whole) noted["channels"] = channels;
  }

  // Keys and values of a cache are of one size: zeros behind the shorter ones change no score, and the
  // columns that they give the result are cut off.
  static Value* PackedRows(GraphBuilder& builder, const AttentionUse& use, int port) {
    const int64_t heads = port == Attention::kQuery ? use.query_heads : use.kv_heads;
    const int64_t size = port == Attention::kValue ? use.value_size : use.head_size;
    Value* rows = PackedHeads(builder, use.node->input(port), heads, size);
    if (size == use.row_size()) return rows;
    return builder.Add("Pad", {rows, builder.Ints({0, 0, 0, 0, 0, use.row_size() - size})});
  }

  // Layers that share keys and values share their cache: the first of them writes it.
  const Node* InsertOf(GraphBuilder& builder, const AttentionUse& use, int layer) {
    Value* heads[] = {use.node->input(Attention::kKey), use.node->input(Attention::kValue)};
    const Node*& insert = inserts_[{heads[0], heads[1], use.window}];
    if (insert) return insert;
    Value* key = PackedRows(builder, use, Attention::kKey);
    Value* value = PackedRows(builder, use, Attention::kValue);
    const std::vector<Dim> row = {Dim(use.kv_heads), Dim(use.row_size())};
    Value* key_cache = AddCache(use, StrCat("kv_cache.", layer, ".key"), row);
    Value* value_cache = AddCache(use, StrCat("kv_cache.", layer, ".value"), row);
    Node* node =
        builder.AddNode("pagefuse", "PagedCacheInsert",
                        {key, value, key_cache, value_cache, GroupOf(use).slot_mapping}, 2);
    AddCacheOutput(node->output(0), layer, "key");
    AddCacheOutput(node->output(1), layer, "value");
    for (size_t i = 0; i < use.pasts.size(); ++i)
      NotePast(*(i ? value_cache : key_cache), use.pasts[i], i ? use.value_size : use.head_size);
    return insert = node;
  }

  absl::StatusOr<Node*> AttendHeads(GraphBuilder& builder, const AttentionUse& use, int layer) {
    Value* query = PackedRows(builder, use, Attention::kQuery);
    const Node* insert = InsertOf(builder, use, layer);
    const Group& group = GroupOf(use);
    PF_ASSIGN_OR_RETURN(const Attributes attributes, AttributesOf(use));
    Node* attention = builder.AddNode("pagefuse", "PagedAttention",
                                      {query, insert->output(0), insert->output(1),
                                       query_start_loc_, seq_lens_, group.block_table},
                                      1, attributes);
    if (use.sinks) attention->SetInput(kHeadSink, use.sinks);
    if (use.slopes) attention->SetInput(kAlibiSlopes, use.slopes);
    return attention;
  }

  static absl::StatusOr<Attributes> AttributesOf(const AttentionUse& use) {
    const float default_scale = 1.0f / std::sqrt(static_cast<float>(use.head_size));
    PF_ASSIGN_OR_RETURN(float scale, use.node->FloatAttribute("scale", default_scale));
    PF_ASSIGN_OR_RETURN(float softcap, use.node->FloatAttribute("softcap", 0.0f));
    Attributes attributes = {{"scale", scale}, {"is_causal", 1}};
    if (use.window > 0) attributes.Add("sliding_window", use.window);
    // c * tanh(x / c) is the same for -c.
    if (softcap != 0) attributes.Add("softcap", std::abs(softcap));
    return attributes;
  }

  void WriteGroups() {
    std::vector<CacheGroup> groups;
    for (const auto& [key, group] : groups_) groups.push_back(group.layers);
    WriteCacheGroups(model_, groups);
  }

  Model& model_;
  Graph& graph_;
  int64_t block_size_;
  Premises premises_;  // empty: it is paged for all requests
  bool found_inputs_ = false;
  SymbolicContents contents_;
  std::vector<AttentionUse> uses_;
  std::map<std::tuple<const Value*, const Value*, int64_t>, const Node*> inserts_;
  std::map<CacheGroupKey, Group> groups_;
  TokenOwners owners_;
  Value* positions_ = nullptr;
  Value* query_start_loc_ = nullptr;
  Value* seq_lens_ = nullptr;
  std::vector<Value*> cache_outputs_;
  nlohmann::json pasts_ = nlohmann::json::object();
};

absl::StatusOr<bool> Insert(Model& model, PassContext& context) {
  const std::string text = context.Option("block_size", "16");
  int64_t block_size = 0;
  if (!absl::SimpleAtoi(text, &block_size) || block_size < 1 || block_size > kMaxBlockSize) {
    return absl::InvalidArgumentError(
        StrCat(kName, ": block_size: expected 1 to ", kMaxBlockSize, ", got \"", text, "\""));
  }
  // Work on a copy, so that a graph that cannot be paged stays as it was.
  Model copy = model.Clone();
  auto changed = PagedCacheInserter(copy, block_size).Run();
  for (const bool bars : {false, true}) {
    if (!absl::IsFailedPrecondition(changed.status())) break;
    copy = model.Clone();
    const auto premises = TakePremises(copy, bars);
    if (absl::IsFailedPrecondition(premises.status())) break;
    PF_RETURN_IF_ERROR(premises.status());
    if (!*premises) continue;
    PagedCacheInserter inserter(copy, block_size, **premises);
    auto tried = inserter.Run();
    // What says that inputs are none of a decoder speaks of nodes that were settled by them.
    if (!absl::IsFailedPrecondition(tried.status()) || inserter.found_inputs()) changed = tried;
  }
  if (absl::IsFailedPrecondition(changed.status())) {
    context.AddMissedMatch(kName, "graph", StdView(changed.status().message()));
    return false;
  }
  if (changed.ok() && *changed) {
    model = std::move(copy);
    ++context.counts[kName];
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> InsertPagedCache() {
  return MakePass(
      kName,
      "Packs the tokens of all sequences of a step and makes every Attention read and write a "
      "paged cache.",
      Insert, {{"block_size", "tokens a block of the cache, 16 by default"}});
}

}  // namespace pagefuse
