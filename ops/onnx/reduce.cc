// SPDX-License-Identifier: Apache-2.0
// Reductions over axes: sums, extremes, norms.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/reduce_math.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

using Reducible = TypeList<float, double, Float16, Bfloat16, int32_t, int64_t, uint32_t, uint64_t>;
using Ordered = decltype(Join(Reducible(), TypeList<int8_t, uint8_t, bool>()));

// Which of `rank` axes are reduced. `axes` is empty if there are none given.
absl::StatusOr<std::vector<bool>> ReducedAxes(const Node& node, const std::vector<int64_t>& axes,
                                              int rank) {
  PF_ASSIGN_OR_RETURN(const int64_t noop, node.IntAttribute("noop_with_empty_axes", 0));
  std::vector<bool> reduced(rank, axes.empty() && noop == 0);
  for (int64_t axis : axes) {
    if (axis < -rank || axis >= rank) {
      return NodeError(node, StrCat("axis ", axis, " is out of range for rank ", rank));
    }
    reduced[axis < 0 ? axis + rank : axis] = true;
  }
  return reduced;
}

absl::Status InferReduce(ShapeContext& context) {
  const DataType dtype = context.input_type(0);
  const Shape* shape = context.input_shape(0);
  PF_ASSIGN_OR_RETURN(const int64_t keepdims, context.node().IntAttribute("keepdims", 1));
  PF_ASSIGN_OR_RETURN(std::vector<int64_t> axes, context.node().IntsAttribute("axes", {}));
  bool axes_known = true;
  if (context.has_input(1)) {
    const std::optional<std::vector<int64_t>> value = context.input_ints(1);
    axes_known = value.has_value();
    if (value) axes = *value;
  }
  if (shape == nullptr || (!axes_known && keepdims == 0)) {
    context.SetOutput(0, dtype, std::nullopt);
    return absl::OkStatus();
  }
  if (!axes_known) {
    context.SetOutput(0, dtype, Shape(std::vector<Dim>(shape->rank())));
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(const std::vector<bool> reduced,
                      ReducedAxes(context.node(), axes, shape->rank()));
  std::vector<Dim> dims;
  for (int axis = 0; axis < shape->rank(); ++axis) {
    if (!reduced[axis]) dims.push_back((*shape)[axis]);
    if (reduced[axis] && keepdims != 0) dims.emplace_back(1);
  }
  context.SetOutput(0, dtype, Shape(std::move(dims)));
  return absl::OkStatus();
}

// A loop nest over part of a tensor's axes.
struct Loops {
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;

  int64_t count() const {
    int64_t product = 1;
    for (int64_t dim : dims) product *= dim;
    return product;
  }
  int64_t Offset(int64_t index) const {
    int64_t offset = 0;
    for (size_t d = dims.size(); d-- > 0;) {
      offset += index % dims[d] * strides[d];
      index /= dims[d];
    }
    return offset;
  }
};

// The innermost reduced axis is a loop of its own.
struct ReducePlan {
  Loops kept, reduced;
  // The reduced elements of one output are one contiguous run.
  bool rows() const { return reduced.dims.size() == 1 && reduced.strides[0] == 1; }
};

absl::StatusOr<ReducePlan> PlanOf(const KernelArgs& args) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(std::vector<int64_t> axes, args.node->IntsAttribute("axes", {}));
  if (args.input(1).present()) {
    const int64_t* values = args.input(1).as<int64_t>();
    axes.assign(values, values + args.input(1).size());
  }
  const int rank = static_cast<int>(x.dims.size());
  PF_ASSIGN_OR_RETURN(const std::vector<bool> is_reduced, ReducedAxes(*args.node, axes, rank));
  ReducePlan plan;
  int64_t stride = 1;
  int last = -1;  // the flag of the previous axis that is not 1
  for (int axis = rank - 1; axis >= 0; --axis) {
    if (x.dims[axis] == 1) continue;
    Loops& loops = is_reduced[axis] ? plan.reduced : plan.kept;
    if (last == static_cast<int>(is_reduced[axis])) {
      loops.dims.front() *= x.dims[axis];
    } else {
      loops.dims.insert(loops.dims.begin(), x.dims[axis]);
      loops.strides.insert(loops.strides.begin(), stride);
    }
    last = static_cast<int>(is_reduced[axis]);
    stride *= x.dims[axis];
  }
  return plan;
}

// Elements [begin, end) of the output.
using ReduceFn = void (*)(const ReducePlan& plan, const KernelArgs& args, int64_t begin,
                          int64_t end);

template <template <typename> class Reducer, typename T>
void ReduceTyped(const ReducePlan& plan, const KernelArgs& args, int64_t begin, int64_t end) {
  // Extremes of bool are those of 0 and 1.
  using C = std::conditional_t<std::is_same_v<T, bool>, uint8_t, Compute<T>>;
  const T* x = args.input(0).as<T>();
  T* y = args.output(0).as<T>();
  Loops outer = plan.reduced;
  const int64_t n = outer.dims.empty() ? 1 : outer.dims.back();
  const int64_t stride = outer.dims.empty() ? 0 : outer.strides.back();
  if (!outer.dims.empty()) outer.dims.pop_back();
  const int64_t outer_count = outer.count();
  for (int64_t i = begin; i < end; ++i) {
    Reducer<C> reducer;
    const int64_t base = plan.kept.Offset(i);
    for (int64_t k = 0; k < outer_count; ++k) {
      const T* row = x + base + outer.Offset(k);
      for (int64_t j = 0; j < n; ++j) reducer.Add(static_cast<C>(Load(row[j * stride])));
    }
    y[i] = Store<T>(static_cast<Compute<T>>(reducer.Finish(outer_count * n)));
  }
}

absl::Status Run(const KernelArgs& args, const ReducePlan& plan, ReduceFn reduce) {
  if (reduce == nullptr) return NoKernelForType(args.input(0).dtype);
  ParallelFor(plan.kept.count(), std::max<int64_t>(plan.reduced.count(), 1),
              [&](int64_t begin, int64_t end) { reduce(plan, args, begin, end); });
  return absl::OkStatus();
}

template <template <typename> class Reducer, typename Types>
absl::Status RunReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ReducePlan plan, PlanOf(args));
  return Run(args, plan, Choose(Types(), args.input(0).dtype, []<typename T>() -> ReduceFn {
               return ReduceTyped<Reducer, T>;
             }));
}

// A reduction of floats by rows: of a row that is reduced, and of rows that are folded one into
// the other where the kept elements are neighbours.
struct FloatReduction {
  float (*row)(const float* x, int64_t n);
  UnaryRow map;      // of elements before they are folded; null: as they are
  BinaryRowFn fold;  // of two rows; null: there is none
  float (*finish)(float folded, int64_t count) = nullptr;  // null: as it is
};

constexpr FloatReduction kSum = {SumOfRow, nullptr, AddRow};
constexpr FloatReduction kMean = {SumOfRow, nullptr, AddRow, [](float folded, int64_t count) {
                                    return folded / static_cast<float>(count);
                                  }};
constexpr FloatReduction kMaximum = {MaxOfRow, nullptr, MaxRow};
constexpr FloatReduction kMinimum = {MinOfRow, nullptr, MinRow};
constexpr FloatReduction kProduct = {ProductOfRow, nullptr, MulRow};
constexpr FloatReduction kL1 = {SumOfAbsRow, AbsRow, AddRow};
constexpr FloatReduction kSumSquare = {SumOfSquaresOfRow, SquareRow, AddRow};
constexpr FloatReduction kL2 = {SumOfSquaresOfRow, SquareRow, AddRow,
                                [](float folded, int64_t) { return std::sqrt(folded); }};
constexpr FloatReduction kLogSum = {SumOfRow, nullptr, AddRow,
                                    [](float folded, int64_t) { return std::log(folded); }};
constexpr FloatReduction kLogSumExp = {LogSumExpRow, nullptr, nullptr};

constexpr int64_t kColumns = 1024;  // that are folded at once: they stay in the L1 cache

// Folds the reduced rows of `n` neighbouring kept elements, x the first of them. Rows are folded in
// blocks, so that rounding errors of long sums stay small.
void FoldColumns(const FloatReduction& f, const Loops& reduced, const float* x, float* y,
                 int64_t n) {
  constexpr int64_t kBlock = 64;
  float mapped[kColumns], block[kColumns];
  const int64_t count = reduced.count();
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    float* to = begin == 0 ? y : block;
    for (int64_t k = begin; k < std::min(begin + kBlock, count); ++k) {
      const float* from = x + reduced.Offset(k);
      if (f.map != nullptr) {
        f.map(from, mapped, n, 0.0f);
        from = mapped;
      }
      if (k == begin) {
        std::copy(from, from + n, to);
      } else {
        f.fold({to, 1, from, 1}, to, n);
      }
    }
    if (begin > 0) f.fold({y, 1, block, 1}, y, n);
  }
  for (int64_t i = 0; f.finish != nullptr && i < n; ++i) y[i] = f.finish(y[i], count);
}

// The kept elements of a row are neighbours, and enough of them.
bool ByColumns(const FloatReduction& f, const ReducePlan& plan) {
  constexpr int64_t kMinColumns = 8;
  return f.fold != nullptr && !plan.kept.dims.empty() && plan.kept.strides.back() == 1 &&
         plan.kept.dims.back() >= kMinColumns && plan.reduced.count() > 0;
}

void RunColumns(const FloatReduction& f, const ReducePlan& plan, const KernelArgs& args) {
  const int64_t row = plan.kept.dims.back();
  const int64_t parts = (row + kColumns - 1) / kColumns;
  const int64_t rows = plan.kept.count() / std::max<int64_t>(row, 1);
  const int64_t work = 2 * std::min(row, kColumns) * plan.reduced.count();
  ParallelFor(rows * parts, work, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t column = task % parts * kColumns;
      const int64_t at = task / parts * row + column;
      FoldColumns(f, plan.reduced, args.input(0).as<float>() + plan.kept.Offset(at),
                  args.output(0).as<float>() + at, std::min(kColumns, row - column));
    }
  });
}

// Rows and columns by Highway; other axes by `otherwise`.
Kernel HwyKernel(const FloatReduction& f, ReduceFn otherwise) {
  auto run = [f, otherwise](KernelArgs& args) -> absl::Status {
    PF_ASSIGN_OR_RETURN(const ReducePlan plan, PlanOf(args));
    if (!plan.rows()) {
      if (!ByColumns(f, plan)) return Run(args, plan, otherwise);
      RunColumns(f, plan, args);
      return absl::OkStatus();
    }
    const float* x = args.input(0).as<float>();
    float* y = args.output(0).as<float>();
    const int64_t n = plan.reduced.dims[0];
    ParallelFor(plan.kept.count(), std::max<int64_t>(n, 1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        y[i] = f.row(x + i * n, n);
        if (f.finish != nullptr) y[i] = f.finish(y[i], n);
      }
    });
    return absl::OkStatus();
  };
  return {.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = run};
}

template <template <typename> class Reducer, typename Types = Reducible>
OpDef Reduction(std::string_view name, std::string_view doc, const FloatReduction& of_floats) {
  return OpDef("", name, 1)
      .Doc(doc)
      .Input("data", "T", "[...]")
      .Input("axes", "int64", "[N]; an attribute before opset 18, 13 for ReduceSum",
             PortKind::kOptional)
      .Output("reduced", "T", "as data without the axes, or with 1 in their place")
      .Attr("axes", {}, "axes to reduce; all if none are given")
      .FlagAttr("keepdims", int64_t{1}, "1: reduced axes stay with dim 1")
      .FlagAttr("noop_with_empty_axes", int64_t{0}, "1: no axes given means none are reduced")
      .Types("T", TypesOf(Types()))
      .InferShapes(InferReduce)
      .AddKernel({.name = "reference", .run = RunReference<Reducer, Types>})
      .AddKernel(HwyKernel(of_floats, ReduceTyped<Reducer, float>));
}

}  // namespace

OpDef ReduceSumDef() { return Reduction<SumReducer>("ReduceSum", "The sum.", kSum); }
OpDef ReduceMeanDef() {
  return Reduction<MeanReducer>("ReduceMean", "The mean; integers truncate.", kMean);
}
OpDef ReduceMaxDef() {
  return Reduction<MaxReducer, Ordered>("ReduceMax", "The largest; NaN wins.", kMaximum);
}
OpDef ReduceMinDef() {
  return Reduction<MinReducer, Ordered>("ReduceMin", "The smallest; NaN wins.", kMinimum);
}
OpDef ReduceProdDef() { return Reduction<ProdReducer>("ReduceProd", "The product.", kProduct); }
OpDef ReduceL1Def() { return Reduction<L1Reducer>("ReduceL1", "The sum of absolute values.", kL1); }
OpDef ReduceL2Def() {
  return Reduction<L2Reducer>("ReduceL2", "The root of the sum of squares.", kL2);
}
OpDef ReduceSumSquareDef() {
  return Reduction<SumSquareReducer>("ReduceSumSquare", "The sum of squares.", kSumSquare);
}
OpDef ReduceLogSumDef() {
  return Reduction<LogSumReducer>("ReduceLogSum", "log of the sum.", kLogSum);
}
OpDef ReduceLogSumExpDef() {
  return Reduction<LogSumExpReducer>("ReduceLogSumExp", "log of the sum of e^x.", kLogSumExp);
}

}  // namespace pagefuse::onnx_ops
