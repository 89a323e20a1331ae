// quantise-kv-cache: the paged cache is stored in fewer bits an element.
//
//   kv_cache_out = PagedCacheInsert (k, v, kv_cache, slots)
//   y = PagedAttention (q, kv_cache_out, ..)
//     =>  the same with kv_quant_mode, caches of codes, and the format's scales: one a tensor, or
//         one a token and head beside the cache; for bf16, caches of another type alone
#include "absl/strings/numbers.h"
#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/kernels/formats/cache_choice.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"
#include "pagefuse/ops/pagefuse/cache/paged_cache_insert.h"
#include "pagefuse/passes/graph_builder.h"
#include "pagefuse/passes/quantise/quantise.h"

namespace pagefuse {
namespace {

constexpr auto& kInsertIn = kPagedCacheInsertIn;
constexpr auto& kInsertOut = kPagedCacheInsertOut;
constexpr auto& kAttentionIn = kPagedAttentionIn;
constexpr int kCaches[] = {kInsertIn["key_cache"], kInsertIn["value_cache"]};
constexpr int kCacheOuts[] = {kInsertOut["key_cache_out"], kInsertOut["value_cache_out"]};
constexpr int kScaleCacheOuts[] = {kInsertOut["k_scale_cache_out"],
                                   kInsertOut["v_scale_cache_out"]};

// Signs before the Hadamard transform of int4 rows: any will do, and the same for keys, values and
// queries. A fixed sequence, so that a graph is rewritten the same way every time.
std::vector<float> HadamardSigns(int64_t head_size) {
  std::vector<float> signs;
  uint32_t state = 0x9e3779b9u;
  for (int64_t i = 0; i < head_size; ++i) {
    state = state * 1664525u + 1013904223u;
    signs.push_back((state >> 31) != 0 ? -1.0f : 1.0f);
  }
  return signs;
}

Attribute Of(std::string value) {
  return {.value = std::move(value), .doc_string = {}, .unknown_fields = {}};
}

class CacheQuantiser {
 public:
  CacheQuantiser(Model& model, const CacheChoice& choice, float k_scale, float v_scale)
      : model_(model),
        graph_(*model.graph),
        choice_(choice),
        format_{.mode = choice.mode},
        k_scale_(k_scale),
        v_scale_(v_scale) {}

  absl::StatusOr<int> Run() {
    std::vector<Node*> inserts;
    for (const auto& node : graph_.nodes()) {
      if (!node->Is("PagedCacheInsert", "pagefuse")) continue;
      PF_ASSIGN_OR_RETURN(std::string mode, node->StringAttribute("kv_quant_mode", "none"));
      // Where only the type tells, a cache of it is what was asked for.
      const bool stored =
          format_.mode == KvQuantMode::kNone && node->input(kCaches[0])->dtype() == choice_.stored;
      if (mode == "none" && !stored) inserts.push_back(node.get());
    }
    for (Node* insert : inserts) {
      PF_RETURN_IF_ERROR(CheckCaches(insert));
      PF_RETURN_IF_ERROR(CheckReaders(insert));
      if (format_.needs_signs()) PF_RETURN_IF_ERROR(CheckHeads(insert));
    }
    for (Node* insert : inserts) Store(insert);
    if (!inserts.empty()) PF_RETURN_IF_ERROR(AddScalesToGroups());
    return static_cast<int>(inserts.size());
  }

 private:
  // Another type, and scales beside it, only the caller of the graph can give a cache.
  static absl::Status CheckCaches(const Node* insert) {
    for (int i : kCaches) {
      const Value* cache = insert->input(i);
      const bool is_cache = cache != nullptr && cache->is_input() && cache->shape().has_value() &&
                            cache->shape()->rank() == 4;
      if (is_cache) continue;
      return absl::FailedPreconditionError(
          StrCat("quantise-kv-cache: ", insert->Description(), ": input ", i, ": expected a graph ",
                 "input of shape [num_blocks, block_size, Hk, D], got ",
                 cache == nullptr ? std::string("none") : StrCat("\"", cache->name(), "\"")));
    }
    return absl::OkStatus();
  }

  // Only PagedAttention knows how to read a quantised cache.
  static absl::Status CheckReaders(const Node* insert) {
    for (int i : kCacheOuts) {
      for (const Use& use : insert->output(i)->uses()) {
        if (use.node->Is("PagedAttention", "pagefuse")) continue;
        return absl::FailedPreconditionError(StrCat("quantise-kv-cache: ", use.node->Description(),
                                                    " reads \"", insert->output(i)->name(),
                                                    "\" and takes no quantised cache"));
      }
    }
    return absl::OkStatus();
  }

  Value* AddScaleCache(const Value* cache) {
    Shape shape = *cache->shape();
    shape.dims().pop_back();
    Value* scales =
        graph_.AddInput(graph_.UniqueName(cache->name() + "_scale"), DataType::kFloat, shape);
    scale_caches_[cache->name()] = scales->name();
    return scales;
  }

  void Store(Node* insert) {
    if (format_.mode != KvQuantMode::kNone) return Quantise(insert);
    for (int i : kCaches) insert->input(i)->set_dtype(choice_.stored);
    for (int i : kCacheOuts) insert->output(i)->set_dtype(choice_.stored);
  }

  // Rows of packed codes are transformed, which takes a power of two.
  static absl::Status CheckHeads(const Node* insert) {
    const auto key = insert->input(kCaches[0])->shape()->back(0).constant();
    const auto value = insert->input(kCaches[1])->shape()->back(0).constant();
    if (key && value && *key == *value && *key >= 2 && (*key & (*key - 1)) == 0) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(StrCat(
        "quantise-kv-cache: ", insert->Description(), ": int4_per_token_head: expected keys and ",
        "values of one size that is a power of two, got ",
        insert->input(kCaches[0])->shape()->back(0).ToString(), " and ",
        insert->input(kCaches[1])->shape()->back(0).ToString()));
  }

  // The caches hold codes from here on, two a byte where they have four bits.
  void Retype(Value* cache) {
    cache->set_dtype(choice_.stored);
    Shape shape = *cache->shape();
    const auto size = shape.back(0).constant();
    if (!size) return;
    shape.dims().back() = CacheFormat{.mode = format_.mode}.StoredElements(*size);
    cache->set_shape(shape);
  }

  void Quantise(Node* insert) {
    Value* caches[] = {insert->input(kCaches[0]), insert->input(kCaches[1])};
    const int64_t head_size = caches[0]->shape()->back(0).constant().value_or(0);
    std::vector<Value*> inputs = insert->inputs();
    const int last = format_.needs_signs()      ? kInsertIn["rht_signs"]
                     : format_.has_row_scales() ? kInsertIn["v_scale_cache"]
                                                : kInsertIn["v_scale"];
    inputs.resize(last + 1, nullptr);
    GraphBuilder builder(graph_, insert, insert->output(kCacheOuts[0])->name());
    for (Value* cache : caches) Retype(cache);
    if (format_.needs_signs()) {
      inputs[kInsertIn["rht_signs"]] = graph_.AddInitializer(
          graph_.UniqueName("rht_signs"), Tensor::Of<float>({head_size}, HadamardSigns(head_size)));
    }
    if (format_.has_row_scales()) {
      inputs[kInsertIn["k_scale_cache"]] = AddScaleCache(caches[0]);
      inputs[kInsertIn["v_scale_cache"]] = AddScaleCache(caches[1]);
    } else {
      inputs[kInsertIn["k_scale"]] = builder.Float(k_scale_);
      inputs[kInsertIn["v_scale"]] = builder.Float(v_scale_);
    }
    const int outputs = format_.has_row_scales() ? kInsertOut.size() : kScaleCacheOuts[0];
    Node* quantised = builder.AddNode("pagefuse", "PagedCacheInsert", inputs, outputs);
    for (const auto& [name, attribute] : insert->attributes())
      quantised->SetAttribute(name, attribute);
    quantised->SetAttribute("kv_quant_mode", Of(std::string(KvQuantModeName(format_.mode))));
    Replace(insert, quantised);
    for (int i = 0; i < (format_.has_row_scales() ? 2 : 0); ++i) {
      Value* scales = quantised->output(kScaleCacheOuts[i]);
      const std::string cache_out = quantised->output(kCacheOuts[i])->name();
      graph_.Rename(scales, graph_.UniqueName(cache_out + "_scale"));
      graph_.AddOutput(scales);
    }
  }

  void Replace(Node* insert, Node* quantised) {
    std::vector<Node*> readers;
    for (const Use& use : insert->output(kCacheOuts[0])->uses()) readers.push_back(use.node);
    for (int i : kCacheOuts) {
      graph_.ReplaceAllUses(insert->output(i), quantised->output(i));
    }
    for (Node* reader : readers) {
      reader->SetAttribute("kv_quant_mode", Of(std::string(KvQuantModeName(format_.mode))));
      if (format_.has_row_scales()) {
        reader->SetInput(kAttentionIn["k_scale_cache"], quantised->output(kScaleCacheOuts[0]));
        reader->SetInput(kAttentionIn["v_scale_cache"], quantised->output(kScaleCacheOuts[1]));
        if (format_.needs_signs()) {
          reader->SetInput(kAttentionIn["rht_signs"], quantised->input(kInsertIn["rht_signs"]));
        }
      } else {
        reader->SetInput(kAttentionIn["k_scale"], quantised->input(kInsertIn["k_scale"]));
        reader->SetInput(kAttentionIn["v_scale"], quantised->input(kInsertIn["v_scale"]));
      }
    }
    graph_.EraseNode(insert);
    for (int i : {0, 1}) {
      Value* out = quantised->output(kCacheOuts[i]);
      out->set_dtype(choice_.stored);
      out->set_shape(*quantised->input(kCaches[i])->shape());
    }
  }

  // The scale caches belong to the groups of their caches.
  absl::Status AddScalesToGroups() {
    auto text = FindMetadata(model_.metadata, "pagefuse.cache_groups");
    if (!text || scale_caches_.empty()) return absl::OkStatus();
    nlohmann::json groups = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!groups.is_array())
      return absl::InvalidArgumentError("metadata \"pagefuse.cache_groups\" is no list");
    for (auto& group : groups) {
      if (!group.is_object() || !group["caches"].is_array()) {
        return absl::InvalidArgumentError(
            "metadata \"pagefuse.cache_groups\": a group has no list \"caches\"");
      }
      const nlohmann::json caches = group["caches"];
      for (const nlohmann::json& cache : caches) {
        if (!cache.is_string()) continue;
        auto it = scale_caches_.find(cache.get<std::string>());
        if (it != scale_caches_.end()) group["caches"].push_back(it->second);
      }
    }
    SetMetadata(model_.metadata, "pagefuse.cache_groups", groups.dump());
    return absl::OkStatus();
  }

  Model& model_;
  Graph& graph_;
  CacheChoice choice_;
  CacheFormat format_;
  float k_scale_, v_scale_;
  std::map<std::string, std::string> scale_caches_;  // cache -> its scale cache
};

absl::StatusOr<float> PositiveOption(const PassContext& context, const std::string& name) {
  const std::string text = context.Option(name, "1");
  float value = 0;
  if (!absl::SimpleAtof(text, &value) || !(value > 0)) {
    return absl::InvalidArgumentError(
        StrCat("quantise-kv-cache: ", name, ": expected a positive number, got \"", text, "\""));
  }
  return value;
}

std::vector<std::string> ChoiceNames() {
  std::vector<std::string> names;
  for (const CacheChoice& choice : CacheChoices()) names.emplace_back(choice.name);
  return names;
}

class QuantiseKvCachePass : public Pass {
 public:
  std::string_view name() const override { return "quantise-kv-cache"; }
  std::string_view description() const override {
    return "Stores cached keys and values in another format, with its scales.";
  }
  std::vector<PassOption> options() const override {
    return {{"kv_cache", "format of cached keys and values, none by default", ChoiceNames()},
            {.name = "k_scale", .description = "scale of keys in fp8_per_tensor, 1 by default"},
            {.name = "v_scale", .description = "scale of values in fp8_per_tensor, 1 by default"}};
  }

  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
    const std::string name = context.Option("kv_cache", "none");
    const auto choice = FindCacheChoice(name);
    if (!choice.ok()) {
      return absl::InvalidArgumentError(
          StrCat("quantise-kv-cache: kv_cache: ", StdView(choice.status().message())));
    }
    if (choice->changes_nothing()) return false;
    PF_ASSIGN_OR_RETURN(float k_scale, PositiveOption(context, "k_scale"));
    PF_ASSIGN_OR_RETURN(float v_scale, PositiveOption(context, "v_scale"));
    PF_ASSIGN_OR_RETURN(int count, CacheQuantiser(model, *choice, k_scale, v_scale).Run());
    if (count > 0) context.counts[std::string(this->name())] += count;
    return count > 0;
  }
};

}  // namespace

std::unique_ptr<Pass> QuantiseKvCache() { return std::make_unique<QuantiseKvCachePass>(); }

}  // namespace pagefuse
