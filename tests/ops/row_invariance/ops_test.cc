// SPDX-License-Identifier: Apache-2.0
// The same of the ops with products in float32: how they take batches of matrices apart, and rows by
// their experts.
#include <string>
#include <utility>

#include "must.h"
#include "rows.h"

#include "pagefuse/ops/evaluate/evaluate.h"

namespace pagefuse::testing {
namespace {

struct Op {
  std::string domain, name;
  std::vector<std::pair<std::string, decltype(Attribute::value)>> attributes = {};
};

std::vector<float> Evaluate(const Op& op, const std::vector<Tensor>& inputs) {
  Graph graph;
  std::vector<Value*> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    values.push_back(graph.AddInput("in" + std::to_string(i), inputs[i].dtype(),
                                    Shape::FromInts(inputs[i].dims())));
  }
  Node* node = graph.AddNode(op.domain, op.name, values, {graph.AddValue("y")});
  for (const auto& [name, value] : op.attributes) {
    node->SetAttribute(name, Attribute{value, "", ""});
  }
  const Tensor y = Must(EvaluateNode(*node, 20, inputs)).front();
  return {y.values<float>().begin(), y.values<float>().end()};
}

Tensor Rows(const float* x, std::vector<int64_t> dims) {
  int64_t size = 1;
  for (const int64_t dim : dims) size *= dim;
  return Tensor::Of<float>(std::move(dims), std::vector<float>(x, x + size));
}

Tensor Weights(std::vector<int64_t> dims) {
  int64_t size = 1;
  for (const int64_t dim : dims) size *= dim;
  return Tensor::Of<float>(std::move(dims), RandomFloats(size, 5));
}

// Rows of x [m, k] by one matrix; what is not a row's own has no part in it.
void ExpectProductInvariance(const Op& op, const std::vector<int64_t>& weight_dims, int64_t k,
                             int64_t n) {
  const Tensor w = Weights(weight_dims);
  ExpectRowInvariance({k, n, [&](const float* x, const std::vector<int64_t>& labels) {
                         const auto m = static_cast<int64_t>(labels.size());
                         return Evaluate(op, {Rows(x, {m, k}), w});
                       }});
}

TEST(RowInvariance, MatMul) { ExpectProductInvariance({"", "MatMul"}, {150, 70}, 150, 70); }

TEST(RowInvariance, Gemm) {
  ExpectProductInvariance({"", "Gemm", {{"transB", int64_t{1}}, {"alpha", 0.7f}}}, {70, 150}, 150,
                          70);
}

// x comes as [k, m].
TEST(RowInvariance, GemmOfColumns) {
  const int64_t k = 90, n = 50;
  const Tensor w = Weights({k, n});
  const Op op{"", "Gemm", {{"transA", int64_t{1}}}};
  ExpectRowInvariance({k, n, [&](const float* x, const std::vector<int64_t>& labels) {
                         const auto m = static_cast<int64_t>(labels.size());
                         std::vector<float> turned(m * k);
                         for (int64_t r = 0; r < m; ++r) {
                           for (int64_t i = 0; i < k; ++i) turned[i * m + r] = x[r * k + i];
                         }
                         return Evaluate(op, {Rows(turned.data(), {k, m}), w});
                       }});
}

TEST(RowInvariance, FusedMatMul) {
  ExpectProductInvariance({"com.microsoft", "FusedMatMul", {{"transB", int64_t{1}}}}, {70, 150},
                          150, 70);
}

// A batch of matrices on both sides: every row of x in three of them.
TEST(RowInvariance, MatMulOfBatches) {
  const int64_t k = 64, n = 33, batch = 3;
  const Tensor w = Weights({batch, k, n});
  ExpectRowInvariance(
      {k, batch * n, [&](const float* x, const std::vector<int64_t>& labels) {
         const auto m = static_cast<int64_t>(labels.size());
         const std::vector<float> y = Evaluate({"", "MatMul"}, {Rows(x, {1, m, k}), w});
         std::vector<float> by_row;
         for (int64_t r = 0; r < m; ++r) {
           for (int64_t b = 0; b < batch; ++b) {
             const float* row = &y[(b * m + r) * n];
             by_row.insert(by_row.end(), row, row + n);
           }
         }
         return by_row;
       }});
}

TEST(RowInvariance, GatedLinear) {
  const int64_t k = 100, n = 60;
  const Tensor gate = Weights({k, n}), up = Weights({k, n});
  const Op op{"pagefuse", "GatedLinear", {{"activation", std::string("silu")}}};
  ExpectRowInvariance({k, n, [&](const float* x, const std::vector<int64_t>& labels) {
                         const auto m = static_cast<int64_t>(labels.size());
                         return Evaluate(op, {Rows(x, {m, k}), gate, up});
                       }});
}

// Small matrices, a thread each, and large ones, all threads each.
TEST(RowInvariance, GroupedMatMul) {
  for (const auto& [k, n] : {std::pair<int64_t, int64_t>{40, 30}, {300, 220}}) {
    const int64_t experts = 5;
    const Tensor w = Weights({experts, k, n});
    ExpectRowInvariance({.k = k,
                         .n = n,
                         .run =
                             [&, k = k](const float* x, const std::vector<int64_t>& labels) {
                               const auto m = static_cast<int64_t>(labels.size());
                               return Evaluate(
                                   {"pagefuse", "GroupedMatMul"},
                                   {Rows(x, {m, k}), Tensor::Of<int64_t>({m}, labels), w});
                             },
                         .num_labels = experts});
  }
}

}  // namespace
}  // namespace pagefuse::testing
