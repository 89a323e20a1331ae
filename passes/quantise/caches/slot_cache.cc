// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/quantise/caches/slot_cache.h"

#include <algorithm>
#include <bit>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"
#include "pagefuse/ops/pagefuse/cache/paged_cache_insert.h"
#include "pagefuse/ops/pagefuse/turboquant/turboquant_attention.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/graph_ports.h"

namespace pagefuse {
namespace {

constexpr auto& kInsertIn = kPagedCacheInsertIn;
constexpr auto& kInsertOut = kPagedCacheInsertOut;
constexpr auto& kAttentionIn = kPagedAttentionIn;
constexpr auto& kSlotsIn = kTurboQuantAttentionIn;
constexpr int kKeyCache = kInsertIn["key_cache"];
constexpr int kValueCache = kInsertIn["value_cache"];
constexpr int kKeyCacheOut = kInsertOut["key_cache_out"];
constexpr int kValueCacheOut = kInsertOut["value_cache_out"];

TurboQuantFormat FormatOf(const CacheUse& use) {
  const Dim size = use.insert->input(kKeyCache)->shape()->back(0);
  return {use.choice.turboquant->key_bits, use.choice.turboquant->value_bits,
          size.constant().value_or(0)};
}

absl::Status CheckHeads(const CacheUse& use) {
  const Dim key = use.insert->input(kKeyCache)->shape()->back(0);
  const Dim value = use.insert->input(kValueCache)->shape()->back(0);
  if (!key.is_constant() || key.constant() != value.constant()) {
    return CacheUseError(use, *use.insert,
                         StrCat("expected keys and values of one known size, got ", key.ToString(),
                                " and ", value.ToString()));
  }
  const TurboQuantFormat format = FormatOf(use);
  if (const absl::Status fits = CheckHeadSize(format); !fits.ok()) {
    return CacheUseError(use, *use.insert, StdView(fits.message()));
  }
  const bool rotates = std::has_single_bit(static_cast<uint64_t>(format.head_size));
  if (rotates || !format.has_centroids()) return absl::OkStatus();
  return CacheUseError(
      use, *use.insert,
      StrCat("expected a head size that is a power of two, by which keys are rotated, "
             "got ",
             format.head_size));
}

// The inputs of PagedAttention that TurboQuantAttention has too.
bool TakesInput(int port) {
  static constexpr int kTaken[] = {kAttentionIn["query"],       kAttentionIn["key_cache"],
                                   kAttentionIn["value_cache"], kAttentionIn["query_start_loc"],
                                   kAttentionIn["seq_lens"],    kAttentionIn["block_table"],
                                   kAttentionIn["head_sink"]};
  return std::find(std::begin(kTaken), std::end(kTaken), port) != std::end(kTaken);
}

absl::Status CheckInputs(const CacheUse& use, const Node& attention) {
  for (int i = 0; i < attention.num_inputs(); ++i) {
    if (attention.input(i) == nullptr || TakesInput(i)) continue;
    return CacheUseError(use, attention,
                         StrCat("expected attention without \"", kAttentionIn.specs[i].name,
                                "\", got \"", attention.input(i)->name(), "\""));
  }
  const bool is_pair = attention.input(kAttentionIn["key_cache"]) == use.insert->output(0) &&
                       attention.input(kAttentionIn["value_cache"]) == use.insert->output(1);
  if (is_pair) return absl::OkStatus();
  return CacheUseError(
      use, attention,
      StrCat("expected the keys and values of one insert, got \"", attention.input(1)->name(),
             "\" and \"", attention.input(2)->name(), "\""));
}

absl::Status CheckRules(const CacheUse& use, const Node& attention) {
  PF_ASSIGN_OR_RETURN(const PagedAttentionAttributes a, ParsePagedAttention(attention));
  if (!a.is_causal)
    return CacheUseError(use, attention, "expected causal attention, got is_causal = 0");
  if (a.chunk_size() > 0) {
    return CacheUseError(
        use, attention,
        StrCat("expected attention without chunks, got chunk_lookback = ", a.chunk_lookback));
  }
  const DataType query = attention.input(kAttentionIn["query"])->dtype();
  const bool is_float =
      query == DataType::kFloat || query == DataType::kFloat16 || query == DataType::kBfloat16;
  if (!is_float) {
    return CacheUseError(
        use, attention,
        StrCat("expected queries of float, float16 or bfloat16, got ", DataTypeName(query)));
  }
  const DataType output = a.OutputType(query, /*has_output_scale=*/false);
  if (output == query) return absl::OkStatus();
  return CacheUseError(use, attention,
                       StrCat("expected an output of ", DataTypeName(query),
                              " as the query is, got ", DataTypeName(output)));
}

// "kv_cache.3" of "kv_cache.3.key".
std::string JoinedName(const std::string& key_name) {
  constexpr std::string_view kSuffix = ".key";
  if (!key_name.ends_with(kSuffix)) return key_name;
  return key_name.substr(0, key_name.size() - kSuffix.size());
}

class SlotStorer {
 public:
  SlotStorer(Graph& graph, const CacheUse& use, CacheNames& names)
      : graph_(graph), insert_(use.insert), preset_(*use.choice.turboquant), names_(names) {
    format_ = FormatOf(use);
  }

  void Run() {
    Value* values = insert_->input(kValueCache);
    Value* slots = Slots();
    names_[values->name()] = {};
    GraphBuilder builder(graph_, insert_, JoinedName(insert_->output(kKeyCacheOut)->name()));
    Value* out =
        builder.AddOurs("TurboQuantInsert",
                        {insert_->input(kInsertIn["key"]), insert_->input(kInsertIn["value"]),
                         slots, insert_->input(kInsertIn["slot_mapping"])},
                        Bits());
    out->set_dtype(DataType::kUint8);
    out->set_shape(*slots->shape());
    for (Node* reader : ReadersOf(*insert_)) Attend(reader, out);
    RemoveOutput(graph_, insert_->output(kValueCacheOut));
    graph_.ReplaceAllUses(insert_->output(kKeyCacheOut), out);
    graph_.EraseNode(insert_);
    RemoveInput(graph_, values);
    graph_.EraseValue(values);
    Shorten(out);
  }

 private:
  // The cache of keys becomes that of slots.
  Value* Slots() {
    Value* cache = insert_->input(kKeyCache);
    const std::string name = cache->name();
    Shape shape = *cache->shape();
    shape.dims().back() = Dim((format_.SlotBytes() + 1) / 2 * 2);  // slots are even
    cache->set_dtype(DataType::kUint8);
    cache->set_shape(shape);
    Shorten(cache);
    names_[name] = {cache->name()};
    return cache;
  }

  void Shorten(Value* value) {
    const std::string name = JoinedName(value->name());
    if (name != value->name()) graph_.Rename(value, graph_.UniqueName(name));
  }

  Attributes Bits() const {
    return {{"key_bits", preset_.key_bits}, {"value_bits", preset_.value_bits}};
  }

  void Attend(Node* reader, Value* slots) {
    GraphBuilder builder(graph_, reader, reader->output(0)->name());
    std::vector<Value*> inputs(kSlotsIn.size(), nullptr);
    inputs[kSlotsIn["query"]] = reader->input(kAttentionIn["query"]);
    inputs[kSlotsIn["kv_cache"]] = slots;
    inputs[kSlotsIn["block_table"]] = reader->input(kAttentionIn["block_table"]);
    inputs[kSlotsIn["seq_lens"]] = reader->input(kAttentionIn["seq_lens"]);
    inputs[kSlotsIn["query_start_loc"]] = reader->input(kAttentionIn["query_start_loc"]);
    inputs[kSlotsIn["head_sink"]] = reader->input(kAttentionIn["head_sink"]);
    while (inputs.back() == nullptr) inputs.pop_back();
    Attributes attributes = Bits();
    if (preset_.norm_correction) attributes.Add("norm_correction", 1);
    for (const char* name :
         {"scale", "sliding_window", "softcap", "num_kv_splits_hint", "nan_value"}) {
      if (const Attribute* attribute = reader->attribute(name)) attributes.Add(name, *attribute);
    }
    Node* attention = builder.AddNode("pagefuse", "TurboQuantAttention", inputs,
                                      reader->num_outputs(), attributes);
    TakePlace(*attention, *reader);
    for (int i = 0; i < reader->num_outputs(); ++i) {
      graph_.ReplaceAllUses(reader->output(i), attention->output(i));
    }
    graph_.EraseNode(reader);
  }

  Graph& graph_;
  Node* insert_;
  const TurboQuantPreset& preset_;
  TurboQuantFormat format_;
  CacheNames& names_;
};

}  // namespace

absl::Status CheckSlots(const CacheUse& use) {
  PF_RETURN_IF_ERROR(CheckHeads(use));
  for (const Node* reader : ReadersOf(*use.insert)) {
    PF_RETURN_IF_ERROR(CheckInputs(use, *reader));
    PF_RETURN_IF_ERROR(CheckRules(use, *reader));
  }
  return absl::OkStatus();
}

void StoreSlots(Graph& graph, const CacheUse& use, CacheNames& names) {
  SlotStorer(graph, use, names).Run();
}

}  // namespace pagefuse
