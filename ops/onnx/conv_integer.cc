// SPDX-License-Identifier: Apache-2.0
// ConvInteger and QLinearConv: convolutions of 8-bit elements, exact in int32.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/integer_product.h"
#include "pagefuse/ops/onnx/conv.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/window_columns.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

using Bytes = TypeList<int8_t, uint8_t>;

// One value, or one for each output channel; `otherwise` if the input is omitted.
class PerChannel {
 public:
  static absl::StatusOr<PerChannel> Of(const TensorArg& arg, float otherwise) {
    PerChannel result;
    PF_ASSIGN_OR_RETURN(result.values_, DecodedFloats(arg));
    if (!arg.present()) result.values_ = {otherwise};
    return result;
  }
  float operator[](int64_t m) const { return values_.size() == 1 ? values_[0] : values_[m]; }
  bool one() const { return values_.size() == 1; }
  std::vector<int32_t> Integers() const { return {values_.begin(), values_.end()}; }

 private:
  std::vector<float> values_;
};

absl::Status CheckPerChannel(const ShapeContext& c, int i, int weights) {
  const Shape* shape = c.input_shape(i);
  const Shape* w = c.input_shape(weights);
  const auto dims = shape == nullptr ? std::nullopt : shape->constant();
  if (!dims || ElementCount(*dims) == 1) return absl::OkStatus();
  if (shape->rank() == 1 && w != nullptr && w->rank() > 0 && !Differ((*w)[0], (*shape)[0])) {
    return absl::OkStatus();
  }
  return c.InputError(
      i, StrCat("expected one element an output channel, got shape ", shape->ToString()));
}

// Calls store(m, at, sum) with the exact sum of (x - its zero point) * (w - its zero point), which
// wraps as int32 does.
template <typename Store>
absl::Status ConvolveBytes(const KernelArgs& args, const ConvPlan& plan, int weights,
                           const std::pair<int, int>& zero_points, const Store& store) {
  PF_ASSIGN_OR_RETURN(const auto x_zero, PerChannel::Of(args.input(zero_points.first), 0));
  PF_ASSIGN_OR_RETURN(const auto w_zero, PerChannel::Of(args.input(zero_points.second), 0));
  return Dispatch(Bytes(), args.input(0).dtype, [&]<typename X>() {
    return Dispatch(Bytes(), args.input(weights).dtype, [&]<typename W>() {
      const X* x = args.input(0).as<X>();
      const W* w = args.input(weights).as<W>();
      const auto zero = static_cast<int32_t>(x_zero[0]);
      Convolve<uint32_t>(
          plan,
          [&](int64_t i, int64_t k, int64_t m) {
            return static_cast<uint32_t>((x[i] - zero) * (w[k] - static_cast<int32_t>(w_zero[m])));
          },
          [&](int64_t m, int64_t at, uint32_t sum) { store(m, at, static_cast<int32_t>(sum)); });
    });
  });
}

// Where the rows of a part's product go: output channels from `first` on, whose elements from `at`
// on are `stride` apart.
struct PartPlace {
  int64_t first, at, stride;
};
template <typename Store>
void StorePart(const IntegerProduct& product, const PartPlace& to, const Store& store) {
  ParallelFor(product.m, product.n * 4, [&](int64_t row, int64_t end) {
    for (; row < end; ++row) {
      store(to.first + row, to.at + row * to.stride, product.y + row * product.y_stride, product.n);
    }
  });
}

// Calls store(m, at, sums, count): sums of output channel m at elements [at, at + count) of y. The
// windows of a part of the output become the columns of a matrix, the weights are its left factor.
template <typename Store>
absl::Status MultiplyWindows(KernelArgs& args, const ConvPlan& plan, int weights,
                             const std::pair<int, int>& zero_points, const Store& store) {
  PF_ASSIGN_OR_RETURN(const auto x_zero, PerChannel::Of(args.input(zero_points.first), 0));
  PF_ASSIGN_OR_RETURN(const auto w_zero, PerChannel::Of(args.input(zero_points.second), 0));
  std::vector<int32_t> x_zeros = x_zero.Integers();
  const std::vector<int32_t> w_zeros = w_zero.Integers();
  const int64_t depth = plan.group_channels * NumTaps(plan.window);
  const int64_t points = NumOutputs(plan.window), inputs = NumInputs(plan.window);
  const WindowColumns columns(plan.window, plan.group_channels);
  const int64_t part = columns.PartPoints();
  IntegerProduct product{.m = plan.group_outputs, .k = depth};
  product.y_stride = part;
  product.b_zeros = {x_zeros.data(), 0};
  auto* gathered = static_cast<uint8_t*>(args.scratch->Get(static_cast<size_t>(depth * part), 1));
  product.y = static_cast<int32_t*>(
      args.scratch->Get(static_cast<size_t>(product.m * part) * sizeof(int32_t), 2));
  product.b = {gathered, part, /*is_signed=*/true};
  void* scratch = args.scratch->Get(IntegerProductScratchBytes(product.m, depth, part), 0);
  const int64_t groups = plan.outputs / plan.group_outputs;
  const auto image = static_cast<size_t>(plan.group_channels * inputs);
  // Elements are in many windows: they become int8 here, once.
  const bool shifts = args.input(0).dtype == DataType::kUint8;
  auto* shifted = static_cast<uint8_t*>(args.scratch->Get(shifts ? image : 0, 3));
  if (shifts) x_zeros[0] -= kSignedShift;
  for (int64_t task = 0; task < plan.images * groups; ++task) {
    const int64_t first = task % groups * plan.group_outputs;
    const uint8_t* x = args.input(0).as<uint8_t>() + static_cast<size_t>(task) * image;
    if (shifts) ShiftToSigned(x, image, shifted);
    product.a = {args.input(weights).as<uint8_t>() + first * depth, depth,
                 args.input(weights).dtype == DataType::kInt8};
    product.a_zeros = {w_zeros.data() + (w_zero.one() ? 0 : first), w_zero.one() ? 0 : 1};
    for (int64_t begin = 0; begin < points; begin += part) {
      product.n = std::min(part, points - begin);
      columns.Gather(shifts ? shifted : x, static_cast<uint8_t>(x_zeros[0]),
                     {begin, begin + product.n}, gathered);
      MultiplyIntegers(product, scratch);
      StorePart(product, {first, task * plan.group_outputs * points + begin, points}, store);
    }
  }
  return absl::OkStatus();
}

absl::Status InferConvInteger(ShapeContext& c) {
  PF_RETURN_IF_ERROR(ExpectOneElement(c, 2));
  PF_RETURN_IF_ERROR(CheckPerChannel(c, 3, 1));
  return InferConv(c, 1, DataType::kInt32);
}

absl::Status RunConvInteger(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ConvPlan plan, PlanConv(args, 1));
  return ConvolveBytes(args, plan, 1, {2, 3}, [&](int64_t, int64_t at, int32_t sum) {
    args.output(0).as<int32_t>()[at] = sum;
  });
}

absl::Status RunConvIntegerFast(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ConvPlan plan, PlanConv(args, 1));
  if (args.output(0).size() == 0) return absl::OkStatus();
  int32_t* y = args.output(0).as<int32_t>();
  return MultiplyWindows(args, plan, 1, {2, 3},
                         [&](int64_t, int64_t at, const int32_t* sums, int64_t count) {
                           std::copy(sums, sums + count, y + at);
                         });
}

absl::Status InferQLinearConv(ShapeContext& c) {
  for (int i : {1, 2, 6, 7}) PF_RETURN_IF_ERROR(ExpectOneElement(c, i));
  for (int i : {4, 5}) PF_RETURN_IF_ERROR(CheckPerChannel(c, i, 3));
  const Shape* w = c.input_shape(3);
  if (w != nullptr && w->rank() > 0) PF_RETURN_IF_ERROR(ExpectShape(c, 8, Shape({(*w)[0]})));
  return InferConv(c, 3, c.input_type(7));
}

absl::Status RunQLinearConv(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ConvPlan plan, PlanConv(args, 3));
  PF_ASSIGN_OR_RETURN(const auto w_scale, PerChannel::Of(args.input(4), 1));
  PF_ASSIGN_OR_RETURN(const auto y_zero, PerChannel::Of(args.input(7), 0));
  const float x_scale = *args.input(1).as<float>();
  const float y_scale = *args.input(6).as<float>();
  const int32_t* bias = args.input(8).as<int32_t>();
  return Dispatch(Bytes(), args.output(0).dtype, [&]<typename Y>() {
    Y* y = args.output(0).as<Y>();
    return ConvolveBytes(args, plan, 3, {2, 5}, [&](int64_t m, int64_t at, int32_t sum) {
      const int64_t total = int64_t{sum} + (bias == nullptr ? 0 : bias[m]);
      const double scale = static_cast<double>(x_scale) * w_scale[m] / y_scale;
      const double scaled = std::nearbyint(static_cast<double>(total) * scale) + y_zero[0];
      y[at] = ConvertElement<Y>(scaled);
    });
  });
}

absl::Status RunQLinearConvFast(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ConvPlan plan, PlanConv(args, 3));
  if (args.output(0).size() == 0) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const auto w_scale, PerChannel::Of(args.input(4), 1));
  PF_ASSIGN_OR_RETURN(const auto y_zero, PerChannel::Of(args.input(7), 0));
  const float x_scale = *args.input(1).as<float>();
  const float y_scale = *args.input(6).as<float>();
  const int32_t* bias = args.input(8).as<int32_t>();
  Requantization to{.zero = y_zero[0], .is_signed = args.output(0).dtype == DataType::kInt8};
  uint8_t* y = args.output(0).as<uint8_t>();
  return MultiplyWindows(args, plan, 3, {2, 5},
                         [&](int64_t m, int64_t at, const int32_t* sums, int64_t count) {
                           Requantization channel = to;
                           channel.scale = static_cast<double>(x_scale) * w_scale[m] / y_scale;
                           channel.bias = bias == nullptr ? 0 : bias[m];
                           RequantizeRow(sums, count, channel, y + at);
                         });
}

OpDef ConvLike(const char* name) {
  return OpDef("", name, 10)
      .Attr("auto_pad", "NOTSET", "NOTSET, VALID, SAME_UPPER, SAME_LOWER")
      .Attr("dilations", {}, "distance of taps, by axis")
      .Attr("group", int64_t{1}, "groups of channels")
      .Attr("kernel_shape", {}, "that of the weights")
      .Attr("pads", {}, "pads in front by axis, then behind")
      .Attr("strides", {}, "distance of windows, by axis");
}

}  // namespace

OpDef ConvIntegerDef() {
  return ConvLike("ConvInteger")
      .Doc("Conv of (x - x_zero_point) with (w - w_zero_point), in int32.")
      .Input("x", "T1", "[N, C, ...]")
      .Input("w", "T2", "[M, C / group, ...]")
      .Input("x_zero_point", "T1", "[]", PortKind::kOptional)
      .Input("w_zero_point", "T2", "[] or [M]", PortKind::kOptional)
      .Output("y", "int32", "[N, M, ...]")
      .Types("T1", TypesOf(Bytes()))
      .Types("T2", TypesOf(Bytes()))
      .InferShapes(InferConvInteger)
      .AddKernel({.name = "reference", .run = RunConvInteger})
      .AddKernel({.name = "hwy", .priority = 10, .run = RunConvIntegerFast});
}

OpDef QLinearConvDef() {
  return ConvLike("QLinearConv")
      .Doc("Conv of dequantised x and w plus B * x_scale * w_scale, quantised.")
      .Input("x", "T1", "[N, C, ...]")
      .Input("x_scale", "float", "[]")
      .Input("x_zero_point", "T1", "[]")
      .Input("w", "T2", "[M, C / group, ...]")
      .Input("w_scale", "float", "[] or [M]")
      .Input("w_zero_point", "T2", "[] or [M]")
      .Input("y_scale", "float", "[]")
      .Input("y_zero_point", "T3", "[]")
      .Input("B", "int32", "[M]", PortKind::kOptional)
      .Output("y", "T3", "[N, M, ...]")
      .Types("T1", TypesOf(Bytes()))
      .Types("T2", TypesOf(Bytes()))
      .Types("T3", TypesOf(Bytes()))
      .InferShapes(InferQLinearConv)
      .AddKernel({.name = "reference", .run = RunQLinearConv})
      .AddKernel({.name = "hwy", .priority = 10, .run = RunQLinearConvFast});
}

}  // namespace pagefuse::onnx_ops
