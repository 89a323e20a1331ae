// SPDX-License-Identifier: Apache-2.0
// RMSNormalization, SimplifiedLayerNormalization and LayerNormalization.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"
#include "pagefuse/ops/onnx/broadcast.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/newer_forms.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::onnx_ops {
namespace {

// The input as [rows, n]: axes from `axis` on are normalised together.
struct Rows {
  int64_t rows = 1;
  int64_t n = 1;
  float epsilon = 0;
};

absl::StatusOr<Rows> RowsOf(const KernelArgs& args) {
  const std::vector<int64_t>& dims = args.input(0).dims;
  const int64_t rank = static_cast<int64_t>(dims.size());
  PF_ASSIGN_OR_RETURN(int64_t axis, args.node->IntAttribute("axis", -1));
  if (axis < 0) axis += rank;
  Rows view;
  for (int64_t d = 0; d < rank; ++d) (d < axis ? view.rows : view.n) *= dims[d];
  PF_ASSIGN_OR_RETURN(view.epsilon, args.node->FloatAttribute("epsilon", 1e-5f));
  return view;
}

// Outputs 1 and 2, where they are asked for, have the dims before `axis`, then ones, and the stash
// type.
absl::Status InferNorm(ShapeContext& context) {
  PF_ASSIGN_OR_RETURN(int64_t axis, context.node().IntAttribute("axis", -1));
  PF_ASSIGN_OR_RETURN(const int64_t stash, context.node().IntAttribute("stash_type", 1));
  if (stash != static_cast<int64_t>(DataType::kFloat)) {
    return context.AttributeError("stash_type", StrCat("expected 1 (float), got ", stash));
  }
  const Shape* shape = context.input_shape(0);
  std::optional<Shape> same, statistics;
  if (shape != nullptr) {
    if (axis < -shape->rank() || axis >= shape->rank()) {
      return context.AttributeError("axis",
                                    StrCat(axis, " is out of range for rank ", shape->rank()));
    }
    if (axis < 0) axis += shape->rank();
    same = *shape;
    statistics = *shape;
    for (int64_t d = axis; d < shape->rank(); ++d) (*statistics)[static_cast<int>(d)] = Dim(1);
    for (int i = 1; i < context.num_inputs(); ++i) {
      const Shape* scale = context.input_shape(i);
      if (scale == nullptr) continue;
      const absl::StatusOr<Shape> both = BroadcastShapes(context, *shape, *scale);
      if (scale->rank() > shape->rank() || !both.ok() ||
          (both->constant() && shape->constant() && both->constant() != shape->constant())) {
        return context.InputError(
            i, StrCat("shape ", scale->ToString(), " does not broadcast to ", shape->ToString()));
      }
    }
  }
  context.SetOutput(0, context.input_type(1), same);
  for (int i = 1; i < context.num_outputs(); ++i) {
    context.SetOutput(i, DataType::kFloat, statistics);
  }
  return absl::OkStatus();
}

struct Statistics {
  double mean = 0;
  double inverse = 0;  // 1 / sqrt(variance + epsilon)
};

using Doubles = std::vector<double>;

// `centred`: subtract the mean, as LayerNormalization does.
Statistics StatisticsOf(const Doubles& x, float epsilon, bool centred) {
  Statistics result;
  const auto n = static_cast<double>(x.size());
  if (centred) {
    for (double value : x) result.mean += value;
    result.mean /= n;
  }
  double squares = 0;
  for (double value : x) squares += (value - result.mean) * (value - result.mean);
  result.inverse = 1.0 / std::sqrt(squares / n + static_cast<double>(epsilon));
  return result;
}

absl::StatusOr<Doubles> Decode(const TensorArg& tensor, double otherwise) {
  if (!tensor.present()) return Doubles(1, otherwise);
  return DecodedDoubles(tensor);
}

// The formula, in double.
template <bool centred>
absl::Status RunReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Rows view, RowsOf(args));
  const TensorArg& x = args.input(0);
  const TensorArg bias_arg = centred ? args.input(2) : TensorArg();
  PF_ASSIGN_OR_RETURN(const Doubles scale, Decode(args.input(1), 1));
  PF_ASSIGN_OR_RETURN(const Doubles bias, Decode(bias_arg, 0));
  const BroadcastPlan plan(x.dims, {args.input(1).dims, bias_arg.dims});
  const TensorArg mean_out = centred ? args.output(1) : TensorArg();
  const TensorArg& inverse_out = args.output(centred ? 2 : 1);
  Doubles row(static_cast<size_t>(view.n));
  for (int64_t r = 0; r < view.rows; ++r) {
    const int64_t start = r * view.n;
    PF_RETURN_IF_ERROR(DecodeToDouble(x.dtype, ElementAt(x, start), view.n, row.data()));
    const Statistics s = StatisticsOf(row, view.epsilon, centred);
    if (mean_out.present()) mean_out.as<float>()[r] = static_cast<float>(s.mean);
    if (inverse_out.present()) inverse_out.as<float>()[r] = static_cast<float>(s.inverse);
    plan.ForEachRow(
        start, start + view.n, [&](int64_t position, int64_t n, const int64_t* offsets) {
          for (int64_t i = 0; i < n; ++i) {
            double& value = row[position - start + i];
            value = (value - s.mean) * s.inverse * scale[offsets[0] + i * plan.row_stride(0)] +
                    bias[offsets[1] + i * plan.row_stride(1)];
          }
        });
    PF_RETURN_IF_ERROR(EncodeDoubles(row, args.output(0), start));
  }
  return absl::OkStatus();
}

absl::Status RunRmsHwy(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Rows view, RowsOf(args));
  // A scale of another type, or one that is repeated inside a row or differs between rows, is rare.
  if (args.input(1).dtype != DataType::kFloat || args.input(1).size() != view.n) {
    return RunReference<false>(args);
  }
  const float* x = args.input(0).as<float>();
  const float* scale = args.input(1).as<float>();
  float* y = args.output(0).as<float>();
  float* inverse_out = args.output(1).as<float>();
  ParallelFor(view.rows, 2 * std::max<int64_t>(view.n, 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* from = x + row * view.n;
      const float mean = SumOfSquaresOfRow(from, view.n) / static_cast<float>(view.n);
      const float inverse = 1.0f / std::sqrt(mean + view.epsilon);
      if (inverse_out != nullptr) inverse_out[row] = inverse;
      ScaleRow(from, inverse, scale, y + row * view.n, view.n);
    }
  });
  return absl::OkStatus();
}

absl::Status RunLayerHwy(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Rows view, RowsOf(args));
  const bool has_bias = args.input(2).present();
  // As above.
  if (args.input(1).size() != view.n || (has_bias && args.input(2).size() != view.n)) {
    return RunReference<true>(args);
  }
  const float* x = args.input(0).as<float>();
  const float* scale = args.input(1).as<float>();
  const float* bias = args.input(2).as<float>();
  const auto n = static_cast<float>(view.n);
  ParallelFor(view.rows, 4 * std::max<int64_t>(view.n, 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* y = args.output(0).as<float>() + row * view.n;
      const float mean = SumOfRow(x + row * view.n, view.n) / n;
      SubRow({x + row * view.n, 1, &mean, 0}, y, view.n);
      const float inverse = 1.0f / std::sqrt(SumOfSquaresOfRow(y, view.n) / n + view.epsilon);
      ScaleRow(y, inverse, scale, y, view.n);
      if (has_bias) AddRow({y, 1, bias, 1}, y, view.n);
      if (args.output(1).present()) args.output(1).as<float>()[row] = mean;
      if (args.output(2).present()) args.output(2).as<float>()[row] = inverse;
    }
  });
  return absl::OkStatus();
}

OpDef RmsNorm(std::string_view name, int since) {
  return OpDef("", name, since)
      .Doc("X / sqrt(mean(X^2) + epsilon) * scale over the axes from axis on.")
      .Input("X", "T", "[...]")
      .Input("scale", "V", "broadcasts to X")
      .Output("Y", "V", "as X")
      .Attr("axis", int64_t{-1}, "first axis that is normalised")
      .Attr("epsilon", 1e-5f, "added to the mean square")
      .Attr("stash_type", int64_t{1}, "type of the statistics: 1, float")
      .Types("T", TypesOf(Floats()))
      .Types("V", TypesOf(Floats()))
      .InferShapes(InferNorm)
      .AddKernel({.name = "reference", .run = RunReference<false>})
      .AddKernel({.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = RunRmsHwy})
      .InPlace(0, 0);
}

}  // namespace

OpDef RMSNormalizationDef() { return RmsNorm("RMSNormalization", 23).Decomposition(RmsNormBody); }

OpDef SimplifiedLayerNormalizationDef() {
  return RmsNorm("SimplifiedLayerNormalization", 1)
      .Output("inv_std_var", "float", "dims before axis, then ones", PortKind::kOptional);
}

OpDef LayerNormalizationDef() {
  // ONNX Runtime has had it under this name since opset 1, and writes it into graphs of any opset.
  return OpDef("", "LayerNormalization", 1)
      .Doc("(X - mean) / sqrt(variance + epsilon) * Scale + B over the axes from axis on.")
      .Input("X", "T", "[...]")
      .Input("Scale", "T", "broadcasts to X")
      .Input("B", "T", "broadcasts to X", PortKind::kOptional)
      .Output("Y", "T", "as X")
      .Output("Mean", "float", "dims before axis, then ones", PortKind::kOptional)
      .Output("InvStdDev", "float", "dims before axis, then ones", PortKind::kOptional)
      .Attr("axis", int64_t{-1}, "first axis that is normalised")
      .Attr("epsilon", 1e-5f, "added to the variance")
      .Attr("stash_type", int64_t{1}, "type of the statistics: 1, float")
      .Types("T", TypesOf(Floats()))
      .InferShapes(InferNorm)
      .AddKernel({.name = "reference", .run = RunReference<true>})
      .AddKernel({.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = RunLayerHwy})
      .InPlace(0, 0);
}

}  // namespace pagefuse::onnx_ops
