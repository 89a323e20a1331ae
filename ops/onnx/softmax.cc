// SPDX-License-Identifier: Apache-2.0
// Softmax, LogSoftmax and Hardmax over one axis; before opset 13, over all axes from one on.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/elementwise.h"
#include "pagefuse/ops/onnx/lines.h"

namespace pagefuse::onnx_ops {
namespace {

// The input as [outer, n, inner] with the axis in the middle.
struct AxisView {
  int64_t outer = 1;
  int64_t n = 1;
  int64_t inner = 1;
};

// Where the rows were all axes from `axis` on.
bool FlattensRows(int64_t opset) { return opset < 13; }

int64_t DefaultAxis(int64_t opset) { return FlattensRows(opset) ? 1 : -1; }

absl::StatusOr<AxisView> ViewOf(const KernelArgs& args) {
  const std::vector<int64_t>& dims = args.input(0).dims;
  const int64_t rank = static_cast<int64_t>(dims.size());
  PF_ASSIGN_OR_RETURN(int64_t axis, args.node->IntAttribute("axis", DefaultAxis(args.opset)));
  if (axis < 0) axis += rank;
  const bool flattens = FlattensRows(args.opset);
  AxisView view;
  for (int64_t d = 0; d < rank; ++d) {
    const bool in_row = d == axis || (flattens && d > axis);
    (d < axis ? view.outer : in_row ? view.n : view.inner) *= dims[d];
  }
  return view;
}

absl::Status InferSoftmax(ShapeContext& context) {
  const int64_t otherwise = DefaultAxis(context.opset());
  PF_ASSIGN_OR_RETURN(const int64_t axis, context.node().IntAttribute("axis", otherwise));
  const Shape* shape = context.input_shape(0);
  // A scalar is one row of one element.
  const int64_t rank = shape == nullptr ? 0 : std::max(shape->rank(), 1);
  if (shape != nullptr && (axis < -rank || axis >= rank)) {
    return context.AttributeError("axis",
                                  StrCat(axis, " is out of range for rank ", shape->rank()));
  }
  return InferSameShape(context);
}

// One row with elements `stride` apart; sums in double.
template <bool log, typename T>
void SoftmaxStrided(const T* x, T* y, int64_t n, int64_t stride) {
  double max = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < n; ++i) max = std::max(max, static_cast<double>(Load(x[i * stride])));
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(Load(x[i * stride])) - max);
  for (int64_t i = 0; i < n; ++i) {
    const double shifted = static_cast<double>(Load(x[i * stride])) - max;
    const double result = log ? shifted - std::log(sum) : std::exp(shifted) / sum;
    y[i * stride] = Store<T>(static_cast<Compute<T>>(result));
  }
}

template <bool log>
absl::Status RunReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const AxisView view, ViewOf(args));
  return Dispatch(Floats(), args.input(0).dtype, [&]<typename T>() {
    const T* x = args.input(0).as<T>();
    T* y = args.output(0).as<T>();
    const Lines lines(view.outer, view.n, view.inner);
    ForEachLine(lines, 1, [&](int64_t line) {
      const int64_t start = lines.Start(line);
      SoftmaxStrided<log>(x + start, y + start, view.n, view.inner);
    });
  });
}

// One row of n elements, `stride` apart: 1 at the first of the largest.
template <typename T>
void HardmaxStrided(const T* x, T* y, int64_t n, int64_t stride) {
  int64_t best = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (Load(x[i * stride]) > Load(x[best * stride])) best = i;
    y[i * stride] = Store<T>(0);
  }
  y[best * stride] = Store<T>(1);
}

absl::Status RunHardmax(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const AxisView view, ViewOf(args));
  return Dispatch(Floats(), args.input(0).dtype, [&]<typename T>() {
    const T* x = args.input(0).as<T>();
    T* y = args.output(0).as<T>();
    const Lines lines(view.n == 0 ? 0 : view.outer, view.n, view.inner);
    ForEachLine(lines, 1, [&](int64_t line) {
      const int64_t start = lines.Start(line);
      HardmaxStrided(x + start, y + start, view.n, view.inner);
    });
  });
}

constexpr int64_t kColumns = 128;  // that are computed side by side

// `count` neighbouring columns of n elements, `stride` apart; y may be x.
template <bool log>
void SoftmaxColumns(const float* x, float* y, const AxisView& view, int64_t count) {
  float max[kColumns], sum[kColumns] = {}, e[kColumns];
  std::copy(x, x + count, max);
  for (int64_t i = 1; i < view.n; ++i) MaxRow({max, 1, x + i * view.inner, 1}, max, count);
  for (int64_t i = 0; i < view.n; ++i) {
    float* to = log ? e : y + i * view.inner;
    SubRow({x + i * view.inner, 1, max, 1}, to, count);
    ExpRow(to, to, count, 0.0f);
    AddRow({sum, 1, to, 1}, sum, count);
  }
  if (log) LogRow(sum, sum, count, 0.0f);
  for (int64_t i = 0; i < view.n; ++i) {
    float* to = y + i * view.inner;
    if (log) SubRow({x + i * view.inner, 1, max, 1}, to, count);
    (log ? SubRow : DivRow)({to, 1, sum, 1}, to, count);
  }
}

template <bool log>
void RunColumns(const KernelArgs& args, const AxisView& view) {
  const int64_t parts = (view.inner + kColumns - 1) / kColumns;
  const int64_t work = 8 * view.n * std::min(view.inner, kColumns);
  ParallelFor(view.n == 0 ? 0 : view.outer * parts, work, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t column = task % parts * kColumns;
      const int64_t at = task / parts * view.n * view.inner + column;
      SoftmaxColumns<log>(args.input(0).as<float>() + at, args.output(0).as<float>() + at, view,
                          std::min(kColumns, view.inner - column));
    }
  });
}

template <bool log>
absl::Status RunHwy(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const AxisView view, ViewOf(args));
  if (view.inner != 1) {
    RunColumns<log>(args, view);
    return absl::OkStatus();
  }
  const float* x = args.input(0).as<float>();
  float* y = args.output(0).as<float>();
  ParallelFor(view.outer, 4 * std::max<int64_t>(view.n, 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      (log ? LogSoftmaxRow : SoftmaxRow)(x + row * view.n, y + row * view.n, view.n);
    }
  });
  return absl::OkStatus();
}

constexpr std::string_view kAxisDoc =
    "the axis of the rows; before opset 13, 1 by default, and a row is all axes from it on";

template <bool log>
OpDef SoftmaxOp(std::string_view name, std::string_view doc) {
  return OpDef("", name, 1)
      .Doc(doc)
      .Input("input", "T", "[...]")
      .Output("output", "T", "as input")
      .Attr("axis", int64_t{-1}, kAxisDoc)
      .Types("T", TypesOf(Floats()))
      .InferShapes(InferSoftmax)
      .AddKernel({.name = "reference", .run = RunReference<log>})
      .AddKernel({.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = RunHwy<log>})
      .InPlace(0, 0);
}

}  // namespace

OpDef SoftmaxDef() {
  return SoftmaxOp<false>("Softmax",
                          "e^x / sum of e^x along the axis. A row of -inf alone gives NaN.");
}

OpDef HardmaxDef() {
  return OpDef("", "Hardmax", 1)
      .Doc("1 at the first largest element along the axis, 0 elsewhere.")
      .Input("input", "T", "[...]")
      .Output("output", "T", "as input")
      .Attr("axis", int64_t{-1}, kAxisDoc)
      .Types("T", TypesOf(Floats()))
      .InferShapes(InferSoftmax)
      .AddKernel({.name = "reference", .run = RunHardmax});
}

OpDef LogSoftmaxDef() { return SoftmaxOp<true>("LogSoftmax", "log of Softmax."); }

}  // namespace pagefuse::onnx_ops
