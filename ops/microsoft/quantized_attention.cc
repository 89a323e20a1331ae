// SPDX-License-Identifier: Apache-2.0
// QAttention: Attention over 8-bit codes of rows and weights.
#include <string>
#include <string_view>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/microsoft/attention_checks.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {
namespace {

enum {
  kInput,
  kWeight,
  kBias,
  kInputScale,
  kWeightScale,
  kMask,
  kInputZero,
  kWeightZero,
  kPast,
};

// The attention itself checks mask, bias and past.
absl::Status Infer(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const int64_t heads, HeadsOf(c));
  const DataType type = c.input_type(kInputScale);
  for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, type, std::nullopt);
  const Shape* x = c.input_shape(kInput);
  const Shape* w = c.input_shape(kWeight);
  if (x == nullptr || w == nullptr) return absl::OkStatus();
  if (x->rank() != 3) return c.InputError(kInput, StrCat("expected rank 3, got ", x->ToString()));
  const Dim columns = w->back(0);
  PF_RETURN_IF_ERROR(ExpectShape(c, kWeight, Shape({(*x)[2], columns})));
  PF_RETURN_IF_ERROR(ExpectOneElement(c, kInputScale));
  PF_RETURN_IF_ERROR(ExpectOneElement(c, kInputZero));
  const Dim width = columns.FloorDiv(Dim(3));
  c.SetOutput(0, type, Shape({(*x)[0], (*x)[1], width}));
  if (c.num_outputs() < 2 || !c.has_output(1)) return absl::OkStatus();
  const Shape* past = c.input_shape(kPast);
  const Dim old = past != nullptr && past->rank() == 5 ? (*past)[3] : Dim::Unknown();
  const Dim total = c.has_input(kPast) ? old + (*x)[1] : (*x)[1];
  c.SetOutput(1, type, Shape({Dim(2), (*x)[0], Dim(heads), total, width.FloorDiv(Dim(heads))}));
  return absl::OkStatus();
}

bool IsOneNumber(const Value* value) {
  const auto dims = value->shape() ? value->shape()->constant() : std::nullopt;
  return dims && ElementCount(*dims) == 1;
}

// Defines `to` as the floats of `codes`, by one scale or one for each column.
std::string FloatsText(std::string_view to, std::string_view codes, bool by_column, bool zero) {
  const char* form = by_column ? "Identity" : "Squeeze";
  std::string text = StrCat("  ", to, "_scale = ", form, " (", codes, "_scale)\n");
  if (zero) StrAppend(&text, "  ", to, "_zero = ", form, " (", codes, "_zero_point)\n");
  return StrCat(text, "  ", to, " = DequantizeLinear", by_column ? " <axis = 1>" : "", " (", codes,
                ", ", to, "_scale", zero ? StrCat(", ", to, "_zero") : "", ")\n");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  const auto has = [&](int port) { return node.input(port) != nullptr; };
  const auto name_if = [&](int port, std::string_view name) {
    return has(port) ? StrCat(", ", name) : std::string();
  };
  const bool present = node.output(1) != nullptr;
  const std::string outputs = present ? "output, present" : "output";
  const std::string mask = has(kMask) ? ", mask_index" : has(kPast) ? ", \"\"" : "";
  return StrCat("QAttention (input, weight, bias, input_scale, weight_scale",
                name_if(kMask, "mask_index"), name_if(kInputZero, "input_zero_point"),
                name_if(kWeightZero, "weight_zero_point"), name_if(kPast, "past"), ") => (",
                outputs, ") {\n", FloatsText("x", "input", false, has(kInputZero)),
                FloatsText("w", "weight", !IsOneNumber(node.input(kWeightScale)), has(kWeightZero)),
                "  ", outputs,
                " = com.microsoft.Attention <num_heads = @num_heads, unidirectional = "
                "@unidirectional, do_rotary = @do_rotary, scale = @scale, mask_filter_value = "
                "@mask_filter_value> (x, w, bias",
                mask, name_if(kPast, "past"), ")\n}");
}

}  // namespace

OpDef QAttentionDef() {
  using enum DataType;
  constexpr PortKind kOptional = PortKind::kOptional;
  return OpDef("com.microsoft", "QAttention", /*since=*/1)
      .Doc(
          "Attention with (input - input_zero_point) * input_scale and (weight - "
          "weight_zero_point) * weight_scale in place of input and weights.")
      .Input("input", "T1", "[B, S, K]")
      .Input("weight", "T2", "[K, 3 N]")
      .Input("bias", "T3", "[3 N]")
      .Input("input_scale", "T3", "[] or [1]")
      .Input("weight_scale", "T3", "[], [1] or [3 N]")
      .Input("mask_index", "int32", "as Attention has it", kOptional)
      .Input("input_zero_point", "T1", "[] or [1]; absent: 0", kOptional)
      .Input("weight_zero_point", "T2", "as weight_scale; absent: 0", kOptional)
      .Input("past", "T3", "[2, B, H, P, D]", kOptional)
      .Output("output", "T3", "[B, S, N]")
      .Output("present", "T3", "[2, B, H, P + S, D]", kOptional)
      .RequiredAttr("num_heads", "H")
      .FlagAttr("unidirectional", int64_t{0}, "1: a query sees no later key")
      .FlagAttr("do_rotary", int64_t{0}, "1: queries and keys are rotated by their places")
      .Attr("scale", 0.0f, "factor of the scores, 0: 1 / sqrt(D)")
      .Attr("mask_filter_value", -10000.0f, "added to the scores of keys that are not seen")
      .Types("T1", {kInt8, kUint8})
      .Types("T2", {kInt8, kUint8})
      .Types("T3", {kFloat})
      .InferShapes(Infer)
      .Decomposition(Decompose);
}

}  // namespace pagefuse::microsoft_ops
