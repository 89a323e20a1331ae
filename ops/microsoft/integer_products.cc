// SPDX-License-Identifier: Apache-2.0
// MatMulIntegerToFloat and DynamicQuantizeMatMul: products of 8-bit codes, scaled to floats.
#include <string>
#include <string_view>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/onnx/product.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {
namespace {

// Ports of the one op, and of the other.
struct IntegerPorts {
  int a_scale, b_scale, a_zero, b_zero, bias;  // -1: the op has none
};
constexpr IntegerPorts kToFloat{.a_scale = 2, .b_scale = 3, .a_zero = 4, .b_zero = 5, .bias = 6};
constexpr IntegerPorts kDynamic{.a_scale = -1, .b_scale = 2, .a_zero = -1, .b_zero = 3, .bias = 4};

// A scale is one number, or one for each column of B, with B's batch dims where B has some.
absl::Status CheckScale(const ShapeContext& c, int scale) {
  const Shape* shape = c.input_shape(scale);
  const Shape* b = c.input_shape(1);
  if (shape == nullptr || b == nullptr) return absl::OkStatus();
  const auto dims = shape->constant();
  if (dims && ElementCount(*dims) == 1) return absl::OkStatus();
  if (shape->rank() <= 1) return ExpectShape(c, scale, Shape({b->back(0)}));
  Shape by_column = *b;
  if (b->rank() > 1) by_column[b->rank() - 2] = Dim(1);
  return ExpectShape(c, scale, by_column);
}

template <const IntegerPorts& ports>
absl::Status Infer(ShapeContext& c) {
  PF_RETURN_IF_ERROR(InferProduct(c, {}));
  const std::optional<Shape> y = c.outputs()[0].shape;
  c.SetOutput(0, c.input_type(ports.b_scale), y);
  if (ports.a_scale >= 0 && c.input_shape(ports.a_scale) != nullptr) {
    const auto dims = c.input_shape(ports.a_scale)->constant();
    if (dims && ElementCount(*dims) != 1) return c.InputError(ports.a_scale, "expected one number");
  }
  PF_RETURN_IF_ERROR(CheckScale(c, ports.b_scale));
  if (c.input_shape(1) == nullptr) return absl::OkStatus();
  return ExpectShape(c, ports.bias, Shape({c.input_shape(1)->back(0)}));
}

std::string NameIf(const Node& node, int input, std::string_view name) {
  return input >= 0 && node.input(input) != nullptr ? StrCat(", ", name) : std::string();
}

// The lines from codes `codes` of A, its scale and its zero point (", name", or nothing) to Y.
std::string ProductLines(const Node& node, const IntegerPorts& ports, std::string_view codes,
                         std::string_view a_scale, std::string_view a_zero) {
  const std::string b_zero = NameIf(node, ports.b_zero, "b_zero_point");
  const bool bias = !NameIf(node, ports.bias, "bias").empty();
  return StrCat("  sums = MatMulInteger (", codes, ", B",
                a_zero.empty() && !b_zero.empty() ? ", \"\"" : a_zero, b_zero, ")\n",
                "  wide = Cast <to = 1> (sums)\n  b_wide = Cast <to = 1> (b_scale)\n",
                "  a_wide = Cast <to = 1> (", a_scale, ")\n  unit = Mul (a_wide, b_wide)\n",
                "  product = Mul (wide, unit)\n",
                bias ? "  bias_wide = Cast <to = 1> (bias)\n  sum = Add (product, bias_wide)\n"
                     : "  sum = Identity (product)\n",
                "  Y = CastLike (sum, b_scale)\n");
}

absl::StatusOr<std::string> DecomposeToFloat(const Node& node) {
  const std::string a_zero = NameIf(node, kToFloat.a_zero, "a_zero_point");
  return StrCat("MatMulIntegerToFloat (A, B, a_scale, b_scale", a_zero,
                NameIf(node, kToFloat.b_zero, "b_zero_point"), NameIf(node, kToFloat.bias, "bias"),
                ") => (Y) {\n", ProductLines(node, kToFloat, "A", "a_scale", a_zero), "}");
}

absl::StatusOr<std::string> DecomposeDynamic(const Node& node) {
  return StrCat("DynamicQuantizeMatMul (A, B, b_scale",
                NameIf(node, kDynamic.b_zero, "b_zero_point"), NameIf(node, kDynamic.bias, "bias"),
                ") => (Y) {\n  codes, a_scale, a_zero = DynamicQuantizeLinear (A)\n",
                ProductLines(node, kDynamic, "codes", "a_scale", ", a_zero"), "}");
}

constexpr char kScaleShape[] = "[], [N] or [..., 1, N]";

}  // namespace

OpDef MatMulIntegerToFloatDef() {
  using enum DataType;
  constexpr PortKind kOptional = PortKind::kOptional;
  return OpDef("com.microsoft", "MatMulIntegerToFloat", /*since=*/1)
      .Doc("(A - a_zero_point) (B - b_zero_point) * a_scale * b_scale + bias; sums are in int32.")
      .Input("A", "T1", "[..., M, K]")
      .Input("B", "T2", "[..., K, N]")
      .Input("a_scale", "T3", "[] or [1]")
      .Input("b_scale", "T3", kScaleShape)
      .Input("a_zero_point", "T1", "[] or [1]; absent: 0", kOptional)
      .Input("b_zero_point", "T2", "as b_scale; absent: 0", kOptional)
      .Input("bias", "T3", "[N]", kOptional)
      .Output("Y", "T3", "[..., M, N]")
      .Types("T1", {kInt8, kUint8})
      .Types("T2", {kInt8, kUint8})
      .Types("T3", {kFloat, kFloat16})
      .InferShapes(Infer<kToFloat>)
      .Decomposition(DecomposeToFloat);
}

OpDef DynamicQuantizeMatMulDef() {
  using enum DataType;
  constexpr PortKind kOptional = PortKind::kOptional;
  return OpDef("com.microsoft", "DynamicQuantizeMatMul", /*since=*/1)
      .Doc(
          "A (B - b_zero_point) * b_scale + bias, with A rounded to 8 bits by DynamicQuantizeLinear; "
          "sums are in int32.")
      .Input("A", "T1", "[..., M, K]")
      .Input("B", "T2", "[..., K, N]")
      .Input("b_scale", "T1", kScaleShape)
      .Input("b_zero_point", "T2", "as b_scale; absent: 0", kOptional)
      .Input("bias", "T1", "[N]", kOptional)
      .Output("Y", "T1", "[..., M, N]")
      .Types("T1", {kFloat})
      .Types("T2", {kInt8, kUint8})
      .InferShapes(Infer<kDynamic>)
      .Decomposition(DecomposeDynamic);
}

}  // namespace pagefuse::microsoft_ops
