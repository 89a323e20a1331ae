// SPDX-License-Identifier: Apache-2.0
#include "paged_attention_instance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse::testing {
namespace {

Tensor MustAllocate(DataType type, std::vector<int64_t> dims) {
  absl::StatusOr<Tensor> tensor = Tensor::Allocate(type, std::move(dims));
  PF_CHECK(tensor.ok());
  return *std::move(tensor);
}

class Filler {
 public:
  explicit Filler(const PagedAttentionSpec& spec) : spec_(spec), random_(spec.seed) {}

  std::vector<Tensor> Inputs() {
    const auto batch = static_cast<int64_t>(spec_.sequences.size());
    std::vector<Tensor> inputs(18);
    MakeTable();
    inputs[0] = Normals(spec_.query, {tokens(), spec_.heads, spec_.head_size}, 1);
    inputs[3] = Tensor::Of<int32_t>({batch + 1}, starts_);
    std::vector<int32_t> lengths;
    for (const SequenceSpec& s : spec_.sequences) lengths.push_back(static_cast<int32_t>(s.length));
    inputs[4] = Tensor::Of<int32_t>({batch}, lengths);
    inputs[5] = table_;
    if (CacheFormat{.mode = spec_.mode}.needs_signs()) {
      std::vector<float> signs;
      for (int64_t d = 0; d < spec_.head_size; ++d) signs.push_back(random_() % 2 == 0 ? 1 : -1);
      inputs[17] = Tensor::Of<float>({spec_.head_size}, signs);
    }
    FillCache(inputs, 1, 6, 9, 0.013f);
    FillCache(inputs, 2, 7, 10, 0.021f);
    if (spec_.query == DataType::kFloat8E4M3FN) inputs[8] = Tensor::Of<float>({1}, {0.7f});
    if (spec_.sink) inputs[11] = Normals(DataType::kFloat, {spec_.heads}, 1);
    if (spec_.alibi) inputs[12] = Normals(DataType::kFloat, {spec_.heads}, 0.1f);
    if (spec_.qq_bias) {
      const int64_t size = MostQueries();
      inputs[13] = Normals(DataType::kFloat, {size, size}, 1);
    }
    if (!spec_.ranges.empty()) inputs[14] = Ranges();
    if (spec_.causal_flags) {
      inputs[15] = MustAllocate(DataType::kBool, {batch});
      for (int64_t b = 0; b < batch; ++b) inputs[15].mutable_values<bool>()[b] = b % 2 == 0;
    }
    if (spec_.output_scale) inputs[16] = Tensor::Of<float>({}, {0.01f});
    if (spec_.broken) Break(inputs);
    return inputs;
  }

 private:
  int64_t tokens() const { return starts_.back(); }
  int64_t MostQueries() const {
    int64_t most = 1;
    for (const SequenceSpec& s : spec_.sequences) most = std::max(most, s.queries);
    return most;
  }

  void MakeTable() {
    int64_t blocks = 3;  // that no sequence has
    int64_t columns = 1;
    for (const SequenceSpec& s : spec_.sequences) {
      starts_.push_back(starts_.back() + static_cast<int32_t>(s.queries));
      const int64_t needed = (s.length + spec_.block_size - 1) / spec_.block_size;
      blocks += needed;
      columns = std::max(columns, needed + 1);
    }
    ids_.resize(blocks);
    std::iota(ids_.begin(), ids_.end(), 0);
    std::shuffle(ids_.begin(), ids_.end(), random_);
    table_ =
        MustAllocate(DataType::kInt32, {static_cast<int64_t>(spec_.sequences.size()), columns});
    std::span<int32_t> entries = table_.mutable_values<int32_t>();
    std::fill(entries.begin(), entries.end(), -1);
    size_t next = 0;
    for (size_t b = 0; b < spec_.sequences.size(); ++b) {
      for (int64_t p = 0; p < spec_.sequences[b].length; p += spec_.block_size) {
        entries[b * columns + p / spec_.block_size] = ids_[next++];
      }
    }
  }

  Tensor Normals(DataType type, std::vector<int64_t> dims, float deviation) {
    Tensor tensor = MustAllocate(type, std::move(dims));
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> values(tensor.size());
    for (float& x : values) x = normal(random_);
    PF_CHECK(EncodeFromFloat(type, values.data(), tensor.size(), tensor.mutable_data()).ok());
    return tensor;
  }

  void FillCache(std::vector<Tensor>& inputs, int cache, int tensor_scale, int scales,
                 float scale) {
    const absl::StatusOr<CacheFormat> format = CacheFormat::Make(spec_.mode, spec_.cache);
    PF_CHECK(format.ok());
    const CacheShape shape{static_cast<int64_t>(ids_.size()), spec_.block_size, spec_.kv_heads,
                           spec_.head_size};
    inputs[cache] = MustAllocate(spec_.cache, {shape.num_blocks, shape.block_size, shape.kv_heads,
                                               format->StoredElements(shape.head_size)});
    std::memset(inputs[cache].mutable_data(), 0xFF,
                inputs[cache].byte_size());  // NaN in all floats
    void* scale_data = nullptr;
    if (format->has_row_scales()) {
      inputs[scales] =
          MustAllocate(DataType::kFloat, {shape.num_blocks, shape.block_size, shape.kv_heads});
      scale_data = inputs[scales].mutable_data();
      std::memset(scale_data, 0xFF, inputs[scales].byte_size());
    }
    RowParams params;
    if (format->has_tensor_scale()) {
      inputs[tensor_scale] = Tensor::Of<float>({1}, {scale});
      params.tensor_scale = scale;
    }
    if (format->needs_signs()) params.rht_signs = inputs[17].values<float>().data();
    const CacheRows rows = DenseRows(*format, shape, inputs[cache].mutable_data(), scale_data);
    std::normal_distribution<float> normal;
    std::vector<float> row(shape.head_size);
    for (size_t b = 0; b < spec_.sequences.size(); ++b) {
      for (int64_t p = 0; p < spec_.sequences[b].length; ++p) {
        for (int64_t h = 0; h < shape.kv_heads; ++h) {
          for (float& x : row) x = normal(random_);
          const int64_t block =
              table_.values<int32_t>()[b * table_.dims()[1] + p / shape.block_size];
          EncodeRow(*format, params, row.data(), shape.head_size,
                    rows.At(block, p % shape.block_size, h));
        }
      }
    }
  }

  // All bits set are NaN in all floats, and -1 in codes.
  static void BreakElement(Tensor& tensor, int64_t index) {
    const int64_t bytes = BitWidth(tensor.dtype()) / 8;
    std::memset(static_cast<std::byte*>(tensor.mutable_data()) + index * bytes, 0xFF, bytes);
  }
  void Break(std::vector<Tensor>& inputs) const {
    if (tokens() > 0) BreakElement(inputs[0], 0);
    const int32_t block = table_.values<int32_t>()[0];
    if (block >= 0) BreakElement(inputs[2], block * (inputs[2].size() / inputs[2].dims()[0]));
  }

  Tensor Ranges() const {
    const auto batch = static_cast<int64_t>(spec_.sequences.size());
    const auto each = static_cast<int64_t>(spec_.ranges.size());
    Tensor tensor = MustAllocate(DataType::kInt32, {batch, each, 2});
    for (int64_t r = 0; r < each; ++r) {
      const std::vector<int32_t>& range = spec_.ranges[r];
      std::copy_n(range.begin() + 1, 2,
                  tensor.mutable_values<int32_t>().begin() + (range[0] * each + r) * 2);
    }
    return tensor;
  }

  const PagedAttentionSpec& spec_;
  std::mt19937_64 random_;
  std::vector<int32_t> starts_ = {0};
  std::vector<int32_t> ids_;
  Tensor table_;
};

void SetAttributes(const PagedAttentionSpec& spec, Node& node) {
  const auto set = [&](std::string_view name, auto value) {
    node.SetAttribute(name, Attribute{value, "", ""});
  };
  set("kv_quant_mode", std::string(KvQuantModeName(spec.mode)));
  set("is_causal", static_cast<int64_t>(spec.causal));
  set("sliding_window", spec.window);
  set("chunk_lookback", spec.lookback);
  set("softcap", spec.softcap);
  set("use_alibi_sqrt", static_cast<int64_t>(spec.alibi_sqrt));
  set("mm_prefix_clamp_window", static_cast<int64_t>(spec.clamp));
  if (spec.query == DataType::kFloat8E4M3FN && !spec.output_scale) {
    set("output_dtype", static_cast<int64_t>(DataType::kFloat));
  }
  if (spec.nan_value) set("nan_value", *spec.nan_value);
  if (spec.output_scale) set("output_dtype", static_cast<int64_t>(DataType::kFloat8E4M3FN));
}

}  // namespace

PagedAttentionInstance::PagedAttentionInstance(const PagedAttentionSpec& spec)
    : inputs(Filler(spec).Inputs()) {
  std::vector<Value*> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    values.push_back(inputs[i].defined()
                         ? graph->AddInput("in" + std::to_string(i), inputs[i].dtype(),
                                           Shape::FromInts(inputs[i].dims()))
                         : nullptr);
  }
  std::vector<Value*> outputs = {graph->AddValue("output")};
  if (spec.lse) outputs.push_back(graph->AddValue("lse"));
  node = graph->AddNode("pagefuse", "PagedAttention", values, outputs);
  SetAttributes(spec, *node);
}

absl::StatusOr<std::vector<Tensor>> PagedAttentionInstance::Run(const std::string& kernel) const {
  EvaluateOptions options;
  if (kernel == "decomposition") {
    options.decompose = true;
  } else {
    options.force_kernel = kernel;
  }
  return EvaluateNode(*node, 1, inputs, options);
}

double WorstError(const Tensor& a, const Tensor& b, double rtol, double atol) {
  PF_CHECK(a.dtype() == b.dtype() && a.dims() == b.dims());
  std::vector<double> x(a.size());
  std::vector<double> y(b.size());
  PF_CHECK(DecodeToDouble(a.dtype(), a.data(), a.size(), x.data()).ok());
  PF_CHECK(DecodeToDouble(b.dtype(), b.data(), b.size(), y.data()).ok());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) && std::isnan(y[i])) continue;
    if (x[i] == y[i]) continue;
    const double error = std::abs(x[i] - y[i]) / (atol + rtol * std::abs(y[i]));
    if (!(error <= std::numeric_limits<double>::max()))
      return std::numeric_limits<double>::infinity();
    worst = std::max(worst, error);
  }
  return worst;
}

}  // namespace pagefuse::testing
