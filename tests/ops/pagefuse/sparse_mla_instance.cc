// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/sparse_mla_instance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse::testing {
namespace {

Tensor Int32s(std::vector<int64_t> dims, const std::vector<int32_t>& values) {
  return Tensor::Of<int32_t>(std::move(dims), values);
}

class Filler {
 public:
  explicit Filler(const SparseMlaSpec& spec) : s_(spec), random_(spec.seed) {
    if (s_.format != "bf16") {
      const bool ds_mla = s_.format == "fp8_ds_mla";
      if (s_.group > 0) {
        const int64_t coded = s_.head_size - s_.rope_size;
        grouped_ = ds_mla ? Fp8DsMlaRow(coded, s_.rope_size, s_.group)
                          : Fp8Ue8m0Row(coded, s_.rope_size, s_.group);
        return;
      }
      grouped_ = ds_mla ? Fp8DsMlaRow() : Fp8Ue8m0Row();
      s_.head_size = grouped_.elements();
      s_.value_size = 512;
    }
  }

  std::vector<Tensor> Inputs() {
    std::vector<Tensor> inputs(11);
    if (s_.sequences.empty()) {
      List(inputs, 1, s_.columns, s_.num_blocks);
      if (s_.extra_columns > 0) List(inputs, 5, s_.extra_columns, s_.num_blocks + 2);
    } else {
      Dense(inputs);
    }
    inputs[0] = Random(s_.query, {s_.tokens, s_.heads, s_.head_size}, Normal{}, random_());
    if (s_.sink) inputs[4] = Random(DataType::kFloat, {s_.heads}, Normal{}, random_());
    while (!inputs.back().defined()) inputs.pop_back();
    return inputs;
  }

  int64_t head_size() const { return s_.head_size; }
  int64_t value_size() const { return s_.value_size; }

 private:
  int64_t Below(int64_t end) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(end));
  }

  // A list, its lengths and its cache at inputs `cache`, + 1, + 2.
  void List(std::vector<Tensor>& inputs, int cache, int64_t columns, int64_t blocks) {
    const int64_t rows = blocks * s_.block_size;
    std::set<int64_t> used;
    std::vector<int32_t> indices(s_.tokens * columns), lens(s_.tokens);
    for (int64_t t = 0; t < s_.tokens; ++t) {
      lens[t] = static_cast<int32_t>(s_.lens ? Below(columns + 1) : columns);
      for (int64_t k = 0; k < columns; ++k) {
        int32_t& index = indices[t * columns + k];
        index = s_.holes && Below(6) == 0 ? -1 : static_cast<int32_t>(Below(rows));
        if (k >= lens[t]) index = std::numeric_limits<int32_t>::max();
        if (index >= 0 && k < lens[t]) used.insert(index);
      }
    }
    inputs[cache] = Cache(blocks, used);
    // The extra cache's lists come behind it, the first one's too.
    inputs[cache + 1] = Int32s({s_.tokens, columns}, indices);
    if (s_.lens) inputs[cache + 2] = Int32s({s_.tokens}, lens);
  }

  void Dense(std::vector<Tensor>& inputs) {
    const auto batch = static_cast<int64_t>(s_.sequences.size());
    std::vector<int32_t> starts = {0}, lens;
    int64_t columns = 1, blocks = 0;
    for (const SequenceSpec& sequence : s_.sequences) {
      starts.push_back(starts.back() + static_cast<int32_t>(sequence.queries));
      lens.push_back(static_cast<int32_t>(sequence.length));
      const int64_t needed = (sequence.length + s_.block_size - 1) / s_.block_size;
      columns = std::max(columns, needed);
      blocks += needed;
    }
    s_.tokens = starts.back();
    std::vector<int32_t> order(blocks + 1);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<int32_t> table(batch * columns, -1);
    std::set<int64_t> used;
    int64_t next = 0;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t p = 0; p < lens[b]; ++p) {
        int32_t& block = table[b * columns + p / s_.block_size];
        if (p % s_.block_size == 0) block = order[next++];
        used.insert(block * s_.block_size + p % s_.block_size);
      }
    }
    inputs[1] = Cache(blocks + 1, used);
    inputs[8] = Int32s({batch, columns}, table);
    inputs[9] = Int32s({batch}, lens);
    inputs[10] = Int32s({batch + 1}, starts);
  }

  Tensor Cache(int64_t blocks, const std::set<int64_t>& used) {
    return s_.format == "bf16" ? PlainCache(blocks, used) : GroupedCache(blocks, used);
  }

  std::vector<float> RandomRow() {
    std::normal_distribution<float> normal;
    std::vector<float> x(s_.head_size);
    for (float& v : x) v = std::clamp(normal(random_), -5.0f, 5.0f);
    return x;
  }

  Tensor PlainCache(int64_t blocks, const std::set<int64_t>& used) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> values(blocks * s_.block_size * s_.head_size, nan);
    for (int64_t row : used) {
      const std::vector<float> x = RandomRow();
      std::copy(x.begin(), x.end(), values.begin() + row * s_.head_size);
    }
    return As(s_.cache, Floats({blocks, s_.block_size, s_.head_size}, values));
  }

  Tensor GroupedCache(int64_t blocks, const std::set<int64_t>& used) {
    const bool is_inline = grouped_.layout == GroupedLayout::kInline;
    const int64_t bytes = GroupedBlockBytes(grouped_, s_.block_size) + (is_inline ? 0 : 10);
    const std::vector<int64_t> dims =
        is_inline ? std::vector<int64_t>{blocks, s_.block_size, grouped_.TokenBytes()}
                  : std::vector<int64_t>{blocks, bytes};
    Tensor cache = *Tensor::Allocate(DataType::kUint8, dims);
    // NaN as e4m3fn and as bfloat16.
    std::memset(cache.mutable_data(), 0xFF, cache.byte_size());
    const CacheRows rows =
        GroupedRows(grouped_, {blocks, s_.block_size, bytes}, cache.mutable_data());
    for (int64_t slot : used) {
      const std::vector<float> x = RandomRow();
      std::vector<uint16_t> tail(grouped_.plain);
      PF_CHECK(EncodeFromFloat(DataType::kBfloat16, x.data() + grouped_.coded, grouped_.plain,
                               tail.data())
                   .ok());
      EncodeGroupedRow(grouped_, x.data(), tail.data(), rows.AtSlot(slot, 0));
    }
    return cache;
  }

  SparseMlaSpec s_;
  GroupedRowFormat grouped_;
  std::mt19937_64 random_;
};

}  // namespace

OpCase SparseMlaCase(std::string name, const SparseMlaSpec& spec) {
  Filler filler(spec);
  OpCase op_case;
  op_case.name = std::move(name);
  op_case.inputs = filler.Inputs();
  op_case.attributes = {{"format", spec.format},
                        {"scale", 2 / std::sqrt(static_cast<float>(filler.head_size()))},
                        {"head_dim_v", filler.value_size()},
                        {"rope_size", spec.rope_size},
                        {"quant_group_size", spec.group},
                        {"block_size", spec.block_size},
                        {"extra_block_size", spec.block_size},
                        {"is_causal", int64_t{spec.causal}}};
  op_case.num_outputs = spec.lse ? 2 : 1;
  return op_case;
}

}  // namespace pagefuse::testing
