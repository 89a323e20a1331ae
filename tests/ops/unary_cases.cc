// SPDX-License-Identifier: Apache-2.0
// Cases of the elementwise ops of one input.
#include <cmath>
#include <limits>

#include "op_test.h"

namespace pagefuse::onnx_ops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

OpCases Unary(std::string_view op) {
  return OpCases(op).Shapes({{}, {0, 2}, {1}, {3, 67}, {1000}}).Fill(Normal{0, 3});
}
OpCases Positive(std::string_view op) { return Unary(op).Fill(Uniform{0.01, 20}); }

}  // namespace

OpCases NegCases() { return Unary("Neg").Exact({{1, -2}}, {{-1, 2}}); }
OpCases AbsCases() { return Unary("Abs").Exact({{1, -2, -kInf}}, {{1, 2, kInf}}); }
OpCases SignCases() { return Unary("Sign").Exact({{5, -2, 0, kNan}}, {{1, -1, 0, kNan}}); }
OpCases SqrtCases() { return Positive("Sqrt").Exact({{4, 0, -1}}, {{2, 0, kNan}}); }
OpCases ExpCases() {
  return Unary("Exp").Exact({{0, 1, -kInf, kInf, kNan, 89, 200, -200}},
                            {{1, 2.7182818f, 0, kInf, kNan, kInf, kInf, 0}});
}
OpCases LogCases() { return Positive("Log").Exact({{1, 0, -1}}, {{0, -kInf, kNan}}); }
OpCases ReciprocalCases() { return Positive("Reciprocal").Exact({{4, 0}}, {{0.25f, kInf}}); }
OpCases SinCases() {
  return Unary("Sin").Exact({{0, 1, 131071, kNan}}, {{0, 0.84147098f, std::sin(131071.0f), kNan}});
}
OpCases CosCases() {
  return Unary("Cos").Exact({{0, 1, 131071, kNan}}, {{1, 0.54030231f, std::cos(131071.0f), kNan}});
}
OpCases TanhCases() {
  return Unary("Tanh").Exact({{0, 1, kInf, -kInf, kNan, 1e-6f}},
                             {{0, 0.76159416f, 1, -1, kNan, 1e-6f}});
}
OpCases SigmoidCases() {
  return Unary("Sigmoid").Exact({{0, 1, kInf, -kInf, kNan}}, {{0.5f, 0.73105858f, 1, 0, kNan}});
}
OpCases ErfCases() {
  return Unary("Erf").Exact({{0, 0.5f, -1, 2, kInf, kNan}},
                            {{0, 0.52049988f, -0.84270079f, 0.99532227f, 1, kNan}});
}
OpCases FloorCases() { return Unary("Floor").Exact({{1.5f, -1.5f}}, {{1, -2}}); }
OpCases CeilCases() { return Unary("Ceil").Exact({{1.5f, -1.5f}}, {{2, -1}}); }
OpCases RoundCases() { return Unary("Round").Exact({{0.5f, 1.5f, 2.5f, -2.5f}}, {{0, 2, 2, -2}}); }
OpCases ReluCases() { return Unary("Relu").Exact({{1, -2, kNan}}, {{1, 0, kNan}}); }
OpCases LeakyReluCases() {
  return Unary("LeakyRelu")
      .Exact({{1, -2}}, {{1, -0.02f}})
      .Attributes({{"alpha", 0.5f}})
      .Shapes({{33}});
}
OpCases EluCases() { return Unary("Elu").Exact({{1, -1}}, {{1, -0.63212056f}}); }
OpCases HardSwishCases() {
  return Unary("HardSwish").Exact({{-4, 0, 1, 4}}, {{0, 0, 0.66666667f, 4}});
}
OpCases SoftplusCases() {
  return Unary("Softplus").Exact({{0, 200, -200}}, {{0.69314718f, 200, 0}});
}
OpCases MishCases() { return Unary("Mish").Exact({{0, 1}}, {{0, 0.86509839f}}); }
OpCases SwishCases() {
  return Unary("Swish")
      .Exact({{0, 1}}, {{0, 0.73105858f}})
      .Attributes({{"alpha", 1.702f}})
      .Shapes({{33}});
}
OpCases GeluCases() {
  return Unary("Gelu")
      .Exact({{0, 1, -1, 10}}, {{0, 0.84134475f, -0.15865525f, 10}})
      .Attributes({{"approximate", "tanh"}})
      .Exact({{0, 1, -1, 10}}, {{0, 0.84119199f, -0.15880801f, 10}})
      .Shapes({{3, 67}})
      .Rejects({Floats({1}, {1})}, {{"approximate", "erf"}}, "expected none or tanh");
}
OpCases TanCases() {
  return Unary("Tan").Fill(Uniform{-1.4, 1.4}).Exact({{0, 1}}, {{0, 1.5574077f}});
}
OpCases AsinCases() {
  return Unary("Asin").Fill(Uniform{-1, 1}).Exact({{0, 1, 2}}, {{0, 1.5707964f, kNan}});
}
OpCases AcosCases() {
  return Unary("Acos").Fill(Uniform{-1, 1}).Exact({{1, 0, 2}}, {{0, 1.5707964f, kNan}});
}
OpCases AtanCases() { return Unary("Atan").Exact({{0, kInf}}, {{0, 1.5707964f}}); }
OpCases SinhCases() { return Unary("Sinh").Exact({{0, 1}}, {{0, 1.1752012f}}); }
OpCases CoshCases() { return Unary("Cosh").Exact({{0, 1}}, {{1, 1.5430806f}}); }
OpCases AsinhCases() { return Unary("Asinh").Exact({{0, 1}}, {{0, 0.88137359f}}); }
OpCases AcoshCases() {
  return Unary("Acosh").Fill(Uniform{1, 20}).Exact({{1, 2, 0}}, {{0, 1.3169579f, kNan}});
}
OpCases AtanhCases() {
  return Unary("Atanh").Fill(Uniform{-0.99, 0.99}).Exact({{0, 0.5f}}, {{0, 0.54930614f}});
}
OpCases CeluCases() {
  return Unary("Celu")
      .Exact({{1, -1}}, {{1, -0.63212056f}})
      .Attributes({{"alpha", 2.0f}})
      .Exact({{1, -1}}, {{1, -0.78693868f}});
}
OpCases SeluCases() { return Unary("Selu").Exact({{1, -1, 0}}, {{1.0507010f, -1.1113307f, 0}}); }
OpCases HardSigmoidCases() {
  return Unary("HardSigmoid")
      .Exact({{-4, 0, 1, 4}}, {{0, 0.5f, 0.7f, 1}})
      .Attributes({{"alpha", 0.5f}, {"beta", 0.25f}})
      .Exact({{0, 1}}, {{0.25f, 0.75f}});
}
OpCases SoftsignCases() { return Unary("Softsign").Exact({{1, -3}}, {{0.5f, -0.75f}}); }
OpCases ThresholdedReluCases() {
  return Unary("ThresholdedRelu")
      .Exact({{1, 1.5f, -2, kNan}}, {{0, 1.5f, 0, kNan}})
      .Attributes({{"alpha", -1.0f}})
      .Exact({{-2, -0.5f}}, {{0, -0.5f}});
}
OpCases ShrinkCases() {
  return Unary("Shrink")
      .Attributes({{"bias", 1.5f}, {"lambd", 1.0f}})
      .Exact({{-2, -1, 0, 1, 2}}, {{-0.5f, 0, 0, 0, 0.5f}})
      .Add("integers_truncate", {Ints({3}, {-4, 1, 4})}, {Ints({3}, {-2, 0, 2})},
           {{"bias", 1.5f}, {"lambd", 1.5f}});
}
OpCases BitwiseNotCases() {
  return OpCases("BitwiseNot").Add("ints", {Ints({2}, {0, 5})}, {Ints({2}, {-1, -6})});
}
OpCases NotCases() {
  return OpCases("Not").Add("both", {Bools({2}, {false, true})}, {Bools({2}, {true, false})});
}
OpCases IsNaNCases() {
  return OpCases("IsNaN").Add("kinds", {Floats({4}, {0, kNan, kInf, -kInf})},
                              {Bools({4}, {false, true, false, false})});
}
OpCases IsInfCases() {
  const Tensor x = Floats({4}, {0, kNan, kInf, -kInf});
  return OpCases("IsInf")
      .Add("both", {x}, {Bools({4}, {false, false, true, true})})
      .Add("negative_only", {x}, {Bools({4}, {false, false, false, true})},
           {{"detect_positive", 0}});
}
OpCases ClipCases() {
  return OpCases("Clip")
      .Add("both", {Floats({3}, {-9, 0, 9}), Floats({}, {-1}), Floats({}, {2})},
           {Floats({3}, {-1, 0, 2})})
      .Add("above_only", {Ints({2}, {-9, 9}), Tensor(), Ints({}, {2})}, {Ints({2}, {-9, 2})})
      .Add("crossed", {Floats({1}, {0}), Floats({}, {2}), Floats({}, {1})}, {Floats({1}, {1})})
      .Add({.name = "attributes",
            .inputs = {Floats({3}, {-9, 0, 9})},
            .attributes = {{"min", -1.0f}, {"max", 2.0f}},
            .outputs = {Floats({3}, {-1, 0, 2})},
            .opset = 10})
      .Rejects({Floats({1}, {0}), Floats({2}, {1, 2})}, "expected a scalar")
      .Rejects(
          OpCase{.inputs = {Floats({1}, {0})}, .attributes = {{"min", -1.0f}}, .opset = 13},
          "attribute \"min\": expected an input from opset 11 on, got an attribute in opset 13");
}

}  // namespace pagefuse::onnx_ops
