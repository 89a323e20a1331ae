// SPDX-License-Identifier: Apache-2.0
// Pools: AveragePool, MaxPool, LpPool.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/pool_rows.h"
#include "pagefuse/ops/onnx/window.h"

namespace pagefuse::onnx_ops {
namespace {

using MaxTypes = decltype(Join(Floats(), TypeList<int8_t, uint8_t>()));

absl::Status InferPool(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  return InferWindow(c, x != nullptr && x->rank() > 1 ? (*x)[1] : Dim(), std::vector<int64_t>{},
                     c.num_outputs(), c.input_type(0));
}

// Calls f(plane, window) for the [N * C] planes, in parallel.
template <typename F>
absl::Status ForEachPlane(const KernelArgs& args, const F& f) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(const Window window, ReadWindow(*args.node, SpatialDims(x.dims)));
  const int64_t work = std::max<int64_t>(NumOutputs(window) * NumTaps(window), 1);
  ParallelFor(x.dims[0] * x.dims[1], work, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) f(plane, window);
  });
  return absl::OkStatus();
}

// Sets output points of float planes: f(window, point, x) in double, of the elements of plane x.
template <typename F>
absl::Status SetPoints(const KernelArgs& args, const F& f) {
  return Dispatch(Floats(), args.input(0).dtype, [&]<typename T>() {
    return ForEachPlane(args, [&](int64_t plane, const Window& window) {
      const T* x = args.input(0).as<T>() + plane * NumInputs(window);
      T* y = args.output(0).as<T>() + plane * NumOutputs(window);
      for (int64_t point = 0, points = NumOutputs(window); point < points; ++point) {
        y[point] = Store<T>(static_cast<Compute<T>>(f(window, point, x)));
      }
    });
  });
}

// Calls run(plane, rows) for the planes of a float pool, `rows` with the memory of the thread.
template <typename F>
absl::Status ForEachFloatPlane(const KernelArgs& args, const PoolFold& fold, const F& run) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(const Window window, ReadWindow(*args.node, SpatialDims(x.dims)));
  const int64_t work = NumInputs(window) * 4 + NumOutputs(window) * 16 + 1;
  if (args.output(0).size() == 0) return absl::OkStatus();
  ParallelFor(x.dims[0] * x.dims[1], work, [&](int64_t begin, int64_t end) {
    PoolRows rows(window, fold);
    for (int64_t plane = begin; plane < end; ++plane) {
      run(plane, window, rows);
    }
  });
  return absl::OkStatus();
}

// --- AveragePool ---

// Taps of output index `o` of an axis that count: those in the input, or in its pads too. A last
// window of ceil_mode may reach further, which never counts.
int64_t CountOf(const WindowAxis& axis, int64_t o, bool with_pads) {
  if (!with_pads) return std::max<int64_t>(axis.Last(o) - axis.First(o), 0);
  const int64_t room = axis.input + axis.end_pad - axis.Start(o);
  return std::clamp<int64_t>((room + axis.dilation - 1) / axis.dilation, 0, axis.kernel);
}

// Of output point `point` over the first `axes` axes.
int64_t CountOf(const Window& window, size_t axes, int64_t point, bool with_pads) {
  int64_t count = 1;
  for (size_t a = axes; a-- > 0;) {
    count *= CountOf(window[a], point % window[a].output, with_pads);
    point /= window[a].output;
  }
  return count;
}

// What the sums of a row are divided by: the taps that count, `across` in the other axes.
void SetDivisors(const WindowAxis& axis, int64_t across, bool with_pads,
                 std::vector<float>& divisors) {
  for (int64_t o = 0; o < axis.output; ++o) {
    // No tap counts where the sum is 0: 1 is as good a divisor.
    const int64_t count = across * CountOf(axis, o, with_pads);
    divisors[o] = static_cast<float>(std::max<int64_t>(count, 1));
  }
}

absl::Status RunAverageRows(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t with_pads, args.node->IntAttribute("count_include_pad", 0));
  constexpr PoolFold kSum = {nullptr, AddRow, 0};
  return ForEachFloatPlane(args, kSum, [&](int64_t plane, const Window& window, PoolRows& rows) {
    const int64_t width = window.back().output;
    std::vector<float> divisors(static_cast<size_t>(width));
    int64_t divisors_of = -1;  // the count of the other axes that they are for
    rows.Run(args.input(0).as<float>() + plane * NumInputs(window),
             args.output(0).as<float>() + plane * NumOutputs(window), [&](int64_t row, float* y) {
               const int64_t across = CountOf(window, rows.outer().size(), row, with_pads != 0);
               if (across != divisors_of) {
                 divisors_of = across;
                 SetDivisors(window.back(), across, with_pads != 0, divisors);
               }
               DivRow({y, 1, divisors.data(), 1}, y, width);
             });
  });
}

// Of the elements of plane x under output point `point`.
template <typename T>
double MeanOf(const Window& window, int64_t point, bool with_pads, const T* x) {
  double sum = 0;
  int64_t count = 0;
  ForEachTap(window, point, [&](int64_t, int64_t offset) {
    sum += static_cast<double>(Load(x[offset]));
    ++count;
  });
  if (with_pads) count = CountOf(window, window.size(), point, true);
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

absl::Status RunAverage(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t with_pads, args.node->IntAttribute("count_include_pad", 0));
  return SetPoints(args, [&](const Window& window, int64_t point, const auto* x) {
    return MeanOf(window, point, with_pads != 0, x);
  });
}

// --- LpPool ---

// The p-norm of the elements of plane x under output point `point`.
template <typename T>
double NormOf(const Window& window, int64_t point, int64_t p, const T* x) {
  double sum = 0;
  ForEachTap(window, point, [&](int64_t, int64_t offset) {
    sum += std::pow(std::fabs(static_cast<double>(Load(x[offset]))), p);
  });
  return std::pow(sum, 1.0 / static_cast<double>(p));
}

absl::Status RunLp(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t p, args.node->IntAttribute("p", 2));
  return SetPoints(args, [&](const Window& window, int64_t point, const auto* x) {
    return NormOf(window, point, p, x);
  });
}

// Sums of squares and of absolute values; other powers are rare.
absl::Status RunLpRows(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t p, args.node->IntAttribute("p", 2));
  if (p != 1 && p != 2) return RunLp(args);
  const PoolFold sum = {p == 1 ? AbsRow : SquareRow, AddRow, 0};
  return ForEachFloatPlane(args, sum, [&](int64_t plane, const Window& window, PoolRows& rows) {
    rows.Run(args.input(0).as<float>() + plane * NumInputs(window),
             args.output(0).as<float>() + plane * NumOutputs(window), [&](int64_t, float* y) {
               if (p == 2) SqrtRow(y, y, window.back().output, 0.0f);
             });
  });
}

// --- MaxPool ---

// A row-major index into a plane as one whose first axis varies fastest.
int64_t ColumnMajor(const Window& window, int64_t index) {
  int64_t result = 0;
  for (size_t a = window.size(); a-- > 0;) {
    int64_t stride = 1;
    for (size_t b = 0; b < a; ++b) stride *= window[b].input;
    result += index % window[a].input * stride;
    index /= window[a].input;
  }
  return result;
}

template <typename T>
absl::Status MaxTyped(const KernelArgs& args, bool column_major) {
  using C = Compute<T>;
  using Limits = std::numeric_limits<C>;
  const C lowest = Limits::has_infinity ? static_cast<C>(-Limits::infinity()) : Limits::lowest();
  return ForEachPlane(args, [&](int64_t plane, const Window& window) {
    const int64_t size = NumInputs(window);
    const T* x = args.input(0).as<T>() + plane * size;
    for (int64_t point = 0, points = NumOutputs(window); point < points; ++point) {
      C best = lowest;
      int64_t at = -1;
      ForEachTap(window, point, [&](int64_t, int64_t offset) {
        const C value = Load(x[offset]);
        // NaN wins, the first of them; and the first of equals.
        if (at >= 0 && !(value > best) && !(value != value && best == best)) return;
        best = value;
        at = offset;
      });
      args.output(0).as<T>()[plane * points + point] = Store<T>(best);
      if (!args.output(1).present()) continue;
      const int64_t index = at < 0 ? 0 : column_major ? ColumnMajor(window, at) : at;
      args.output(1).as<int64_t>()[plane * points + point] = plane * size + index;
    }
  });
}

absl::Status RunMax(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t order, args.node->IntAttribute("storage_order", 0));
  return Dispatch(MaxTypes(), args.input(0).dtype,
                  [&]<typename T>() { return MaxTyped<T>(args, order != 0); });
}

// Where the largest element of each window of output row `row` is, in the plane x; -1 in the pads.
void PlacesOfRow(const Window& window, const Window& outer, const float* x, int64_t row,
                 int64_t* places) {
  const WindowAxis& axis = window.back();
  std::fill_n(places, axis.output, -1);
  ForEachTap(outer, row, [&](int64_t, int64_t line) {
    for (int64_t o = 0; o < axis.output; ++o) {
      int64_t at = places[o];
      float best = at < 0 ? 0.0f : x[at];
      const int64_t first = line * axis.input + axis.Start(o);
      for (int64_t tap = axis.First(o), last = axis.Last(o); tap < last; ++tap) {
        const int64_t offset = first + tap * axis.dilation;
        const float value = x[offset];
        // The first NaN wins; and the first of equals.
        if (at >= 0 && !(value > best) && !(value != value && best == best)) continue;
        at = offset;
        best = value;
      }
      places[o] = at;
    }
  });
}

absl::Status RunMaxPlaces(KernelArgs& args, bool column_major) {
  return ForEachPlane(args, [&](int64_t plane, const Window& window) {
    const int64_t size = NumInputs(window), points = NumOutputs(window);
    const int64_t width = std::max<int64_t>(window.back().output, 1);
    const Window outer(window.begin(), window.end() - 1);
    const float* x = args.input(0).as<float>() + plane * size;
    float* y = args.output(0).as<float>() + plane * points;
    int64_t* places = args.output(1).as<int64_t>() + plane * points;
    for (int64_t row = 0; row < points / width; ++row) {
      PlacesOfRow(window, outer, x, row, places + row * width);
    }
    for (int64_t i = 0; i < points; ++i) {
      const int64_t at = places[i];
      y[i] = at < 0 ? -std::numeric_limits<float>::infinity() : x[at];
      places[i] = plane * size + (at < 0 ? 0 : column_major ? ColumnMajor(window, at) : at);
    }
  });
}

absl::Status RunMaxRows(KernelArgs& args) {
  if (args.output(1).present()) {
    PF_ASSIGN_OR_RETURN(const int64_t order, args.node->IntAttribute("storage_order", 0));
    return RunMaxPlaces(args, order != 0);
  }
  constexpr PoolFold kMax = {nullptr, MaxRow, -std::numeric_limits<float>::infinity()};
  return ForEachFloatPlane(args, kMax, [&](int64_t plane, const Window& window, PoolRows& rows) {
    rows.Run(args.input(0).as<float>() + plane * NumInputs(window),
             args.output(0).as<float>() + plane * NumOutputs(window), [](int64_t, float*) {});
  });
}

Kernel FloatKernel(std::function<absl::Status(KernelArgs&)> run) {
  return {.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = std::move(run)};
}

OpDef Pool(std::string_view name, int since, std::string_view doc) {
  return OpDef("", name, since)
      .Doc(doc)
      .Input("X", "T", "[N, C, ...]")
      .Output("Y", "T", "[N, C, ...]")
      .Attr("auto_pad", "NOTSET", "NOTSET, VALID, SAME_UPPER, SAME_LOWER")
      .FlagAttr("ceil_mode", int64_t{0}, "1: a last window may reach over the end")
      .Attr("dilations", {}, "distance of taps, by axis")
      .RequiredAttr("kernel_shape", "size of the window, by axis")
      .Attr("pads", {}, "pads in front by axis, then behind")
      .Attr("strides", {}, "distance of windows, by axis")
      .InferShapes(InferPool);
}

}  // namespace

OpDef AveragePoolDef() {
  return Pool("AveragePool", 1, "The mean of each window.")
      .Attr("count_include_pad", int64_t{0}, "1: pads count as zeros")
      .Types("T", TypesOf(Floats()))
      .AddKernel({.name = "reference", .run = RunAverage})
      .AddKernel(FloatKernel(RunAverageRows));
}

OpDef LpPoolDef() {
  return Pool("LpPool", 2, "(sum of |x|^p)^(1/p) of each window.")
      .Attr("p", int64_t{2}, "the norm")
      .Types("T", TypesOf(Floats()))
      .AddKernel({.name = "reference", .run = RunLp})
      .AddKernel(FloatKernel(RunLpRows));
}

OpDef MaxPoolDef() {
  return Pool("MaxPool", 1, "The largest element of each window, and where it is in X.")
      .Output("Indices", "int64", "as Y: places in X, flattened", PortKind::kOptional)
      .FlagAttr("storage_order", int64_t{0}, "1: Indices count planes column by column")
      .Types("T", TypesOf(MaxTypes()))
      .AddKernel({.name = "reference", .run = RunMax})
      .AddKernel(FloatKernel(RunMaxRows));
}

}  // namespace pagefuse::onnx_ops
