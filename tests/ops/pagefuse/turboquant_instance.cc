// SPDX-License-Identifier: Apache-2.0
#include "turboquant_instance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
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

std::vector<float> Normals(int64_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  return values;
}

// Rotation and centroids, where the spec gives them.
struct Tables {
  explicit Tables(const TurboQuantSpec& spec) {
    if (spec.key_bits == 8) return;
    if (spec.rotation) rotation = RandomRotation(spec.head_size, spec.seed + 77);
    const auto solved = DefaultCentroids(spec.head_size, spec.key_bits);
    std::vector<float> values(solved.begin(), solved.end());
    if (spec.centroids) {
      for (float& c : values) c = c * 1.125f + 0.001f;  // no longer symmetric
    }
    centroids = Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
    given_centroids = spec.centroids ? centroids : Tensor();
  }
  TurboQuantTables get() const {
    return {rotation.defined() ? rotation.values<float>().data() : nullptr,
            centroids.defined() ? centroids.values<float>().data() : nullptr};
  }
  Tensor rotation, centroids, given_centroids;
};

// Blocks, a table and slots with a token each for all sequences.
struct Paged {
  Paged(const TurboQuantSpec& spec, const TurboQuantTables& tables) {
    std::mt19937_64 random(spec.seed);
    int64_t blocks = 2;  // that no sequence has
    int64_t columns = 1;
    std::vector<int32_t> lengths;
    for (const SequenceSpec& s : spec.sequences) {
      lengths.push_back(static_cast<int32_t>(s.length));
      const int64_t needed = (s.length + spec.block_size - 1) / spec.block_size;
      blocks += needed;
      columns = std::max(columns, needed);
    }
    std::vector<int32_t> ids(blocks);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random);
    const auto batch = static_cast<int64_t>(lengths.size());
    seq_lens = Tensor::Of<int32_t>({batch}, lengths);
    std::vector<int32_t> entries(batch * columns, -1);
    const int64_t slot_bytes = spec.format().SlotBytes() + spec.padding;
    cache = MustAllocate(DataType::kUint8, {blocks, spec.block_size, spec.kv_heads, slot_bytes});
    auto* bytes = static_cast<uint8_t*>(cache.mutable_data());
    std::memset(bytes, 0xFF, cache.byte_size());
    size_t next = 0;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t j = 0; j < lengths[b]; ++j) {
        int32_t& block = entries[b * columns + j / spec.block_size];
        if (j % spec.block_size == 0) block = ids[next++];
        const int64_t row = (block * spec.block_size + j % spec.block_size) * spec.kv_heads;
        for (int64_t h = 0; h < spec.kv_heads; ++h) {
          uint8_t* slot = bytes + (row + h) * slot_bytes;
          EncodeTurboQuantKey(spec.format(), tables, Normals(spec.head_size, random).data(), slot);
          EncodeTurboQuantValue(spec.format(), Normals(spec.head_size, random).data(), slot);
        }
      }
    }
    block_table = Tensor::Of<int32_t>({batch, columns}, entries);
  }
  Tensor cache, block_table, seq_lens;
};

std::vector<std::pair<std::string, decltype(Attribute::value)>> Bits(const TurboQuantSpec& spec) {
  return {{"key_bits", int64_t{spec.key_bits}}, {"value_bits", int64_t{spec.value_bits}}};
}

int64_t NumTokens(const TurboQuantSpec& spec) {
  int64_t tokens = 0;
  for (const SequenceSpec& s : spec.sequences) tokens += s.queries;
  return tokens;
}

}  // namespace

Tensor NormalTensor(DataType type, std::vector<int64_t> dims, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensor tensor = MustAllocate(type, std::move(dims));
  const std::vector<float> values = Normals(tensor.size(), random);
  PF_CHECK(EncodeFromFloat(type, values.data(), tensor.size(), tensor.mutable_data()).ok());
  return tensor;
}

Tensor RandomRotation(int64_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<double>> rows;
  for (int64_t i = 0; i < size; ++i) {
    const std::vector<float> start = Normals(size, random);
    std::vector<double> row(start.begin(), start.end());
    for (int pass = 0; pass < 2; ++pass) {  // Gram-Schmidt, twice for accuracy
      for (const std::vector<double>& other : rows) {
        const double dot = std::inner_product(row.begin(), row.end(), other.begin(), 0.0);
        for (int64_t j = 0; j < size; ++j) row[j] -= dot * other[j];
      }
    }
    const double length = std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0));
    for (double& x : row) x /= length;
    rows.push_back(std::move(row));
  }
  std::vector<float> values;
  for (const std::vector<double>& row : rows) values.insert(values.end(), row.begin(), row.end());
  return Tensor::Of<float>({size, size}, values);
}

TurboQuantInputs AttentionInputs(const TurboQuantSpec& spec) {
  const Tables tables(spec);
  const Paged paged(spec, tables.get());
  std::vector<int32_t> starts = {0};
  for (const SequenceSpec& s : spec.sequences) {
    starts.push_back(starts.back() + static_cast<int32_t>(s.queries));
  }
  TurboQuantInputs call;
  call.inputs = {
      NormalTensor(spec.type, {starts.back(), spec.heads, spec.head_size}, spec.seed + 5),
      paged.cache,
      paged.block_table,
      paged.seq_lens,
      spec.starts ? Tensor::Of<int32_t>({static_cast<int64_t>(starts.size())}, starts) : Tensor(),
      tables.rotation,
      tables.given_centroids,
      spec.sinks ? NormalTensor(DataType::kFloat, {spec.heads}, spec.seed + 8) : Tensor()};
  call.attributes = Bits(spec);
  call.attributes.emplace_back("norm_correction", int64_t{spec.norm_correction});
  if (spec.window > 0) call.attributes.emplace_back("sliding_window", spec.window);
  if (spec.softcap > 0) call.attributes.emplace_back("softcap", spec.softcap);
  return call;
}

TurboQuantInputs DequantInputs(const TurboQuantSpec& spec) {
  const Tables tables(spec);
  const Paged paged(spec, tables.get());
  TurboQuantInputs call;
  call.inputs = {paged.cache, paged.block_table, paged.seq_lens, tables.rotation,
                 tables.given_centroids};
  call.attributes = Bits(spec);
  call.attributes.emplace_back("norm_correction", int64_t{spec.norm_correction});
  call.attributes.emplace_back("head_size", spec.head_size);
  return call;
}

TurboQuantInputs InsertInputs(const TurboQuantSpec& spec) {
  const Tables tables(spec);
  const int64_t tokens = NumTokens(spec);
  const int64_t blocks = (tokens + spec.block_size - 1) / spec.block_size + 1;
  std::vector<int64_t> slots(blocks * spec.block_size);
  std::iota(slots.begin(), slots.end(), 0);
  std::mt19937_64 random(spec.seed);
  std::shuffle(slots.begin(), slots.end(), random);
  slots.resize(tokens);
  if (tokens > 0) slots[0] = -1;
  Tensor cache = MustAllocate(DataType::kUint8, {blocks, spec.block_size, spec.kv_heads,
                                                 spec.format().SlotBytes() + spec.padding});
  for (uint8_t& byte : cache.mutable_values<uint8_t>()) byte = static_cast<uint8_t>(random());
  const std::vector<int64_t> rows = {tokens, spec.kv_heads, spec.head_size};
  TurboQuantInputs call;
  call.inputs = {NormalTensor(spec.type, rows, spec.seed + 6),
                 NormalTensor(spec.type, rows, spec.seed + 7),
                 cache,
                 Tensor::Of<int64_t>({tokens}, slots),
                 tables.rotation,
                 tables.given_centroids};
  call.attributes = Bits(spec);
  return call;
}

TurboQuantNode::TurboQuantNode(const std::string& op, TurboQuantInputs inputs, int num_outputs)
    : inputs_(std::move(inputs.inputs)) {
  std::vector<Value*> values;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    values.push_back(inputs_[i].defined()
                         ? graph_->AddInput("in" + std::to_string(i), inputs_[i].dtype(),
                                            Shape::FromInts(inputs_[i].dims()))
                         : nullptr);
  }
  std::vector<Value*> outputs;
  for (int i = 0; i < num_outputs; ++i) {
    outputs.push_back(graph_->AddValue("out" + std::to_string(i)));
  }
  node_ = graph_->AddNode("pagefuse", op, values, outputs);
  for (const auto& [name, value] : inputs.attributes) {
    node_->SetAttribute(name, Attribute{value, "", ""});
  }
}

absl::StatusOr<std::vector<Tensor>> TurboQuantNode::Run(const std::string& kernel) const {
  EvaluateOptions options;
  if (kernel == "decomposition") {
    options.decompose = true;
  } else {
    options.force_kernel = kernel;
  }
  return EvaluateNode(*node_, 1, inputs_, options);
}

}  // namespace pagefuse::testing
