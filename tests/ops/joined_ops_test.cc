// SPDX-License-Identifier: Apache-2.0
// Ops that stand for several nodes give their bits.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "linear_support.h"
#include "must.h"
#include "simd_targets.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

using testing::RandomFloats;

Tensor RandomTensor(std::vector<int64_t> dims, uint32_t seed) {
  int64_t size = 1;
  for (const int64_t dim : dims) size *= dim;
  return Tensor::Of<float>(std::move(dims), RandomFloats(size, seed));
}

Tensor RandomBytes(DataType type, std::vector<int64_t> dims, uint32_t seed) {
  Tensor tensor = *Tensor::Allocate(type, std::move(dims));
  auto* bytes = static_cast<uint8_t*>(tensor.mutable_data());
  for (int64_t i = 0; i < tensor.byte_size(); ++i) {
    seed = seed * 1664525 + 1013904223;
    bytes[i] = static_cast<uint8_t>(seed >> 24);
  }
  return tensor;
}

Tensor RandomBf16(std::vector<int64_t> dims, uint32_t seed) {
  const Tensor floats = RandomTensor(dims, seed);
  Tensor tensor = *Tensor::Allocate(DataType::kBfloat16, std::move(dims));
  EXPECT_TRUE(EncodeFromFloat(DataType::kBfloat16, floats.values<float>().data(), floats.size(),
                              tensor.mutable_data())
                  .ok());
  return tensor;
}

// One node whose inputs but for the first are constants; undefined ones are omitted.
struct Op {
  std::string domain, name;
  std::vector<std::pair<std::string, AttributeValue>> attributes = {};
  int num_outputs = 1;

  std::vector<Tensor> Run(const std::vector<Tensor>& inputs) const {
    Graph graph;
    std::vector<Value*> values, outputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string label = StrCat("in", i);
      if (!inputs[i].defined()) {
        values.push_back(nullptr);
      } else if (i > 0) {
        values.push_back(graph.AddInitializer(label, inputs[i]));
      } else {
        values.push_back(
            graph.AddInput(label, inputs[i].dtype(), Shape::FromInts(inputs[i].dims())));
      }
    }
    for (int i = 0; i < num_outputs; ++i) outputs.push_back(graph.AddValue(StrCat("y", i)));
    Node* node = graph.AddNode(domain, name, values, outputs);
    for (const auto& [key, value] : attributes) node->SetAttribute(key, Attribute{value, "", ""});
    return Must(EvaluateNode(*node, domain.empty() ? 24 : 1, inputs));
  }
};

void ExpectSameBits(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.dims(), want.dims());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), static_cast<size_t>(want.byte_size())), 0);
}

TEST(JoinedOps, AddNormHasTheBitsOfItsNodes) {
  for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{1, 1152}, {7, 37}, {40, 640}}) {
    SCOPED_TRACE(n);
    const Tensor x = RandomTensor({rows, n}, 1), residual = RandomTensor({rows, n}, 2);
    const Tensor x_weight = RandomTensor({n}, 3), weight = RandomTensor({n}, 4);
    const Op joined{"pagefuse", "AddNorm", {{"x_epsilon", 1e-6f}, {"epsilon", 1e-3f}}, 2};
    testing::ForEachSimdTarget([&] {
      const Op first{"", "RMSNormalization", {{"epsilon", 1e-6f}}};
      const Op last{"", "RMSNormalization", {{"epsilon", 1e-3f}}};
      const Tensor branch = first.Run({x, x_weight})[0];
      const Tensor sum = Op{"", "Add"}.Run({residual, branch})[0];
      const std::vector<Tensor> got = joined.Run({x, residual, x_weight, weight});
      ExpectSameBits(got[0], sum);
      ExpectSameBits(got[1], last.Run({sum, weight})[0]);
    });
  }
}

const std::vector<int64_t> kParts = {192, 96, 112};

Tensor RowsOf(const Tensor& whole, int64_t begin, int64_t count) {
  std::vector<int64_t> dims = whole.dims();
  const int64_t row = whole.byte_size() / dims[0];
  dims[0] = count;
  return *Tensor::View(whole.dtype(), dims, whole.buffer(),
                       whole.buffer_offset() + static_cast<size_t>(begin * row));
}

struct Weight {
  Tensor rows, bias, scales;  // scales: of codes

  Weight Part(int64_t begin, int64_t count) const {
    return {RowsOf(rows, begin, count), RowsOf(bias, begin, count),
            scales.defined() ? RowsOf(scales, begin, count) : Tensor()};
  }
};

// Part by part, by the op that is joined.
template <typename ProductFn>
void ExpectSplitLinearBits(const Op& joined, const Weight& weight, int64_t k,
                           const ProductFn& product) {
  for (const int64_t m : {1, 3, 16, 17, 40}) {
    SCOPED_TRACE(m);
    const Tensor x = RandomTensor({m, k}, static_cast<uint32_t>(m));
    testing::ForEachSimdTarget([&] {
      std::vector<Tensor> inputs = {x, weight.rows, weight.bias};
      if (weight.scales.defined()) inputs.push_back(weight.scales);
      const std::vector<Tensor> got = joined.Run(inputs);
      int64_t begin = 0;
      for (size_t i = 0; i < kParts.size(); begin += kParts[i], ++i) {
        ExpectSameBits(got[i], product(x, weight.Part(begin, kParts[i])));
      }
    });
  }
}

TEST(JoinedOps, SplitLinearHasTheBitsOfLinears) {
  constexpr int64_t kK = 328, kN = 400;
  const Weight weight{RandomBf16({kN, kK}, 1), RandomTensor({kN}, 2), {}};
  const Op joined{"pagefuse", "SplitLinear", {{"parts", kParts}}, 3};
  for (const Bf16Unit most : {Bf16Unit::kAmx, Bf16Unit::kAvx512, Bf16Unit::kNone}) {
    const ScopedBf16Limit limit(most);
    ExpectSplitLinearBits(joined, weight, kK, [](const Tensor& x, const Weight& part) {
      return Op{"pagefuse", "Linear"}.Run({x, part.rows, part.bias})[0];
    });
  }
}

TEST(JoinedOps, SplitLinearHasTheBitsOfProductsByCodes) {
  constexpr int64_t kK = 352, kN = 400, kBlocks = kK / 32;
  for (const int64_t bits : {2, 4, 8}) {
    for (const int64_t level : {0, 3, 4}) {
      SCOPED_TRACE(StrCat(bits, " bits, level ", level));
      const Weight weight{RandomBytes(DataType::kUint8, {kN, kBlocks, 4 * bits}, 1),
                          RandomTensor({kN}, 2), RandomTensor({kN, kBlocks}, 3)};
      const std::vector<std::pair<std::string, AttributeValue>> codes = {
          {"bits", bits}, {"block_size", int64_t{32}}, {"accuracy_level", level}};
      Op joined{"pagefuse", "SplitLinear", codes, 3};
      joined.attributes.emplace_back("parts", kParts);
      ExpectSplitLinearBits(joined, weight, kK, [&](const Tensor& x, const Weight& part) {
        Op alone{"com.microsoft", "MatMulNBits", codes};
        alone.attributes.emplace_back("K", kK);
        alone.attributes.emplace_back("N", part.rows.dims()[0]);
        return alone.Run({x, part.rows, part.scales, Tensor(), Tensor(), part.bias})[0];
      });
    }
  }
}

}  // namespace
}  // namespace pagefuse
