// SPDX-License-Identifier: Apache-2.0
// FastGelu, QuickGelu, BiasGelu and Gelu of com.microsoft.
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/activation.h"
#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/elementwise.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {
namespace {

// f(x, alpha) in double, and the same for a row of floats.
struct Function {
  double (*value)(double x, double alpha);
  onnx_ops::UnaryRow row;
};

double GeluValue(double x, double) { return ApplyActivation(Activation::kGelu, x); }
double GeluTanhValue(double x, double) { return ApplyActivation(Activation::kGeluTanh, x); }
double SwishValue(double x, double alpha) { return x / (1.0 + std::exp(-alpha * x)); }

constexpr Function kGelu = {GeluValue, onnx_ops::GeluRow};
constexpr Function kGeluTanh = {GeluTanhValue, onnx_ops::GeluTanhRow};
constexpr Function kSwish = {SwishValue, onnx_ops::SwishRow};

// Ops of one input, or of an input and a bias [N] that is added first.
absl::Status Infer(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  if (x != nullptr && c.num_inputs() > 1 && c.has_input(1)) {
    if (x->rank() == 0) return c.InputError(0, "expected at least one dim for the bias");
    PF_RETURN_IF_ERROR(ExpectShape(c, 1, Shape({x->back(0)})));
  }
  return onnx_ops::InferSameShape(c);
}

template <const Function& f>
absl::Status RunReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const float alpha, args.node->FloatAttribute("alpha", 1.702f));
  PF_ASSIGN_OR_RETURN(const FloatValues x, FloatValues::Of(args.input(0)));
  PF_ASSIGN_OR_RETURN(const FloatValues bias, FloatValues::Of(args.input(1)));
  std::vector<double> y(static_cast<size_t>(x.size()));
  for (int64_t i = 0; i < x.size(); ++i) {
    const double shift = bias.present() ? bias.data()[i % bias.size()] : 0;
    y[i] = f.value(static_cast<double>(x.data()[i]) + shift, alpha);
  }
  return onnx_ops::EncodeDoubles(y, args.output(0), 0);
}

template <const Function& f>
absl::Status RunHwy(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const float alpha, args.node->FloatAttribute("alpha", 1.702f));
  const TensorArg& bias = args.input(1);
  const float* x = args.input(0).as<float>();
  float* y = args.output(0).as<float>();
  const int64_t size = args.output(0).size();
  if (!bias.present()) {
    ParallelFor(size, 8, [&](int64_t begin, int64_t end) {
      f.row(x + begin, y + begin, end - begin, alpha);
    });
    return absl::OkStatus();
  }
  const int64_t n = bias.size();
  ParallelFor(n == 0 ? 0 : size / n, n * 8, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      onnx_ops::AddRow({x + row * n, 1, bias.as<float>(), 1}, y + row * n, n);
      f.row(y + row * n, y + row * n, n, alpha);
    }
  });
  return absl::OkStatus();
}

template <const Function& f>
OpDef Make(std::string_view name, std::string_view doc, const char* bias,
           PortKind bias_kind = PortKind::kOptional) {
  OpDef op("com.microsoft", name, /*since=*/1);
  op.Doc(doc).Input(bias == nullptr || bias_kind == PortKind::kOptional ? "X" : "A", "T",
                    "[..., N]");
  if (bias != nullptr) op.Input(bias, "T", "[N], added first", bias_kind);
  return op.Output(bias_kind == PortKind::kRequired ? "C" : "Y", "T", "as the input")
      .Types("T", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16})
      .InferShapes(Infer)
      .AddKernel({.name = "reference", .run = RunReference<f>})
      .AddKernel({.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = RunHwy<f>})
      .InPlace(0, 0);
}

}  // namespace

OpDef GeluDef() {
  return Make<kGelu>("Gelu", "X * Phi(X).", nullptr)
      .Decomposition("Gelu (X) => (Y) { Y = Gelu <approximate = \"none\"> (X) }");
}

OpDef FastGeluDef() {
  return Make<kGeluTanh>("FastGelu",
                         "x = X + bias; 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).", "bias")
      .Decomposition([](const Node& node) -> absl::StatusOr<std::string> {
        const bool bias = node.input(1) != nullptr;
        return absl::StrCat("FastGelu (X", bias ? ", bias" : "", ") => (Y) {\n",
                            bias ? "  x = Add (X, bias)\n" : "  x = Identity (X)\n",
                            "  Y = Gelu <approximate = \"tanh\"> (x)\n}");
      });
}

OpDef QuickGeluDef() {
  return Make<kSwish>("QuickGelu", "X * sigmoid(alpha * X).", nullptr)
      .Attr("alpha", 1.702f, "factor inside the sigmoid")
      .Decomposition("QuickGelu (X) => (Y) { Y = Swish <alpha = @alpha> (X) }");
}

OpDef BiasGeluDef() {
  return Make<kGelu>("BiasGelu", "x = A + B; x * Phi(x).", "B", PortKind::kRequired)
      .Decomposition(
          "BiasGelu (A, B) => (C) { x = Add (A, B)  C = Gelu <approximate = \"none\"> (x) }");
}

}  // namespace pagefuse::microsoft_ops
