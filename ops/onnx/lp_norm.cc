// SPDX-License-Identifier: Apache-2.0
// LpNormalization and MeanVarianceNormalization.
#include <cmath>
#include <cstdint>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/elementwise.h"
#include "pagefuse/ops/onnx/lines.h"

namespace pagefuse::onnx_ops {
namespace {

absl::Status InferLp(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const int64_t p, c.node().IntAttribute("p", 2));
  if (p != 1 && p != 2) return c.AttributeError("p", StrCat("expected 1 or 2, got ", p));
  if (const Shape* x = c.input_shape(0)) {
    PF_RETURN_IF_ERROR(AxisAttribute(c, x->rank(), -1).status());
  }
  return InferSameShape(c);
}

// A line of n elements, `stride` apart, over its p-norm.
template <typename T>
void NormaliseLine(const T* from, T* to, int64_t n, int64_t stride, int64_t p) {
  double norm = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<double>(Load(from[i * stride]));
    norm += p == 1 ? std::fabs(value) : value * value;
  }
  if (p == 2) norm = std::sqrt(norm);
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<double>(Load(from[i * stride]));
    // Nothing has no direction: zeros stay zeros.
    to[i * stride] = Store<T>(static_cast<Compute<T>>(norm == 0 ? 0 : value / norm));
  }
}

absl::Status RunLp(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(const int64_t p, args.node->IntAttribute("p", 2));
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, x.dims, -1));
  const Lines lines(x.dims, axis);
  return Dispatch(Floats(), x.dtype, [&]<typename T>() {
    ForEachLine(lines, 1, [&](int64_t line) {
      const int64_t start = lines.Start(line);
      NormaliseLine(x.as<T>() + start, args.output(0).as<T>() + start, lines.size, lines.stride, p);
    });
  });
}

}  // namespace

OpDef LpNormalizationDef() {
  return OpDef("", "LpNormalization", 1)
      .Doc("X over its p-norm along the axis; 0 where that is 0.")
      .Input("input", "T", "[...]")
      .Output("output", "T", "as input")
      .Attr("axis", int64_t{-1}, "the axis of the norm")
      .Attr("p", int64_t{2}, "1 or 2")
      .Types("T", TypesOf(Floats()))
      .InferShapes(InferLp)
      .AddKernel({.name = "reference", .run = RunLp});
}

OpDef MeanVarianceNormalizationDef() {
  return OpDef("", "MeanVarianceNormalization", 9)
      .Doc("(X - mean) / (standard deviation + 1e-9) over the axes.")
      .Input("X", "T", "[...]")
      .Output("Y", "T", "as X")
      .Attr("axes", std::vector<int64_t>{0, 2, 3}, "axes of the statistics")
      .Types("T", TypesOf(Floats()))
      .InferShapes([](ShapeContext& c) { return InferSameShape(c); })
      .Decomposition(R"(
        MeanVarianceNormalization (X) => (Y) {
          axes = Constant <value_ints = @axes> ()
          mean = ReduceMean (X, axes)
          centred = Sub (X, mean)
          squares = Mul (centred, centred)
          variance = ReduceMean (squares, axes)
          deviation = Sqrt (variance)
          small = Constant <value_float = 1e-9> ()
          epsilon = CastLike (small, X)
          divisor = Add (deviation, epsilon)
          Y = Div (centred, divisor)
        })");
}

}  // namespace pagefuse::onnx_ops
