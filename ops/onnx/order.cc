// SPDX-License-Identifier: Apache-2.0
// CumSum, CumProd, TopK, ArgMax and ArgMin: running sums and order along one axis.
#include <algorithm>
#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"
#include "pagefuse/ops/kernels/rows/top_k.h"
#include "pagefuse/ops/onnx/lines.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/onnx/scalar_math.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// --- CumSum, CumProd ---

constexpr int64_t kLineGroup = 64;  // neighbouring lines that are walked side by side

absl::Status InferCumulative(ShapeContext& c) {
  PF_RETURN_IF_ERROR(ExpectOneElement(c, 1));
  const Shape* x = c.input_shape(0);
  const std::optional<std::vector<int64_t>> value = c.input_ints(1);
  if (x != nullptr && value) PF_RETURN_IF_ERROR(ResolveAxis(c, value->front(), x->rank()).status());
  return InferLikeInput(c);
}

struct CumulativeRules {
  bool exclusive, reverse;
  int start;  // the result of no element
};

// Running results of `width` neighbouring lines, x the start of the first. Integers wrap.
template <typename Fn, typename T>
void Accumulate(const Lines& lines, CumulativeRules rules, const T* x, T* y, int64_t width) {
  std::array<Wide<T>, kLineGroup> so_far;
  so_far.fill(static_cast<Wide<T>>(rules.start));
  for (int64_t i = 0; i < lines.size; ++i) {
    const int64_t row = (rules.reverse ? lines.size - 1 - i : i) * lines.stride;
    for (int64_t c = 0; c < width; ++c) {
      const auto element = static_cast<Wide<T>>(x[row + c]);
      const auto next = Fn()(so_far[c], element);
      y[row + c] = static_cast<T>(rules.exclusive ? so_far[c] : next);
      so_far[c] = next;
    }
  }
}

// Of all lines; x and y are not empty.
template <typename Fn, typename T>
void AccumulateAll(const Lines& lines, CumulativeRules rules, const T* x, T* y) {
  const int64_t groups = (lines.stride + kLineGroup - 1) / kLineGroup;
  const int64_t work = 8 * lines.size * std::min(lines.stride, kLineGroup);
  ParallelFor(lines.count / lines.stride * groups, work, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % groups * kLineGroup;
      const int64_t at = task / groups * lines.stride * lines.size + first;
      Accumulate<Fn>(lines, rules, x + at, y + at, std::min(kLineGroup, lines.stride - first));
    }
  });
}

template <typename Fn, int start>
absl::Status RunCumulative(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const TensorArg& y = args.output(0);
  PF_ASSIGN_OR_RETURN(const int64_t exclusive, args.node->IntAttribute("exclusive", 0));
  PF_ASSIGN_OR_RETURN(const int64_t reverse, args.node->IntAttribute("reverse", 0));
  if (x.size() == 0) return absl::OkStatus();
  const Lines lines(x.dims, KernelAxis(IndexValues(args.input(1))[0], x.dims.size()));
  const CumulativeRules rules = {exclusive != 0, reverse != 0, start};
  return DispatchType(x.dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) AccumulateAll<Fn>(lines, rules, x.as<T>(), y.as<T>());
  });
}

OpDef Cumulative(const char* name, int since, const char* doc) {
  return OpDef("", name, since)
      .Doc(doc)
      .Input("x", "T", "[...]")
      .Input("axis", "T2", "[]")
      .Output("y", "T", "[...]")
      .FlagAttr("exclusive", int64_t{0})
      .FlagAttr("reverse", int64_t{0})
      .Types("T", {DataType::kFloat, DataType::kDouble, DataType::kFloat16, DataType::kBfloat16,
                   DataType::kInt32, DataType::kInt64, DataType::kUint32, DataType::kUint64})
      .Types("T2", IndexTypes())
      .InferShapes(InferCumulative);
}

// --- TopK ---

constexpr MovedList kK{1, "k"};

absl::Status InferTopK(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const bool has_k, IsGiven(c, kK));
  if (!has_k) return c.Error("expected k, got none");
  const Shape* x = c.input_shape(0);
  PF_RETURN_IF_ERROR(ExpectOneElement(c, 1));
  if (x == nullptr) {
    c.SetOutput(0, c.input_type(0), std::nullopt);
    c.SetOutput(1, DataType::kInt64, std::nullopt);
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(const int axis, AxisAttribute(c, x->rank(), -1));
  const std::optional<std::vector<Dim>> value = DimsOf(c, kK);
  Dim k = value && !value->empty() ? value->front() : Dim();
  if (k.is_constant() &&
      (*k.constant() < 0 || ((*x)[axis].is_constant() && *k.constant() > *(*x)[axis].constant()))) {
    const std::string what = absl::StrCat("k is ", *k.constant(), ", but axis ", axis, " has ",
                                          (*x)[axis].ToString(), " elements");
    return c.has_input(1) ? c.InputError(1, what) : c.AttributeError("k", what);
  }
  Shape y = *x;
  y[axis] = k.known() ? k : c.FreshDim();
  c.SetOutput(0, c.input_type(0), y);
  c.SetOutput(1, DataType::kInt64, y);
  return absl::OkStatus();
}

// Whether value a at index i goes before value b at index j: a larger (smaller) one, the lower
// index among equals. NaN counts as larger than every number, so that the order is one.
template <typename W>
bool Before(W a, int64_t i, W b, int64_t j, bool largest) {
  const bool a_is_nan = a != a;
  const bool b_is_nan = b != b;
  if (a_is_nan != b_is_nan) return a_is_nan == largest;
  if (a == b || a_is_nan) return i < j;
  return largest ? b < a : a < b;
}

template <typename T>
void TopKOfLine(const T* x, int64_t stride, bool largest, std::vector<int64_t>& order, int64_t k) {
  std::vector<Wide<T>> values(order.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<Wide<T>>(x[static_cast<int64_t>(i) * stride]);
  }
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](int64_t i, int64_t j) {
    return Before(values[i], i, values[j], j, largest);
  };
  if (k < static_cast<int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + k, order.end(), before);
  }
  std::sort(order.begin(), order.begin() + k, before);
}

absl::Status RunTopK(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const TensorArg& values = args.output(0);
  const TensorArg& indices = args.output(1);
  PF_ASSIGN_OR_RETURN(const int64_t largest, args.node->IntAttribute("largest", 1));
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, x.dims, -1));
  const Lines from(x.dims, axis);
  const std::vector<int64_t>& to_dims = values.present() ? values.dims : indices.dims;
  const Lines to(to_dims, axis);
  return DispatchType(x.dtype, [&]<typename T>() {
    ForEachLine(from, 8, [&](int64_t line) {
      std::vector<int64_t> order(from.size);
      const T* start = x.as<T>() + from.Start(line);
      TopKOfLine(start, from.stride, largest != 0, order, to.size);
      for (int64_t i = 0; i < to.size; ++i) {
        const int64_t at = to.Start(line) + i * to.stride;
        if (values.present()) values.as<T>()[at] = start[order[i] * from.stride];
        if (indices.present()) indices.as<int64_t>()[at] = order[i];
      }
    });
  });
}

absl::Status RunTopKFast(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(const int64_t largest, args.node->IntAttribute("largest", 1));
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, x.dims, -1));
  const Lines from(x.dims, axis);
  const Lines to(args.output(0).present() ? args.output(0).dims : args.output(1).dims, axis);
  if (from.size > kMaxTopKLine) return RunTopK(args);
  ParallelFor(from.count, 16 * std::max<int64_t>(from.size, 1), [&](int64_t begin, int64_t end) {
    TopK top(largest != 0, to.size);
    std::vector<float> line(from.stride == 1 ? 0 : from.size);
    for (int64_t k = begin; k < end; ++k) {
      const float* start = x.as<float>() + from.Start(k);
      for (size_t i = 0; i < line.size(); ++i) {
        line[i] = start[static_cast<int64_t>(i) * from.stride];
      }
      const float* values = from.stride == 1 ? start : line.data();
      const std::vector<uint32_t>& order = top.Of(values, from.size);
      for (int64_t i = 0; i < to.size; ++i) {
        const int64_t at = to.Start(k) + i * to.stride;
        if (args.output(0).present()) args.output(0).as<float>()[at] = values[order[i]];
        if (args.output(1).present()) args.output(1).as<int64_t>()[at] = order[i];
      }
    }
  });
  return absl::OkStatus();
}

// --- ArgMax, ArgMin ---

absl::Status InferArg(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  if (x == nullptr) {
    c.SetOutput(0, DataType::kInt64, std::nullopt);
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(const int axis, AxisAttribute(c, x->rank(), 0));
  PF_ASSIGN_OR_RETURN(const int64_t keep, c.node().IntAttribute("keepdims", 1));
  if ((*x)[axis] == Dim(0)) return c.InputError(0, absl::StrCat("axis ", axis, " is empty"));
  std::vector<Dim> dims = x->dims();
  if (keep != 0)
    dims[axis] = Dim(1);
  else
    dims.erase(dims.begin() + axis);
  c.SetOutput(0, DataType::kInt64, Shape(std::move(dims)));
  return absl::OkStatus();
}

struct ArgCall {
  Lines lines;
  bool last;  // among equal elements the last
};

absl::StatusOr<ArgCall> ArgCallOf(const KernelArgs& args) {
  const std::vector<int64_t>& dims = args.input(0).dims;
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, dims, 0));
  PF_ASSIGN_OR_RETURN(const int64_t last, args.node->IntAttribute("select_last_index", 0));
  return ArgCall{Lines(dims, axis), last != 0};
}

template <bool kLargest>
absl::Status RunArg(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ArgCall call, ArgCallOf(args));
  return DispatchType(args.input(0).dtype, [&]<typename T>() {
    ForEachLine(call.lines, 8, [&](int64_t line) {
      const T* start = args.input(0).as<T>() + call.lines.Start(line);
      auto best = static_cast<Wide<T>>(start[0]);
      int64_t index = 0;
      for (int64_t i = 1; i < call.lines.size; ++i) {
        const auto value = static_cast<Wide<T>>(start[i * call.lines.stride]);
        const bool better = kLargest ? best < value : value < best;
        if (!better && !(call.last && value == best)) continue;
        best = value;
        index = i;
      }
      args.output(0).as<int64_t>()[line] = index;
    });
  });
}

// Rows of neighbours by Highway.
template <bool kLargest>
absl::Status RunArgFast(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ArgCall call, ArgCallOf(args));
  if (call.lines.stride != 1) return RunArg<kLargest>(args);
  const auto index_of = kLargest ? IndexOfMaxRow : IndexOfMinRow;
  ForEachLine(call.lines, 8, [&](int64_t line) {
    const float* row = args.input(0).as<float>() + call.lines.Start(line);
    args.output(0).as<int64_t>()[line] = index_of(row, call.lines.size, call.last);
  });
  return absl::OkStatus();
}

template <bool kLargest>
Kernel ArgKernel() {
  return {.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = RunArgFast<kLargest>};
}

OpDef ArgDef(const char* name, const char* doc) {
  return OpDef("", name, 1)
      .Doc(doc)
      .Input("data", "T")
      .Output("reduced", "int64")
      .Attr("axis", int64_t{0})
      .FlagAttr("keepdims", int64_t{1})
      .Attr("select_last_index", int64_t{0}, "among equal elements the last instead of the first")
      .Types("T", NumberTypes())
      .InferShapes(InferArg);
}

}  // namespace

OpDef CumSumDef() {
  return Cumulative("CumSum", 11,
                    "Running sums along an axis, from the back with `reverse`, without the element "
                    "itself with `exclusive`.")
      .AddKernel({.name = "reference", .run = RunCumulative<decltype(kAdd), 0>});
}

OpDef CumProdDef() {
  return Cumulative("CumProd", 26, "Running products along an axis, as CumSum.")
      .AddKernel({.name = "reference", .run = RunCumulative<decltype(kMul), 1>});
}

OpDef TopKDef() {
  return OpDef("", "TopK", 1)
      .Doc(
          "The k largest (smallest) elements along an axis in order, and their indices; the lower "
          "index first among equals.")
      .Input("X", "T")
      .Input("K", "int64", "[1]; an attribute before opset 10", PortKind::kOptional)
      .Output("Values", "T")
      .Output("Indices", "int64")
      .Attr("k", {}, "before opset 10")
      .Attr("axis", int64_t{-1})
      .FlagAttr("largest", int64_t{1})
      .FlagAttr("sorted", int64_t{1}, "0: any order would do")
      .Types("T", NumberTypes())
      .InferShapes(InferTopK)
      .AddKernel({.name = "reference", .run = RunTopK})
      .AddKernel({.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = RunTopKFast});
}

OpDef ArgMaxDef() {
  return ArgDef("ArgMax", "The index of the largest element along an axis.")
      .AddKernel({.name = "reference", .run = RunArg<true>})
      .AddKernel(ArgKernel<true>());
}

OpDef ArgMinDef() {
  return ArgDef("ArgMin", "The index of the smallest element along an axis.")
      .AddKernel({.name = "reference", .run = RunArg<false>})
      .AddKernel(ArgKernel<false>());
}

}  // namespace pagefuse::onnx_ops
