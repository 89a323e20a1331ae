// SPDX-License-Identifier: Apache-2.0
// SkipSimplifiedLayerNormalization and SkipLayerNormalization: the sum of a residual and a branch,
// and its norm, in one pass.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {
namespace {

constexpr int kInput = 0;
constexpr int kSkip = 1;
constexpr int kGamma = 2;

// SkipLayerNormalization has a beta before the bias.
int BiasInput(bool centred) { return centred ? 4 : 3; }

// Reads everything as floats: [rows, n].
struct SkipNorm {
  FloatValues input, skip, gamma, beta, bias;
  int64_t rows = 0, n = 0;
  int64_t skip_rows = 0;  // of skip, repeated
  float epsilon = 0;
  bool centred = false;
};

absl::StatusOr<SkipNorm> SkipNormOf(const KernelArgs& args, bool centred) {
  SkipNorm call;
  call.centred = centred;
  call.n = args.input(kInput).dims.back();
  call.rows = call.n == 0 ? 0 : args.input(kInput).size() / call.n;
  call.skip_rows = call.n == 0 ? 0 : args.input(kSkip).size() / call.n;
  PF_ASSIGN_OR_RETURN(call.epsilon, args.node->FloatAttribute("epsilon", 1e-12f));
  PF_ASSIGN_OR_RETURN(call.input, FloatValues::Of(args.input(kInput)));
  PF_ASSIGN_OR_RETURN(call.skip, FloatValues::Of(args.input(kSkip)));
  PF_ASSIGN_OR_RETURN(call.gamma, FloatValues::Of(args.input(kGamma)));
  if (centred) {
    PF_ASSIGN_OR_RETURN(call.beta, FloatValues::Of(args.input(3)));
  }
  PF_ASSIGN_OR_RETURN(call.bias, FloatValues::Of(args.input(BiasInput(centred))));
  return call;
}

struct RowStatistics {
  double mean = 0, inverse = 0;
};

void StoreStatistics(const KernelArgs& args, int64_t row, RowStatistics s) {
  if (args.output(1).present()) args.output(1).as<float>()[row] = static_cast<float>(s.mean);
  if (args.output(2).present()) args.output(2).as<float>()[row] = static_cast<float>(s.inverse);
}

// The formula, in double.
template <bool centred>
absl::Status RunReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const SkipNorm call, SkipNormOf(args, centred));
  const auto n = static_cast<size_t>(call.n);
  std::vector<double> sum(n), y(n);
  for (int64_t row = 0; row < call.rows; ++row) {
    const float* x = call.input.data() + row * call.n;
    const float* skip = call.skip.data() + row % call.skip_rows * call.n;
    RowStatistics s;
    for (size_t i = 0; i < n; ++i) {
      sum[i] =
          static_cast<double>(x[i]) + skip[i] + (call.bias.present() ? call.bias.data()[i] : 0);
      s.mean += sum[i] / static_cast<double>(n);
    }
    if (!centred) s.mean = 0;
    double squares = 0;
    for (double value : sum) squares += (value - s.mean) * (value - s.mean);
    s.inverse = 1.0 / std::sqrt(squares / static_cast<double>(n) + call.epsilon);
    for (size_t i = 0; i < n; ++i) {
      y[i] = (sum[i] - s.mean) * s.inverse * call.gamma.data()[i] +
             (call.beta.present() ? call.beta.data()[i] : 0);
    }
    StoreStatistics(args, row, s);
    PF_RETURN_IF_ERROR(onnx_ops::EncodeDoubles(y, args.output(0), row * call.n));
    if (args.output(3).present()) {
      PF_RETURN_IF_ERROR(onnx_ops::EncodeDoubles(sum, args.output(3), row * call.n));
    }
  }
  return absl::OkStatus();
}

// One row; y may be any memory but `sum`.
RowStatistics NormRow(const SkipNorm& call, float* sum, float* y) {
  const int64_t n = call.n;
  RowStatistics s;
  const float* x = sum;
  if (call.centred) {
    const float mean = onnx_ops::SumOfRow(sum, n) / static_cast<float>(n);
    s.mean = mean;
    onnx_ops::SubRow({sum, 1, &mean, 0}, y, n);
    x = y;
  }
  const float square = onnx_ops::SumOfSquaresOfRow(x, n) / static_cast<float>(n);
  const float inverse = 1.0f / std::sqrt(square + call.epsilon);
  s.inverse = inverse;
  onnx_ops::ScaleRow(x, inverse, call.gamma.data(), y, n);
  if (call.beta.present()) onnx_ops::AddRow({y, 1, call.beta.data(), 1}, y, n);
  return s;
}

template <bool centred>
absl::Status RunHwy(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const SkipNorm call, SkipNormOf(args, centred));
  const bool keeps_sum = args.output(3).present();
  ParallelFor(call.rows, call.n * 16, [&](int64_t begin, int64_t end) {
    std::vector<float> spare(keeps_sum ? 0 : static_cast<size_t>(call.n));
    for (int64_t row = begin; row < end; ++row) {
      const float* x = call.input.data() + row * call.n;
      const float* skip = call.skip.data() + row % call.skip_rows * call.n;
      float* sum = keeps_sum ? args.output(3).as<float>() + row * call.n : spare.data();
      onnx_ops::AddRow({x, 1, skip, 1}, sum, call.n);
      if (call.bias.present()) onnx_ops::AddRow({sum, 1, call.bias.data(), 1}, sum, call.n);
      StoreStatistics(args, row, NormRow(call, sum, args.output(0).as<float>() + row * call.n));
    }
  });
  return absl::OkStatus();
}

template <bool centred>
absl::Status Infer(ShapeContext& c) {
  const Shape* x = c.input_shape(kInput);
  const DataType type = c.input_type(kInput);
  const auto same = x == nullptr ? std::nullopt : std::optional<Shape>(*x);
  std::optional<Shape> statistics = same;
  if (x != nullptr) {
    if (x->rank() != 2 && x->rank() != 3) {
      return c.InputError(kInput, absl::StrCat("expected rank 2 or 3, got ", x->ToString()));
    }
    const Shape last({x->back(0)});
    for (int i = kGamma; i <= BiasInput(centred); ++i) PF_RETURN_IF_ERROR(ExpectShape(c, i, last));
    const Shape* skip = c.input_shape(kSkip);
    // [B, S, N], or rows that repeat: [1, S, N], [S, N].
    bool fits = skip == nullptr || (skip->rank() <= x->rank() && skip->rank() >= 2);
    for (int d = 0; fits && skip != nullptr && d < skip->rank(); ++d) {
      const bool may_repeat = d == 2 && skip->back(d) == Dim(1);
      fits = may_repeat || !Differ(skip->back(d), x->back(d));
    }
    if (!fits) {
      return c.InputError(
          kSkip, absl::StrCat("shape ", skip->ToString(), " does not repeat to ", x->ToString()));
    }
    (*statistics)[x->rank() - 1] = Dim(1);
  }
  c.SetOutput(0, type, same);
  for (int i = 1; i < c.num_outputs(); ++i) {
    if (!c.has_output(i)) continue;
    c.SetOutput(i, i == 3 ? type : DataType::kFloat, i == 3 ? same : statistics);
  }
  return absl::OkStatus();
}

// Both ops in standard ones; narrow types are computed in float.
std::string Body(const Node& node, bool centred) {
  const char* name = centred ? "SkipLayerNormalization" : "SkipSimplifiedLayerNormalization";
  const bool has_bias = node.input(BiasInput(centred)) != nullptr;
  const bool has_beta = centred && node.input(3) != nullptr;
  const auto f = [](const char* to, const char* from) {
    return absl::StrCat("  ", to, " = Cast <to = 1> (", from, ")\n");
  };
  std::string text =
      absl::StrCat(name, " (input, skip, gamma", has_beta ? ", beta" : "", has_bias ? ", bias" : "",
                   ") => (output, mean, inv_std_var, input_skip_bias_sum) {\n");
  absl::StrAppend(&text, f("x", "input"), f("s", "skip"), f("g", "gamma"), "  pair = Add (x, s)\n");
  if (has_bias) absl::StrAppend(&text, f("b", "bias"), "  sum = Add (pair, b)\n");
  if (!has_bias) absl::StrAppend(&text, "  sum = Identity (pair)\n");
  absl::StrAppend(&text, "  last = Constant <value_ints: ints = [-1]> ()\n",
                  "  average = ReduceMean <keepdims = 1> (sum, last)\n");
  if (centred) {
    absl::StrAppend(&text, "  mean = Identity (average)\n  d = Sub (sum, mean)\n");
  } else {
    absl::StrAppend(&text, "  mean = Sub (average, average)\n  d = Identity (sum)\n");
  }
  absl::StrAppend(&text, "  square = Mul (d, d)\n",
                  "  variance = ReduceMean <keepdims = 1> (square, last)\n",
                  "  eps = Constant <value_float = @epsilon> ()\n",
                  "  shifted = Add (variance, eps)\n  root = Sqrt (shifted)\n",
                  "  inv_std_var = Reciprocal (root)\n  unit = Mul (d, inv_std_var)\n",
                  "  scaled = Mul (unit, g)\n");
  if (has_beta) absl::StrAppend(&text, f("bt", "beta"), "  y = Add (scaled, bt)\n");
  if (!has_beta) absl::StrAppend(&text, "  y = Identity (scaled)\n");
  absl::StrAppend(&text, "  output = CastLike (y, input)\n",
                  "  input_skip_bias_sum = CastLike (sum, input)\n}");
  return text;
}

template <bool centred>
OpDef SkipNormDef(std::string_view name, std::string_view doc) {
  OpDef op("com.microsoft", name, /*since=*/1);
  op.Doc(doc)
      .Input("input", "T", "[B, S, N] or [T, N]")
      .Input("skip", "T", "as input, [1, S, N] or [S, N]")
      .Input("gamma", "T", "[N]");
  if (centred) op.Input("beta", "T", "[N]", PortKind::kOptional);
  op.Input("bias", "T", "[N], added to the sum", PortKind::kOptional)
      .Output("output", "T", "as input")
      .Output("mean", "float", "dims of input, the last one 1", PortKind::kOptional)
      .Output("inv_std_var", "float", "dims of input, the last one 1", PortKind::kOptional)
      .Output("input_skip_bias_sum", "T", "as input", PortKind::kOptional)
      .Attr("epsilon", 1e-12f, "added to the mean square");
  return op.Types("T", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16})
      .InferShapes(Infer<centred>)
      .Decomposition(
          [](const Node& node) -> absl::StatusOr<std::string> { return Body(node, centred); })
      .AddKernel({.name = "reference", .run = RunReference<centred>})
      .AddKernel(
          {.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = RunHwy<centred>});
}

}  // namespace

OpDef SkipSimplifiedLayerNormalizationDef() {
  return SkipNormDef<false>("SkipSimplifiedLayerNormalization",
                            "s = input + skip + bias; s / sqrt(mean(s^2) + epsilon) * gamma. "
                            "mean is 0.");
}

OpDef SkipLayerNormalizationDef() {
  return SkipNormDef<true>(
      "SkipLayerNormalization",
      "s = input + skip + bias; (s - mean(s)) / sqrt(variance(s) + epsilon) * gamma + beta.");
}

}  // namespace pagefuse::microsoft_ops
