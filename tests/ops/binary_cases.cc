// SPDX-License-Identifier: Apache-2.0
// Cases of the elementwise ops with broadcast.
#include <cmath>
#include <limits>

#include "op_test.h"

namespace pagefuse::onnx_ops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

// Random operands of equal shape, with a scalar, along rows, along columns, and into a higher rank.
OpCases Broadcasts(std::string_view op) {
  return OpCases(op)
      .ShapeSets({{{0, 3}, {0, 3}},
                  {{1}, {1}},
                  {{3, 67}, {3, 67}},
                  {{3, 67}, {}},
                  {{3, 67}, {67}},
                  {{3, 1}, {3, 67}},
                  {{2, 1, 5}, {4, 1}}})
      .Rejects({Floats({2}, {1, 2}), Floats({3}, {1, 2, 3})}, "");
}

OpCases Logic(std::string_view op, const std::vector<bool>& expected) {
  return OpCases(op)
      .Add("truth_table", {Bools({2, 1}, {false, true}), Bools({2}, {false, true})},
           {Bools({2, 2}, expected)})
      .ShapeSets({{{3, 5}, {5}}});
}

// The relation of 1 to 2, 2 to 2, 3 to 2 and NaN to 2.
OpCases Comparison(std::string_view op, const std::vector<bool>& expected) {
  return OpCases(op)
      .Add("less_equal_greater_nan", {Floats({4}, {1, 2, 3, kNan}), Floats({}, {2})},
           {Bools({4}, expected)})
      .ShapeSets({{{3, 67}, {67}}, {{2, 1}, {1, 3}}});
}

// On 0b1100 and 0b1010.
OpCases Bitwise(std::string_view op, int64_t expected) {
  return OpCases(op)
      .Add("nibble", {Ints({}, {12}), Ints({}, {10})}, {Ints({}, {expected})})
      .ShapeSets({{{3, 5}, {5}}});
}

Tensor Int8s(const std::vector<int64_t>& values) {
  return As(DataType::kInt8, Ints({static_cast<int64_t>(values.size())}, values));
}

}  // namespace

OpCases AddCases() {
  return Broadcasts("Add").Add("int8_wraps", {Int8s({127, -128}), Int8s({1, -1})},
                               {Int8s({-128, 127})});
}
OpCases SubCases() { return Broadcasts("Sub").Exact({{5, 1}, {2, 3}}, {{3, -2}}); }
OpCases MulCases() { return Broadcasts("Mul").Exact({{5, -1}, {2, 3}}, {{10, -3}}); }

OpCases DivCases() {
  return Broadcasts("Div")
      .Types({DataType::kFloat, DataType::kDouble, DataType::kFloat16, DataType::kBfloat16})
      .Exact({{1, -1, 0}, {0, 0, 0}}, {{kInf, -kInf, kNan}})
      .Add("integers_truncate", {Ints({4}, {7, -7, 7, -7}), Ints({4}, {2, 2, -2, -2})},
           {Ints({4}, {3, -3, -3, 3})})
      .Add("least_by_minus_one", {Int8s({-128}), Int8s({-1})}, {Int8s({-128})})
      .Rejects({Ints({1}, {7}), Ints({1}, {0})}, "an integer divisor must not be");
}

OpCases ModCases() {
  return OpCases("Mod")
      .Add("sign_of_divisor", {Ints({4}, {7, -7, 7, -7}), Ints({4}, {3, 3, -3, -3})},
           {Ints({4}, {1, 2, -2, -1})})
      .Add("fmod_has_sign_of_dividend", {Ints({4}, {7, -7, 7, -7}), Ints({4}, {3, 3, -3, -3})},
           {Ints({4}, {1, -1, 1, -1})}, {{"fmod", 1}})
      .Add("floats", {Floats({4}, {5.5f, -5.5f, 1, -3}), Floats({4}, {2, 2, 0, kInf})},
           {Floats({4}, {1.5f, 0.5f, kNan, kInf})})
      .Rejects({Ints({1}, {7}), Ints({1}, {0})}, "an integer divisor must not be");
}

OpCases PowCases() {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor special = Floats({7}, {-inf, -2, -0.0f, 0, 0.3f, inf, std::nanf("")});
  const Tensor positive = Random(DataType::kFloat, {150}, Uniform{1e-3, 40}, 1);
  return OpCases("Pow")
      .Add("root", {special, Floats({}, {0.5f})})
      .Add("inverse", {special, Floats({}, {-1})})
      .Add("other", {special, Floats({}, {1.7f})})
      .Add("positive_bases", {positive, Floats({}, {1.7f})})
      .Add("overflow", {positive, Floats({}, {60})})
      .Add("underflow", {positive, Floats({}, {-60})})
      .Add("integers", {Ints({6}, {2, 3, -1, 1, 5, 0}), Ints({6}, {10, 0, -3, -5, -1, -1})},
           {Ints({6}, {1024, 1, -1, 1, 0, 0})})
      .Add("square", {Floats({3}, {-3, 0, 1.5f}), Floats({}, {2})}, {Floats({3}, {9, 0, 2.25f})})
      .Add("cube", {Floats({2}, {-3, 2}), Floats({1}, {3})}, {Floats({2}, {-27, 8})})
      .Add("root", {Floats({2}, {4, -1}), Floats({}, {0.5f})}, {Floats({2}, {2, kNan})})
      .Add("float_to_int64", {Floats({2}, {1.5f, 2}), Ints({2}, {2, -1})},
           {Floats({2}, {2.25f, 0.5f})});
}

OpCases PReluCases() {
  return OpCases("PRelu")
      .Exact({{-2, 0, 3}, {0.5f, 9, 9}}, {{-1, 0, 3}})
      .ShapeSets({{{3, 7}, {7}}});
}

OpCases AndCases() { return Logic("And", {false, false, false, true}); }
OpCases OrCases() { return Logic("Or", {false, true, true, true}); }
OpCases XorCases() { return Logic("Xor", {false, true, true, false}); }
OpCases EqualCases() { return Comparison("Equal", {false, true, false, false}); }
OpCases LessCases() { return Comparison("Less", {true, false, false, false}); }
OpCases LessOrEqualCases() { return Comparison("LessOrEqual", {true, true, false, false}); }
OpCases GreaterCases() { return Comparison("Greater", {false, false, true, false}); }
OpCases GreaterOrEqualCases() { return Comparison("GreaterOrEqual", {false, true, true, false}); }
OpCases BitwiseAndCases() { return Bitwise("BitwiseAnd", 8); }
OpCases BitwiseOrCases() { return Bitwise("BitwiseOr", 14); }
OpCases BitwiseXorCases() { return Bitwise("BitwiseXor", 6); }

OpCases BitShiftCases() {
  const std::string left = "LEFT", right = "RIGHT";
  return OpCases("BitShift")
      .Add("left", {Int8s({3, 1, 1, 5}), Int8s({2, 7, 8, -1})}, {Int8s({12, -128, 0, 0})},
           {{"direction", left}})
      .Add("right_keeps_the_sign", {Int8s({-8, 8, -1, -1}), Int8s({1, 1, 8, -1})},
           {Int8s({-4, 4, -1, -1})}, {{"direction", right}})
      .Rejects({Int8s({1}), Int8s({1})}, {{"direction", "UP"}}, "expected LEFT or RIGHT");
}

OpCases MaxCases() {
  return Broadcasts("Max")
      .Exact({{1, kNan, -kInf}, {2, 0, kNan}}, {{2, kNan, kNan}})
      .Exact({{1, 9, 3}, {2, 0, 1}, {0, 4, 5}}, {{2, 9, 5}})
      .Exact({{1}}, {{1}});
}
OpCases MinCases() {
  return Broadcasts("Min")
      .Exact({{1, kNan, -kInf}, {2, 0, kNan}}, {{1, kNan, kNan}})
      .Exact({{1, 9, 3}, {2, 0, 1}, {0, 4, 5}}, {{0, 0, 1}});
}
OpCases SumCases() { return Broadcasts("Sum").Exact({{1, 2}, {3, 4}, {5, 6}}, {{9, 12}}); }
OpCases MeanCases() { return Broadcasts("Mean").Exact({{1, 2}, {3, 4}, {5, 9}}, {{3, 5}}); }

}  // namespace pagefuse::onnx_ops
