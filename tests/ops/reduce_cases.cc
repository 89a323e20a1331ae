// SPDX-License-Identifier: Apache-2.0
// Cases of reductions, softmax and norms.
#include <cmath>
#include <limits>

#include "op_test.h"

namespace pagefuse::onnx_ops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

// Over the last axis, the first, both ends, none, all; `expected` is that of {1, 2, 3} alone.
OpCases Reduction(std::string_view op, float expected) {
  const Tensor x = Random(DataType::kFloat, {3, 5, 70}, Uniform{0.1, 2}, 7);
  const AttributeList drop = {{"keepdims", 0}};
  OpCases cases(op);
  cases.Add("all", {Floats({3}, {1, 2, 3})}, {Floats({}, {expected})}, drop);
  cases.Add("last", {x, Ints({1}, {-1})});
  cases.Add({.name = "first", .inputs = {x, Ints({1}, {0})}, .attributes = drop});
  cases.Add("long", {Random(DataType::kFloat, {150, 20}, Uniform{0.9, 1.1}, 8), Ints({1}, {0})});
  cases.Add("middle", {Random(DataType::kFloat, {2, 5, 300}, Uniform{0.1, 2}, 9), Ints({1}, {1})});
  cases.Add("ends", {x, Ints({2}, {0, 2})});
  cases.Add(
      {.name = "noop", .inputs = {x, Ints({0}, {})}, .attributes = {{"noop_with_empty_axes", 1}}});
  cases.Add({.name = "attribute",
             .inputs = {x},
             .attributes = {{"axes", std::vector<int64_t>{1, 2}}},
             .opset = 12});
  cases.Within(DataType::kFloat, {.rtol = 2e-5, .atol = 1e-6}, "float sums against sums in double");
  cases.Rejects({x, Ints({1}, {3})}, "axis 3 is out of range");
  return cases;
}

OpCase Empty(float expected) {
  return {.name = "empty",
          .inputs = {Floats({2, 0}, {}), Ints({1}, {1})},
          .outputs = {Floats({2, 1}, {expected, expected})}};
}

OpCases Norm(std::string_view op) {
  return OpCases(op)
      .ShapeSets({{{3, 67}, {67}}, {{2, 3, 16}, {16}}, {{0, 8}, {8}}})
      .Attributes({{"axis", 1}, {"epsilon", 0.1f}})
      .ShapeSets({{{2, 3, 5}, {3, 5}}, {{2, 3, 5}, {5}}})
      .Within(DataType::kFloat, {.rtol = 2e-5, .atol = 1e-5}, "float sums against sums in double")
      .Rejects({Floats({2, 2}, {1, 2, 3, 4}), Floats({3}, {1, 2, 3})}, "does not broadcast");
}

}  // namespace

OpCases ReduceSumCases() { return Reduction("ReduceSum", 6).Add(Empty(0)); }
OpCases ReduceMeanCases() { return Reduction("ReduceMean", 2).Add(Empty(kNan)); }
OpCases ReduceMaxCases() { return Reduction("ReduceMax", 3).Add(Empty(-kInf)); }
OpCases ReduceMinCases() { return Reduction("ReduceMin", 1).Add(Empty(kInf)); }
OpCases ReduceProdCases() { return Reduction("ReduceProd", 6).Add(Empty(1)); }
OpCases ReduceL1Cases() { return Reduction("ReduceL1", 6).Add(Empty(0)); }
OpCases ReduceL2Cases() { return Reduction("ReduceL2", 3.74165739f).Add(Empty(0)); }
OpCases ReduceSumSquareCases() { return Reduction("ReduceSumSquare", 14).Add(Empty(0)); }
OpCases ReduceLogSumCases() { return Reduction("ReduceLogSum", 1.79175947f).Add(Empty(-kInf)); }
OpCases ReduceLogSumExpCases() {
  return Reduction("ReduceLogSumExp", 3.40760596f)
      .Add(Empty(-kInf))
      .Add("not_finite",
           {Floats({5, 2}, {-kInf, -kInf, kInf, 1, kNan, 1, kInf, -kInf, 1000, 1000}),
            Ints({1}, {1})},
           {Floats({5}, {-kInf, kInf, kNan, kInf, 1000.69315f})}, {{"keepdims", 0}});
}

OpCases SoftmaxCases() {
  return OpCases("Softmax")
      .Exact({{0, 0, -kInf, 0}}, {{0.33333333f, 0.33333333f, 0, 0.33333333f}})
      .Exact({{-kInf, -kInf}}, {{kNan, kNan}})
      .Exact({{1000, 999}}, {{0.73105858f, 0.26894142f}})
      .Shapes({{}, {3, 67}, {2, 1000}, {0, 4}})
      .Attributes({{"axis", 0}})
      .Shapes({{5, 3}, {40, 150}})
      .Rejects({Floats({1}, {1})}, {{"axis", 1}}, "out of range");
}
OpCases LogSoftmaxCases() {
  return OpCases("LogSoftmax")
      .Exact({{1000, 999}}, {{-0.31326169f, -1.31326169f}})
      .Shapes({{3, 67}, {2, 1000}})
      .Attributes({{"axis", 0}})
      .Shapes({{5, 3}, {40, 150}});
}
OpCases RMSNormalizationCases() {
  return Norm("RMSNormalization")
      .Add("by_hand", {Floats({1, 2}, {3, 4}), Floats({2}, {1, 2})},
           {Floats({1, 2}, {0.84852814f, 2.26274170f})}, {{"epsilon", 0.0f}});
}
OpCases SimplifiedLayerNormalizationCases() { return Norm("SimplifiedLayerNormalization"); }
OpCases LayerNormalizationCases() {
  return Norm("LayerNormalization")
      .Add("by_hand", {Floats({1, 2}, {3, 5}), Floats({2}, {1, 2}), Floats({2}, {0, 1})},
           {Floats({1, 2}, {-1, 3})}, {{"epsilon", 0.0f}});
}

}  // namespace pagefuse::onnx_ops
