// SPDX-License-Identifier: Apache-2.0
// MatMul, Gemm, FusedMatMul and GatedLinear as ops: reference, kernels and decompositions against
// sums in double.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "linear_support.h"
#include "must.h"

#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/kernels/linalg/activation.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/linalg/packed_bf16.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;
using testing::RandomFloats;

Tensor RandomTensor(std::vector<int64_t> dims, uint32_t seed) {
  int64_t size = 1;
  for (int64_t dim : dims) size *= dim;
  return Tensor::Of<float>(std::move(dims), RandomFloats(size, seed));
}

// A node of its own graph, the inputs from `first_constant` on as initialisers.
struct Call {
  Call(std::string_view domain, std::string_view op, std::vector<Tensor> tensors,
       size_t first_constant = 1)
      : inputs(std::move(tensors)) {
    std::vector<Value*> values;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string name = "in" + std::to_string(i);
      values.push_back(i >= first_constant ? graph.AddInitializer(name, inputs[i])
                                           : graph.AddInput(name, inputs[i].dtype(),
                                                            Shape::FromInts(inputs[i].dims())));
    }
    node = graph.AddNode(domain, op, values, {graph.AddValue("y")});
    node->name = "product";
  }
  template <typename T>
  Call& Set(std::string_view name, T value) {
    node->SetAttribute(name, Attribute{std::move(value), "", ""});
    return *this;
  }
  absl::StatusOr<Tensor> Run(const EvaluateOptions& options = {}) const {
    absl::StatusOr<std::vector<Tensor>> outputs = EvaluateNode(*node, 20, inputs, options);
    if (!outputs.ok()) return outputs.status();
    return outputs->front();
  }
  Graph graph;
  std::vector<Tensor> inputs;
  Node* node = nullptr;
};

void ExpectNear(const absl::StatusOr<Tensor>& got, const std::vector<int64_t>& dims,
                const std::vector<double>& want, double tolerance) {
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->dims(), dims);
  ASSERT_EQ(got->size(), static_cast<int64_t>(want.size()));
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got->values<float>()[i], want[i], tolerance * (1 + std::abs(want[i]))) << i;
  }
}

// Runs by the best kernel, by the reference, and by the decomposition where there is one.
void ExpectAllNear(const Call& call, const std::vector<int64_t>& dims,
                   const std::vector<double>& want, double tolerance = 1e-5) {
  ExpectNear(call.Run(), dims, want, tolerance);
  ExpectNear(call.Run({.force_kernel = "reference"}), dims, want, tolerance);
}

// a [batch, m, k] * b [k, n] or [batch, k, n], in double.
std::vector<double> MatMulInDouble(const Tensor& a, const Tensor& b, int64_t batch,
                                   int64_t b_batch) {
  const int64_t m = a.dims()[a.rank() - 2], k = a.dims().back(), n = b.dims().back();
  std::vector<double> y;
  for (int64_t i = 0; i < batch; ++i) {
    const RowsView x{a.values<float>().data() + i * m * k, m, k};
    const WeightView w{b.values<float>().data() + (b_batch == 1 ? 0 : i) * k * n, k, n, false};
    const std::vector<double> part = testing::MultiplyInDouble(x, w).y;
    y.insert(y.end(), part.begin(), part.end());
  }
  return y;
}

TEST(MatMul, SmallProductByHand) {
  const Call call(
      "", "MatMul",
      {Tensor::Of<float>({2, 2}, {1, 2, 3, 4}), Tensor::Of<float>({2, 3}, {1, 0, 2, 0, 1, 3})});
  ExpectAllNear(call, {2, 3}, {1, 2, 8, 3, 4, 18}, 0);
}

TEST(MatMul, BatchOfMatricesByOneMatrix) {
  const Tensor a = RandomTensor({3, 2, 5, 33}, 1);
  const Tensor b = RandomTensor({33, 18}, 2);
  const std::vector<double> want = MatMulInDouble(a, b, 6, 1);
  ExpectAllNear(Call("", "MatMul", {a, b}, 1), {3, 2, 5, 18}, want);
  ExpectAllNear(Call("", "MatMul", {a, b}, 2), {3, 2, 5, 18}, want);
}

TEST(MatMul, BatchOfMatricesByBatchOfMatrices) {
  const Tensor a = RandomTensor({4, 7, 40}, 1);
  const Tensor b = RandomTensor({4, 40, 9}, 2);
  ExpectAllNear(Call("", "MatMul", {a, b}, 2), {4, 7, 9}, MatMulInDouble(a, b, 4, 4));
}

TEST(MatMul, LeadingDimsBroadcastBothWays) {
  const Tensor a = RandomTensor({2, 1, 3, 4}, 1);
  const Tensor b = RandomTensor({5, 4, 2}, 2);
  std::vector<double> want;
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 5; ++j) {
      const RowsView x{a.values<float>().data() + i * 12, 3, 4};
      const WeightView w{b.values<float>().data() + j * 8, 4, 2, false};
      const std::vector<double> part = testing::MultiplyInDouble(x, w).y;
      want.insert(want.end(), part.begin(), part.end());
    }
  }
  ExpectAllNear(Call("", "MatMul", {a, b}, 2), {2, 5, 3, 2}, want);
}

TEST(MatMul, VectorsAreRowsAndColumns) {
  const Tensor v = Tensor::Of<float>({2}, {1, 2});
  const Tensor matrix = Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor tall = Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  ExpectAllNear(Call("", "MatMul", {v, matrix}), {3}, {9, 12, 15}, 0);
  ExpectAllNear(Call("", "MatMul", {tall, v}), {3}, {5, 11, 17}, 0);
  ExpectAllNear(Call("", "MatMul", {v, v}), {}, {5}, 0);
}

TEST(MatMul, EmptyDims) {
  const Call no_rows("", "MatMul", {RandomTensor({0, 3}, 1), RandomTensor({3, 2}, 2)});
  ExpectAllNear(no_rows, {0, 2}, {});
  const Call no_terms("", "MatMul", {RandomTensor({2, 0}, 1), RandomTensor({0, 2}, 2)});
  ExpectAllNear(no_terms, {2, 2}, {0, 0, 0, 0});
  const Call no_batch("", "MatMul", {RandomTensor({0, 2, 3}, 1), RandomTensor({1, 3, 2}, 2)}, 2);
  ExpectAllNear(no_batch, {0, 2, 2}, {});
}

TEST(MatMul, IntegersWrapAndDoublesKeepTheirPrecision) {
  const Call ints(
      "", "MatMul",
      {Tensor::Of<int32_t>({1, 2}, {1 << 30, 3}), Tensor::Of<int32_t>({2, 1}, {4, -5})});
  const Tensor y = Must(ints.Run());
  EXPECT_EQ(y.values<int32_t>()[0], -15);
  const Call doubles(
      "", "MatMul",
      {Tensor::Of<double>({1, 2}, {1e17, 1}), Tensor::Of<double>({2, 1}, {1e-17, 1e-12})});
  EXPECT_EQ(doubles.Run()->values<double>()[0], 1.0 + 1e-12);
}

TEST(MatMul, SixteenBitTypesAddInFloat) {
  // In float16 every partial sum above 2048 would lose its last 1.
  Tensor ones = *Tensor::Allocate(DataType::kFloat16, {1, 4096});
  for (Float16& value : ones.mutable_values<Float16>()) value = Float16(1.0f);
  const Call call("", "MatMul", {ones, *ones.Reshaped({4096, 1})});
  EXPECT_EQ(static_cast<float>(call.Run()->values<Float16>()[0]), 4096.0f);
}

// Rows [N, K] of bfloat16.
Tensor RowsTensor(const WeightView& weight) {
  Tensor rows = *Tensor::Allocate(DataType::kBfloat16, {weight.n, weight.k});
  RoundToRows(weight, static_cast<uint16_t*>(rows.mutable_data()));
  return rows;
}

TEST(Linear, GivesTheDefinedBitsOfBothOrders) {
  const Tensor a = RandomTensor({19, 70}, 1);
  const Tensor b = RandomTensor({70 * 21}, 2);
  for (const bool transposed : {false, true}) {
    const WeightView w{b.values<float>().data(), 70, 21, transposed};
    const Call call("pagefuse", "Linear", {a, RowsTensor(w)}, 1);
    for (const Bf16Unit most : {Bf16Unit::kAmx, Bf16Unit::kAvx512, Bf16Unit::kNone}) {
      const ScopedBf16Limit limit(most);
      const Tensor y = Must(call.Run());
      for (int64_t i = 0; i < y.size(); ++i) {
        ASSERT_EQ(y.values<float>()[i],
                  testing::Bf16Dot(a.values<float>().data() + i / 21 * 70, w, i % 21));
      }
    }
  }
}

// Whichever loop has the threads: small matrices, and large ones.
TEST(Linear, StacksHaveTheBitsOfTheirMatrices) {
  for (const int64_t n : {21, 4100}) {
    const int64_t matrices = 3, m = 5, k = 70;
    const Tensor a = RandomTensor({2, matrices, m, k}, 1);
    const Tensor b = RandomTensor({matrices * n * k}, 2);
    const WeightView all{b.values<float>().data(), k, matrices * n, true};
    const Tensor rows = RowsTensor(all);
    const Tensor stack = Must(rows.Reshaped({matrices, n, k}));
    const Tensor y = Must(Call("pagefuse", "Linear", {a, stack}, 1).Run());
    EXPECT_EQ(y.dims(), (std::vector<int64_t>{2, matrices, m, n}));
    for (int64_t row = 0; row < 2 * matrices * m; ++row) {
      const float* x = a.values<float>().data() + row * k;
      const WeightView w{b.values<float>().data() + row / m % matrices * n * k, k, n, true};
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(y.values<float>()[row * n + i], testing::Bf16Dot(x, w, i)) << row << " " << i;
      }
    }
  }
}

TEST(MatMul, RefusesShapesThatDoNotFit) {
  const Call call("", "MatMul", {RandomTensor({2, 3}, 1), RandomTensor({4, 2}, 2)});
  EXPECT_EQ(call.Run().status().message(),
            "node \"product\" (MatMul): input 1 \"B\": expected 3 rows to multiply [2, 3] by, got "
            "[4, 2]");
  const Call scalar("", "MatMul", {Tensor::Scalar(1.0f), RandomTensor({4, 2}, 2)});
  EXPECT_THAT(scalar.Run().status().message(),
              HasSubstr("input 0 \"A\": expected a matrix or vector, got shape []"));
  const Call batch("", "MatMul", {RandomTensor({2, 1, 3}, 1), RandomTensor({3, 3, 2}, 2)});
  EXPECT_THAT(batch.Run().status().message(), HasSubstr("do not broadcast"));
}

TEST(FusedMatMul, TransposesAndScales) {
  const Tensor a = RandomTensor({2, 40, 6}, 1);   // [batch, K, M]
  const Tensor b = RandomTensor({2, 17, 40}, 2);  // [batch, N, K]
  std::vector<double> want;
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t row = 0; row < 6; ++row) {
      for (int64_t column = 0; column < 17; ++column) {
        double sum = 0;
        for (int64_t k = 0; k < 40; ++k) {
          sum += double{a.values<float>()[(i * 40 + k) * 6 + row]} *
                 b.values<float>()[(i * 17 + column) * 40 + k];
        }
        want.push_back(0.5 * sum);
      }
    }
  }
  Call call("com.microsoft", "FusedMatMul", {a, b}, 2);
  call.Set("transA", int64_t{1}).Set("transB", int64_t{1}).Set("alpha", 0.5f);
  ExpectAllNear(call, {2, 6, 17}, want);
}

TEST(FusedMatMul, TransposedWeight) {
  const Tensor a = RandomTensor({3, 70}, 1);
  const Tensor b = RandomTensor({50, 70}, 2);
  const WeightView w{b.values<float>().data(), 70, 50, true};
  Call call("com.microsoft", "FusedMatMul", {a, b});
  call.Set("transB", int64_t{1});
  ExpectAllNear(call, {3, 50}, testing::MultiplyInDouble({a.values<float>().data(), 3, 70}, w).y);
}

TEST(FusedMatMul, RefusesATransposedVectorAndTransposedBatches) {
  Call vector("com.microsoft", "FusedMatMul", {RandomTensor({4}, 1), RandomTensor({4, 2}, 2)});
  vector.Set("transA", int64_t{1});
  EXPECT_THAT(vector.Run().status().message(),
              HasSubstr("input 0 \"A\": expected a matrix to transpose"));
  Call batch("com.microsoft", "FusedMatMul", {RandomTensor({4, 4}, 1), RandomTensor({4, 2}, 2)});
  batch.Set("transBatchA", int64_t{1});
  EXPECT_THAT(batch.Run().status().message(), HasSubstr("attribute \"transBatchA\""));
}

TEST(Gemm, TransposesScalesAndAddsABroadcastBias) {
  const Tensor a = RandomTensor({40, 6}, 1);
  const Tensor b = RandomTensor({17, 40}, 2);
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{}, {1}, {17}, {6, 1}, {1, 17}, {6, 17}}) {
    const Tensor c = RandomTensor(dims, 3);
    std::vector<double> want;
    for (int64_t row = 0; row < 6; ++row) {
      for (int64_t column = 0; column < 17; ++column) {
        double sum = 0;
        for (int64_t k = 0; k < 40; ++k) {
          sum += double{a.values<float>()[k * 6 + row]} * b.values<float>()[column * 40 + k];
        }
        const int64_t bias_row = dims.size() == 2 && dims[0] > 1 ? row : 0;
        const int64_t width = dims.empty() ? 1 : dims.back();
        want.push_back(2 * sum +
                       3 * c.values<float>()[bias_row * width + (width > 1 ? column : 0)]);
      }
    }
    Call call("", "Gemm", {a, b, c});
    call.Set("transA", int64_t{1}).Set("transB", int64_t{1}).Set("alpha", 2.0f).Set("beta", 3.0f);
    ExpectAllNear(call, {6, 17}, want);
  }
}

TEST(Gemm, RefusesABiasThatDoesNotBroadcast) {
  const Call call("", "Gemm",
                  {RandomTensor({2, 3}, 1), RandomTensor({3, 4}, 2), RandomTensor({3}, 3)});
  EXPECT_THAT(call.Run().status().message(),
              HasSubstr("input 2 \"C\": expected a shape that broadcasts to [2, 4], got [3]"));
}

TEST(GatedLinear, EveryActivationInFloatAndBfloat16) {
  const int64_t k = 70, n = 37;
  for (int64_t m : {1, 3, 20}) {
    Tensor x = RandomTensor({1, m, k}, 1);
    for (float& v : x.mutable_values<float>()) v *= 0.1f;
    const Tensor gate = RandomTensor({k, n}, 2);
    const Tensor up = RandomTensor({k, n}, 3);
    const WeightView g{gate.values<float>().data(), k, n, false};
    const WeightView u{up.values<float>().data(), k, n, false};
    for (const char* name : {"gelu", "gelu_tanh", "silu"}) {
      Call call("pagefuse", "GatedLinear", {x, gate, up});
      call.Set("activation", std::string(name));
      const Activation activation = *ActivationFromName(name);
      std::vector<double> want;
      std::vector<double> want_bf16;
      for (int64_t i = 0; i < m * n; ++i) {
        const RowsView row{x.values<float>().data() + i / n * k, 1, k};
        const WeightView g1{g.data, k, n, false};
        double gate_sum = 0, up_sum = 0;
        for (int64_t j = 0; j < k; ++j) {
          gate_sum += row.data[j] * testing::WeightAt(g1, j, i % n);
          up_sum += row.data[j] * testing::WeightAt(u, j, i % n);
        }
        want.push_back(ApplyActivation(activation, gate_sum) * up_sum);
        want_bf16.push_back(ApplyActivation(activation, testing::Bf16Dot(row.data, g, i % n)) *
                            testing::Bf16Dot(row.data, u, i % n));
      }
      ExpectAllNear(call, {1, m, n}, want);
      Call packed("pagefuse", "GatedLinear", {x, RowsTensor(g), RowsTensor(u)});
      packed.Set("activation", std::string(name)).Set("transB", int64_t{1});
      ExpectAllNear(packed, {1, m, n}, want_bf16);
    }
  }
}

TEST(GatedLinear, RefusesAnUnknownActivationAndUnequalWeights) {
  Call activation("pagefuse", "GatedLinear",
                  {RandomTensor({2, 3}, 1), RandomTensor({3, 4}, 2), RandomTensor({3, 4}, 3)});
  activation.Set("activation", std::string("relu"));
  EXPECT_THAT(
      activation.Run().status().message(),
      HasSubstr("attribute \"activation\": expected gelu, gelu_tanh or silu, got \"relu\""));
  Call shapes("pagefuse", "GatedLinear",
              {RandomTensor({2, 3}, 1), RandomTensor({3, 4}, 2), RandomTensor({3, 5}, 3)});
  shapes.Set("activation", std::string("silu"));
  EXPECT_THAT(shapes.Run().status().message(),
              HasSubstr("input 2 \"w_up\": expected [K, N] with K = 3 of \"x\", N = 4 of "
                        "\"w_gate\", no \"gate_scales\", transB = 0, got [3, 5]"));
}

}  // namespace
}  // namespace pagefuse
