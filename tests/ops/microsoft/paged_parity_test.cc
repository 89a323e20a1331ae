// SPDX-License-Identifier: Apache-2.0
// PagedAttention and GroupQueryAttention of com.microsoft mean the same: over the same rows they
// give the same output and cache, whatever blocks the rows lie in.
#include <algorithm>
#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/ops/evaluate/evaluate.h"

namespace pagefuse {
namespace {

using Attributes = std::vector<std::pair<std::string, decltype(Attribute::value)>>;

absl::StatusOr<std::vector<Tensor>> Run(const char* op, const std::vector<Tensor>& inputs,
                                        const Attributes& attributes) {
  Graph graph;
  std::vector<Value*> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    values.push_back(!inputs[i].defined()
                         ? nullptr
                         : graph.AddInput("in" + std::to_string(i), inputs[i].dtype(),
                                          Shape::FromInts(inputs[i].dims())));
  }
  std::vector<Value*> outputs;
  for (int i = 0; i < 3; ++i) outputs.push_back(graph.AddValue("out" + std::to_string(i)));
  Node* node = graph.AddNode("com.microsoft", op, values, outputs);
  for (const auto& [name, value] : attributes) node->SetAttribute(name, {value, "", ""});
  return EvaluateNode(*node, 1, inputs);
}

// One sequence of `past` tokens and `length` new ones.
struct Instance {
  int64_t past, length, heads, kv_heads, size, block;
  Attributes attributes;
  bool norm = false, sink = false, int8 = false;
};

class Parity {
 public:
  Parity(const Instance& instance, uint64_t seed) : i_(instance), random_(seed) {}

  void Check() {
    const int64_t width = i_.kv_heads * i_.size;
    const Tensor q = Values({1, i_.length, i_.heads * i_.size});
    const Tensor k = Values({1, i_.length, width});
    const Tensor v = Values({1, i_.length, width});
    const Tensor past_k = Past(), past_v = Past();
    std::vector<Tensor> grouped(16), paged(17);
    grouped[0] = q, grouped[1] = k, grouped[2] = v, grouped[3] = past_k, grouped[4] = past_v;
    const auto total = static_cast<int32_t>(i_.past + i_.length);
    grouped[5] = Tensor::Of<int32_t>({1}, {total - 1});
    grouped[6] = Tensor::Of<int32_t>({}, {total});
    MakeTable();
    paged[0] = *q.Reshaped({i_.length, i_.heads * i_.size});
    paged[1] = *k.Reshaped({i_.length, width});
    paged[2] = *v.Reshaped({i_.length, width});
    paged[3] = Blocks(past_k);
    paged[4] = Blocks(past_v);
    paged[5] = Tensor::Of<int32_t>({2}, {0, static_cast<int32_t>(i_.length)});
    paged[6] = Tensor::Of<int32_t>({1}, {static_cast<int32_t>(i_.past)});
    paged[7] = Tensor::Of<int32_t>({1, static_cast<int64_t>(table_.size())}, table_);
    grouped[7] = paged[8] = Values({total + 3, i_.size / 2});
    grouped[8] = paged[9] = Values({total + 3, i_.size / 2});
    if (i_.sink) grouped[11] = paged[11] = Values({i_.heads});
    if (i_.norm) {
      grouped[14] = paged[12] = Values({i_.size});
      grouped[15] = paged[13] = Values({i_.size});
    }
    if (i_.int8)
      grouped[12] = grouped[13] = paged[14] = paged[15] = Tensor::Of<float>({1}, {0.02f});
    const auto want = Must(Run("GroupQueryAttention", grouped, AttributesOf()));
    const auto got = Must(Run("PagedAttention", paged, AttributesOf()));
    ExpectNear(got[0], want[0]);
    ExpectSameRows(got[1], want[1]);
    ExpectSameRows(got[2], want[2]);
  }

 private:
  Attributes AttributesOf() const {
    Attributes all = i_.attributes;
    all.emplace_back("num_heads", i_.heads);
    all.emplace_back("kv_num_heads", i_.kv_heads);
    all.emplace_back("do_rotary", int64_t{1});
    if (i_.int8) {
      all.emplace_back("k_quant_type", std::string("PER_TENSOR"));
      all.emplace_back("v_quant_type", std::string("PER_TENSOR"));
      all.emplace_back("kv_cache_bit_width", int64_t{8});
    }
    return all;
  }

  Tensor Values(std::vector<int64_t> dims) {
    std::normal_distribution<float> normal;
    Tensor tensor = *Tensor::Allocate(DataType::kFloat, std::move(dims));
    for (float& value : tensor.mutable_values<float>()) value = normal(random_);
    return tensor;
  }

  // [1, Hk, past, D]
  Tensor Past() {
    if (!i_.int8) return Values({1, i_.kv_heads, i_.past, i_.size});
    Tensor tensor = *Tensor::Allocate(DataType::kInt8, {1, i_.kv_heads, i_.past, i_.size});
    for (int8_t& value : tensor.mutable_values<int8_t>()) value = static_cast<int8_t>(random_());
    return tensor;
  }

  void MakeTable() {
    const int64_t blocks = (i_.past + i_.length + i_.block - 1) / i_.block;
    for (int32_t b = 0; b < blocks + 2; ++b) table_.push_back(b);
    std::shuffle(table_.begin(), table_.end(), random_);
    num_blocks_ = static_cast<int64_t>(table_.size());
    table_.resize(static_cast<size_t>(blocks));
  }

  // Byte offset of a row in a block cache.
  int64_t RowAt(int64_t position, int64_t head, int64_t row_bytes) const {
    const int64_t slot = table_[position / i_.block] * i_.block + position % i_.block;
    return (slot * i_.kv_heads + head) * row_bytes;
  }

  Tensor Blocks(const Tensor& past) const {
    Tensor cache = *Tensor::Allocate(past.dtype(), {num_blocks_, i_.block, i_.kv_heads, i_.size});
    const int64_t bytes = i_.size * BitWidth(past.dtype()) / 8;
    const auto* from = static_cast<const uint8_t*>(past.data());
    auto* to = static_cast<uint8_t*>(cache.mutable_data());
    for (int64_t h = 0; h < i_.kv_heads; ++h) {
      for (int64_t s = 0; s < i_.past; ++s) {
        std::copy_n(from + (h * i_.past + s) * bytes, bytes, to + RowAt(s, h, bytes));
      }
    }
    return cache;
  }

  static void ExpectNear(const Tensor& got, const Tensor& want) {
    ASSERT_EQ(got.size(), want.size());
    for (int64_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got.values<float>()[i], want.values<float>()[i], 1e-5) << i;
    }
  }

  // A block cache against [1, Hk, total, D].
  void ExpectSameRows(const Tensor& cache, const Tensor& present) const {
    const int64_t total = i_.past + i_.length;
    const int64_t bytes = i_.size * BitWidth(cache.dtype()) / 8;
    const auto* a = static_cast<const uint8_t*>(cache.data());
    const auto* b = static_cast<const uint8_t*>(present.data());
    for (int64_t h = 0; h < i_.kv_heads; ++h) {
      for (int64_t s = 0; s < total; ++s) {
        EXPECT_TRUE(std::equal(b + (h * total + s) * bytes, b + (h * total + s + 1) * bytes,
                               a + RowAt(s, h, bytes)))
            << "head " << h << ", row " << s;
      }
    }
  }

  const Instance i_;
  std::mt19937_64 random_;
  std::vector<int32_t> table_;
  int64_t num_blocks_ = 0;
};

TEST(PagedParity, DecodesAsGroupQueryAttention) { Parity({37, 1, 6, 2, 32, 16, {}}, 1).Check(); }

TEST(PagedParity, ContinuesAPromptAsGroupQueryAttention) {
  Parity({19, 13, 4, 4, 16, 4, {{"rotary_interleaved", int64_t{1}}}}, 2).Check();
}

TEST(PagedParity, KeepsTheSameWindow) {
  for (const int64_t window : {1, 2, 7, 40}) {
    SCOPED_TRACE(window);
    Parity({23, 5, 4, 2, 16, 8, {{"local_window_size", window}}}, window).Check();
  }
}

TEST(PagedParity, CapsNormsAndSinksAlike) {
  Parity({11, 3, 4, 2, 16, 8, {{"softcap", 2.0f}}, /*norm=*/true, /*sink=*/true}, 3).Check();
}

TEST(PagedParity, StoresTheSameCodes) {
  Parity({11, 3, 4, 2, 16, 8, {}, /*norm=*/false, /*sink=*/false, /*int8=*/true}, 4).Check();
}

}  // namespace
}  // namespace pagefuse
