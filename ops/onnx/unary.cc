// SPDX-License-Identifier: Apache-2.0
// Elementwise ops of one input, and Clip.
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/elementwise.h"
#include "pagefuse/ops/onnx/newer_forms.h"
#include "pagefuse/ops/onnx/unary_math.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// What alpha and beta are called in an op, and are without an attribute; and its row of floats in
// vectors, if there is one.
struct Defaults {
  UnaryRow hwy = nullptr;
  float alpha = 0;
  const char* alpha_name = "alpha";
  float beta = 0;
  const char* beta_name = "beta";
};

absl::StatusOr<UnaryParams> ReadParams(const Node& node, const Defaults& defaults) {
  UnaryParams params;
  PF_ASSIGN_OR_RETURN(params.alpha, node.FloatAttribute(defaults.alpha_name, defaults.alpha));
  PF_ASSIGN_OR_RETURN(params.beta, node.FloatAttribute(defaults.beta_name, defaults.beta));
  PF_ASSIGN_OR_RETURN(const int64_t negative, node.IntAttribute("detect_negative", 1));
  PF_ASSIGN_OR_RETURN(const int64_t positive, node.IntAttribute("detect_positive", 1));
  params.detect_negative = negative != 0;
  params.detect_positive = positive != 0;
  return params;
}

// y[i] = f(x[i]) for i in [0, n).
using UnaryRowFn = void (*)(const void* x, void* y, int64_t n, const UnaryParams& params);

template <typename Fn, typename X, typename Y>
void TypedRow(const void* x, void* y, int64_t n, const UnaryParams& params) {
  if constexpr (std::is_same_v<X, bool> && std::is_same_v<Y, bool>) {
    // As bytes: the compiler makes no vectors of bool.
    const auto* from = static_cast<const uint8_t*>(x);
    auto* to = static_cast<uint8_t*>(y);
    for (int64_t i = 0; i < n; ++i) to[i] = Fn()(from[i] != 0, params) ? 1 : 0;
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    static_cast<Y*>(y)[i] = Store<Y>(Fn()(Load(static_cast<const X*>(x)[i]), params));
  }
}

absl::Status RunRows(const KernelArgs& args, UnaryRowFn row, const Defaults& defaults) {
  PF_ASSIGN_OR_RETURN(const UnaryParams params, ReadParams(*args.node, defaults));
  const TensorArg& x = args.input(0);
  const TensorArg& y = args.output(0);
  if (row == nullptr) return NoKernelForType(x.dtype);
  ParallelFor(y.size(), 4, [&](int64_t begin, int64_t end) {
    row(ElementAt(x, begin), ElementAt(y, begin), end - begin, params);
  });
  return absl::OkStatus();
}

template <typename Types, typename Fn>
absl::Status RunReference(Fn, KernelArgs& args, const Defaults& defaults = {}) {
  const UnaryRowFn row = Choose(Types(), args.input(0).dtype, []<typename T>() -> UnaryRowFn {
    using Result = decltype(Fn()(Compute<T>(), UnaryParams()));
    return TypedRow<Fn, T, std::conditional_t<std::is_same_v<Result, bool>, bool, T>>;
  });
  return RunRows(args, row, defaults);
}

Kernel HwyKernel(UnaryRow row, float default_alpha = 0) {
  auto run = [row, default_alpha](KernelArgs& args) -> absl::Status {
    PF_ASSIGN_OR_RETURN(const float alpha, args.node->FloatAttribute("alpha", default_alpha));
    const float* x = args.input(0).as<float>();
    float* y = args.output(0).as<float>();
    ParallelFor(args.output(0).size(), 4,
                [&](int64_t begin, int64_t end) { row(x + begin, y + begin, end - begin, alpha); });
    return absl::OkStatus();
  };
  return {.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = run};
}

// `type`: of the result, T if that of the input.
template <typename Types = Floats, typename Fn>
OpDef Unary(Fn fn, std::string_view name, int since, std::string_view doc, Defaults defaults = {},
            std::string_view type = "T") {
  const DataType dtype = type == "T" ? DataType::kUndefined : DataType::kBool;
  OpDef op("", name, since);
  op.Doc(doc)
      .Input("X", "T", "[...]")
      .Output("Y", type, "as X")
      .Types("T", TypesOf(Types()))
      .InferShapes([dtype](ShapeContext& context) { return InferSameShape(context, dtype); })
      .AddKernel({.name = "reference",
                  .run = [=](KernelArgs& args) { return RunReference<Types>(fn, args, defaults); }})
      .Elementwise();
  if (type == "T") op.InPlace(0, 0);
  if (defaults.hwy != nullptr) op.AddKernel(HwyKernel(defaults.hwy, defaults.alpha));
  return op;
}

absl::StatusOr<bool> UsesTanh(const Node& node) {
  const absl::StatusOr<std::string> approximate = node.StringAttribute("approximate", "none");
  if (!approximate.ok()) return approximate.status();
  if (*approximate == "tanh") return true;
  if (*approximate == "none") return false;
  return AttributeError(node, "approximate",
                        StrCat("expected none or tanh, got \"", *approximate, "\""));
}

absl::Status RunGelu(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const bool tanh, UsesTanh(*args.node));
  return tanh ? RunReference<Floats>(kGeluTanh, args) : RunReference<Floats>(kGelu, args);
}

absl::Status RunGeluHwy(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const bool tanh, UsesTanh(*args.node));
  return HwyKernel(tanh ? GeluTanhRow : GeluRow).run(args);
}

// A bound of Clip: an input, before opset 11 an attribute.
template <typename T>
std::optional<Compute<T>> ClipBound(const KernelArgs& args, int input, std::string_view name) {
  if (args.input(input).present()) return Load(args.input(input).as<T>()[0]);
  const Attribute* attribute = args.node->attribute(name);
  const float* value = attribute ? std::get_if<float>(&attribute->value) : nullptr;
  return value ? std::optional(static_cast<Compute<T>>(*value)) : std::nullopt;
}

// min(max(x, low), high): a low above high gives high.
template <typename T>
void RunClipTyped(const KernelArgs& args) {
  using C = Compute<T>;
  const std::optional<C> low_bound = ClipBound<T>(args, 1, "min");
  const std::optional<C> high_bound = ClipBound<T>(args, 2, "max");
  const bool has_low = low_bound.has_value();
  const bool has_high = high_bound.has_value();
  const C low = low_bound.value_or(C{});
  const C high = high_bound.value_or(C{});
  const T* x = args.input(0).as<T>();
  T* y = args.output(0).as<T>();
  ParallelFor(args.output(0).size(), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      C value = Load(x[i]);
      if (has_low && value < low) value = low;
      if (has_high && value > high) value = high;
      y[i] = Store<T>(value);
    }
  });
}

absl::Status RunClip(KernelArgs& args) {
  return Dispatch(Numbers(), args.input(0).dtype, [&]<typename T>() { RunClipTyped<T>(args); });
}

absl::Status InferClip(ShapeContext& context) {
  for (int i = 1; i < context.num_inputs(); ++i) {
    const Shape* shape = context.input_shape(i);
    if (shape == nullptr || shape->rank() == 0) continue;
    // Exporters write one-element vectors as well.
    if (shape->rank() != 1 || ((*shape)[0].constant() && (*shape)[0].constant() != 1)) {
      return context.InputError(i, StrCat("expected a scalar, got shape ", shape->ToString()));
    }
  }
  return InferSameShape(context);
}

}  // namespace

OpDef NegDef() { return Unary<SignedNumbers>(kNeg, "Neg", 6, "-X.", {.hwy = NegRow}); }
OpDef AbsDef() { return Unary<Numbers>(kAbs, "Abs", 6, "|X|.", {.hwy = AbsRow}); }
OpDef SignDef() { return Unary<Numbers>(kSign, "Sign", 9, "-1, 0 or 1."); }
OpDef SqrtDef() { return Unary(kSqrt, "Sqrt", 6, "Square root.", {.hwy = SqrtRow}); }
OpDef ExpDef() { return Unary(kExp, "Exp", 6, "e^X.", {.hwy = ExpRow}); }
OpDef LogDef() { return Unary(kLog, "Log", 6, "Natural logarithm.", {.hwy = LogRow}); }
OpDef ReciprocalDef() {
  return Unary(kReciprocal, "Reciprocal", 6, "1 / X.", {.hwy = ReciprocalRow});
}
OpDef SinDef() { return Unary(kSin, "Sin", 7, "Sine.", {.hwy = SinRow}); }
OpDef CosDef() { return Unary(kCos, "Cos", 7, "Cosine.", {.hwy = CosRow}); }
OpDef TanDef() { return Unary(kTan, "Tan", 7, "Tangent."); }
OpDef AsinDef() { return Unary(kAsin, "Asin", 7, "Arc sine."); }
OpDef AcosDef() { return Unary(kAcos, "Acos", 7, "Arc cosine."); }
OpDef AtanDef() { return Unary(kAtan, "Atan", 7, "Arc tangent."); }
OpDef SinhDef() { return Unary(kSinh, "Sinh", 9, "Hyperbolic sine."); }
OpDef CoshDef() { return Unary(kCosh, "Cosh", 9, "Hyperbolic cosine."); }
OpDef AsinhDef() { return Unary(kAsinh, "Asinh", 9, "Inverse hyperbolic sine."); }
OpDef AcoshDef() { return Unary(kAcosh, "Acosh", 9, "Inverse hyperbolic cosine."); }
OpDef AtanhDef() { return Unary(kAtanh, "Atanh", 9, "Inverse hyperbolic tangent."); }
OpDef TanhDef() { return Unary(kTanh, "Tanh", 6, "Hyperbolic tangent.", {.hwy = TanhRow}); }
OpDef SigmoidDef() { return Unary(kSigmoid, "Sigmoid", 6, "1 / (1 + e^-X).", {.hwy = SigmoidRow}); }
OpDef ErfDef() { return Unary<Numbers>(kErf, "Erf", 9, "The error function.", {.hwy = ErfRow}); }
OpDef FloorDef() {
  return Unary(kFloor, "Floor", 6, "The largest integer not above X.", {.hwy = FloorRow});
}
OpDef CeilDef() {
  return Unary(kCeil, "Ceil", 6, "The least integer not below X.", {.hwy = CeilRow});
}
OpDef RoundDef() {
  return Unary(kRound, "Round", 11, "The nearest integer, halves to even.", {.hwy = RoundRow});
}
OpDef ReluDef() { return Unary<SignedNumbers>(kRelu, "Relu", 6, "max(X, 0).", {.hwy = ReluRow}); }
OpDef LeakyReluDef() {
  return Unary(kLeakyRelu, "LeakyRelu", 6, "X where X >= 0, else alpha * X.",
               {.hwy = LeakyReluRow, .alpha = 0.01f})
      .Attr("alpha", 0.01f, "slope of the negative part");
}
OpDef EluDef() {
  return Unary(kElu, "Elu", 6, "X where X >= 0, else alpha * (e^X - 1).",
               {.hwy = EluRow, .alpha = 1.0f})
      .Attr("alpha", 1.0f, "limit of the negative part");
}
OpDef CeluDef() {
  return Unary(kCelu, "Celu", 12, "X where X >= 0, else alpha * (e^(X / alpha) - 1).",
               {.alpha = 1.0f})
      .Attr("alpha", 1.0f, "limit of the negative part");
}
OpDef SeluDef() {
  constexpr float kAlpha = 1.67326319217681884765625f;
  constexpr float kGamma = 1.05070102214813232421875f;
  return Unary(kSelu, "Selu", 6, "gamma * X where X > 0, else gamma * alpha * (e^X - 1).",
               {.alpha = kAlpha, .beta = kGamma, .beta_name = "gamma"})
      .Attr("alpha", kAlpha, "limit of the negative part over gamma")
      .Attr("gamma", kGamma, "factor of all");
}
OpDef HardSigmoidDef() {
  return Unary(kHardSigmoid, "HardSigmoid", 6, "clip(alpha * X + beta, 0, 1).",
               {.alpha = 0.2f, .beta = 0.5f})
      .Attr("alpha", 0.2f, "slope")
      .Attr("beta", 0.5f, "value at 0");
}
OpDef SoftsignDef() { return Unary(kSoftsign, "Softsign", 1, "X / (1 + |X|)."); }
OpDef ThresholdedReluDef() {
  return Unary(kThresholdedRelu, "ThresholdedRelu", 10, "X where X > alpha, else 0.",
               {.alpha = 1.0f})
      .Attr("alpha", 1.0f, "threshold");
}
OpDef ShrinkDef() {
  return Unary<Numbers>(kShrink, "Shrink", 9,
                        "X + bias where X < -lambd, X - bias where X > lambd, else 0.",
                        {.alpha = 0.0f, .alpha_name = "bias", .beta = 0.5f, .beta_name = "lambd"})
      .Attr("bias", 0.0f, "moved towards 0 by that")
      .Attr("lambd", 0.5f, "half the width of what becomes 0");
}
OpDef HardSwishDef() { return Unary(kHardSwish, "HardSwish", 14, "X * clip(X / 6 + 0.5, 0, 1)."); }
OpDef SoftplusDef() {
  return Unary(kSoftplus, "Softplus", 1, "log(1 + e^X).", {.hwy = SoftplusRow});
}
OpDef MishDef() { return Unary(kMish, "Mish", 18, "X * tanh(softplus(X)).", {.hwy = MishRow}); }
OpDef SwishDef() {
  return Unary(kSwish, "Swish", 24, "X * sigmoid(alpha * X).", {.hwy = SwishRow, .alpha = 1.0f})
      .Attr("alpha", 1.0f, "factor inside the sigmoid")
      .Decomposition(SwishBody);
}
OpDef BitwiseNotDef() { return Unary<Ints>(kBitwiseNot, "BitwiseNot", 18, "Every bit flipped."); }
OpDef NotDef() {
  return Unary<TypeList<bool>>(kNot, "Not", 1, "True where X is false.", {}, "bool").InPlace(0, 0);
}
OpDef IsNaNDef() {
  using Types = decltype(Join(Floats(), Float8s()));
  return Unary<Types>(kIsNaN, "IsNaN", 9, "True where X is NaN.", {}, "bool");
}
OpDef IsInfDef() {
  using Types = decltype(Join(Floats(), Float8s()));
  return Unary<Types>(kIsInf, "IsInf", 10, "True where X is an infinity that is asked for.", {},
                      "bool")
      .Attr("detect_negative", int64_t{1}, "0: -inf does not count")
      .Attr("detect_positive", int64_t{1}, "0: +inf does not count");
}

OpDef GeluDef() {
  return OpDef("", "Gelu", 20)
      .Doc("X * Phi(X), or its approximation 0.5 X (1 + tanh(sqrt(2 / pi) (X + 0.044715 X^3))).")
      .Input("X", "T", "[...]")
      .Output("Y", "T", "as X")
      .Attr("approximate", std::string("none"), "none or tanh")
      .Types("T", TypesOf(Floats()))
      .InferShapes([](ShapeContext& context) -> absl::Status {
        PF_RETURN_IF_ERROR(UsesTanh(context.node()).status());
        return InferSameShape(context);
      })
      .AddKernel({.name = "reference", .run = RunGelu})
      .AddKernel({.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = RunGeluHwy})
      .Elementwise()
      .InPlace(0, 0);
}

OpDef ClipDef() {
  return OpDef("", "Clip", 6)
      .Doc("min(max(X, min), max); a bound that is omitted does not bind.")
      .Input("input", "T", "[...]")
      .Input("min", "T", "[]", PortKind::kOptional)
      .Input("max", "T", "[]", PortKind::kOptional)
      .Output("output", "T", "as input")
      .Attr("min", {}, "before opset 11")
      .Attr("max", {}, "before opset 11")
      .Types("T", TypesOf(Numbers()))
      .InferShapes(InferClip)
      .AddKernel({.name = "reference", .run = RunClip})
      .Elementwise()
      .InPlace(0, 0);
}

}  // namespace pagefuse::onnx_ops
