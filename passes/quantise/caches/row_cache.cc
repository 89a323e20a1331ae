// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/quantise/caches/row_cache.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"
#include "pagefuse/ops/pagefuse/cache/paged_cache_insert.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"

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

class RowQuantiser {
 public:
  RowQuantiser(Graph& graph, const CacheUse& use, const KvScales& scales, CacheNames& names)
      : graph_(graph),
        insert_(use.insert),
        stored_(use.choice.stored),
        format_(use.choice.format()),
        scales_(scales),
        names_(names) {}

  void Run() {
    GraphBuilder builder(graph_, insert_, insert_->output(kCacheOuts[0])->name());
    const std::vector<Value*> inputs = Inputs(builder);
    const int outputs = format_.has_row_scales() ? kInsertOut.size() : kScaleCacheOuts[0];
    Node* quantised = builder.AddNode("pagefuse", "PagedCacheInsert", inputs, outputs,
                                      {*insert_, {{"kv_quant_mode", Mode()}}});
    Replace(quantised);
    for (int i = 0; i < (format_.has_row_scales() ? 2 : 0); ++i) {
      Value* scales = quantised->output(kScaleCacheOuts[i]);
      const std::string cache_out = quantised->output(kCacheOuts[i])->name();
      graph_.Rename(scales, graph_.UniqueName(cache_out + "_scale"));
      graph_.AddOutput(scales);
    }
  }

 private:
  std::string Mode() const { return std::string(format_.name()); }

  // The inputs of the insert with the caches of codes, and with scales.
  std::vector<Value*> Inputs(GraphBuilder& builder) {
    Value* caches[] = {insert_->input(kCaches[0]), insert_->input(kCaches[1])};
    PF_CHECK(caches[0] != nullptr && caches[1] != nullptr);  // CheckCache was OK
    const int64_t head_size = caches[0]->shape()->back(0).constant().value_or(0);
    std::vector<Value*> inputs = insert_->inputs();
    const int last = format_.needs_signs()      ? kInsertIn["rht_signs"]
                     : format_.has_row_scales() ? kInsertIn["v_scale_cache"]
                                                : kInsertIn["v_scale"];
    inputs.resize(last + 1, nullptr);
    for (Value* cache : caches) Retype(cache);
    if (format_.needs_signs()) {
      inputs[kInsertIn["rht_signs"]] = graph_.AddInitializer(
          graph_.UniqueName("rht_signs"), Tensor::Of<float>({head_size}, HadamardSigns(head_size)));
    }
    if (format_.has_row_scales()) {
      inputs[kInsertIn["k_scale_cache"]] = AddScaleCache(caches[0]);
      inputs[kInsertIn["v_scale_cache"]] = AddScaleCache(caches[1]);
    } else {
      inputs[kInsertIn["k_scale"]] = builder.Float(scales_.key);
      inputs[kInsertIn["v_scale"]] = builder.Float(scales_.value);
    }
    return inputs;
  }

  // The caches hold codes from here on, two a byte where they have four bits.
  void Retype(Value* cache) {
    cache->set_dtype(stored_);
    Shape shape = *cache->shape();
    const auto size = shape.back(0).constant();
    if (!size) return;
    shape.dims().back() = format_.StoredElements(*size);
    cache->set_shape(shape);
  }

  Value* AddScaleCache(const Value* cache) {
    Shape shape = *cache->shape();
    shape.dims().pop_back();
    Value* scales =
        graph_.AddInput(graph_.UniqueName(cache->name() + "_scale"), DataType::kFloat, shape);
    names_[cache->name()] = {cache->name(), scales->name()};
    return scales;
  }

  void Replace(Node* quantised) {
    const std::vector<Node*> readers = ReadersOf(*insert_);
    for (int i : kCacheOuts) graph_.ReplaceAllUses(insert_->output(i), quantised->output(i));
    for (Node* reader : readers) Connect(reader, *quantised);
    graph_.EraseNode(insert_);
    for (int i : {0, 1}) {
      Value* out = quantised->output(kCacheOuts[i]);
      out->set_dtype(stored_);
      out->set_shape(*quantised->input(kCaches[i])->shape());
    }
  }

  void Connect(Node* reader, const Node& quantised) const {
    reader->SetAttribute("kv_quant_mode", MakeAttribute(Mode()));
    if (!format_.has_row_scales()) {
      reader->SetInput(kAttentionIn["k_scale"], quantised.input(kInsertIn["k_scale"]));
      reader->SetInput(kAttentionIn["v_scale"], quantised.input(kInsertIn["v_scale"]));
      return;
    }
    reader->SetInput(kAttentionIn["k_scale_cache"], quantised.output(kScaleCacheOuts[0]));
    reader->SetInput(kAttentionIn["v_scale_cache"], quantised.output(kScaleCacheOuts[1]));
    if (format_.needs_signs()) {
      reader->SetInput(kAttentionIn["rht_signs"], quantised.input(kInsertIn["rht_signs"]));
    }
  }

  Graph& graph_;
  Node* insert_;
  DataType stored_;
  CacheFormat format_;
  KvScales scales_;
  CacheNames& names_;
};

}  // namespace

// The signs of transformed rows are those of keys and of values.
absl::Status CheckRows(const CacheUse& use) {
  const CacheFormat format = use.choice.format();
  if (!format.needs_signs()) return absl::OkStatus();
  const Dim key = use.insert->input(kCaches[0])->shape()->back(0);
  const Dim value = use.insert->input(kCaches[1])->shape()->back(0);
  const int64_t size = key.constant().value_or(0);
  if (value.constant() == size && format.TakesSize(size)) return absl::OkStatus();
  return CacheUseError(use, *use.insert,
                       StrCat("expected keys and values of one size that is a power of two, got ",
                              key.ToString(), " and ", value.ToString()));
}

void StoreRows(Graph& graph, const CacheUse& use, const KvScales& scales, CacheNames& names) {
  if (!use.choice.is_plain()) return RowQuantiser(graph, use, scales, names).Run();
  for (int i : kCaches) use.insert->input(i)->set_dtype(use.choice.stored);
  for (int i : kCacheOuts) use.insert->output(i)->set_dtype(use.choice.stored);
}

}  // namespace pagefuse
