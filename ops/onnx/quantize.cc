// SPDX-License-Identifier: Apache-2.0
// QuantizeLinear and DequantizeLinear: per tensor, per axis, or in blocks along an axis; and
// DynamicQuantizeLinear.
#include "pagefuse/ops/onnx/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/packed_types.h"
#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/rows/quantize_hwy.h"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

const std::vector<DataType> kWide = {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16,
                                     DataType::kInt32};
const std::vector<DataType> kScales = {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16,
                                       DataType::kInt32, DataType::kFloat8E8M0};
const std::vector<DataType> kNarrow = {DataType::kInt8,
                                       DataType::kUint8,
                                       DataType::kInt16,
                                       DataType::kUint16,
                                       DataType::kFloat8E4M3FN,
                                       DataType::kFloat8E4M3FNUZ,
                                       DataType::kFloat8E5M2,
                                       DataType::kFloat8E5M2FNUZ,
                                       DataType::kUint4,
                                       DataType::kInt4,
                                       DataType::kFloat4E2M1,
                                       kUint2,
                                       kInt2,
                                       DataType::kInt32};

// The tensor as [outer, length, inner], the quantised axis in the middle, and its scales and zero
// points.
struct Quantization {
  int64_t length = 1, inner = 1;
  int64_t block = 0;   // elements of the axis that share a scale; 0: not blocked
  int64_t blocks = 1;  // blocks along the axis
  std::vector<float> scales, zero_points;

  // Calls f(position, n, parameter, stride): elements [position, position + n) use scales
  // parameter, parameter + stride, ...
  template <typename F>
  void ForEachRun(int64_t begin, int64_t end, const F& f) const {
    while (begin < end) {
      const int64_t i = begin % inner;
      const int64_t a = begin / inner % length;
      const int64_t outer = begin / inner / length;
      int64_t n = inner - i, parameter = 0, stride = 0;
      if (scales.size() == 1) {
        n = end - begin;
      } else if (block == 0) {
        parameter = a;
        stride = inner == 1 ? 1 : 0;
        if (inner == 1) n = length - a;
      } else {
        parameter = (outer * blocks + a / block) * inner + i;
        stride = inner == 1 ? 0 : 1;
        if (inner == 1) n = std::min(block - a % block, length - a);
      }
      n = std::min(n, end - begin);
      f(begin, n, parameter, stride);
      begin += n;
    }
  }
};

absl::StatusOr<Quantization> QuantizationOf(const KernelArgs& args) {
  const std::vector<int64_t>& dims = args.input(0).dims;
  const int64_t rank = static_cast<int64_t>(dims.size());
  Quantization q;
  PF_ASSIGN_OR_RETURN(int64_t axis, args.node->IntAttribute("axis", 1));
  PF_ASSIGN_OR_RETURN(q.scales, DecodedFloats(args.input(1)));
  q.zero_points.assign(q.scales.size(), 0.0f);
  if (args.input(2).present()) {
    PF_ASSIGN_OR_RETURN(q.zero_points, DecodedFloats(args.input(2)));
  }
  if (q.scales.size() == 1) return q;
  if (axis < 0) axis += rank;
  q.length = dims[axis];
  for (int64_t d = axis + 1; d < rank; ++d) q.inner *= dims[d];
  if (args.input(1).dims.size() == 1 && rank != 1) return q;
  PF_ASSIGN_OR_RETURN(q.block, args.node->IntAttribute("block_size", 0));
  q.blocks = args.input(1).dims[axis];
  return q;
}

// Blocked: the scale's shape is the input's but for the axis, which has a scale for each block.
absl::Status CheckBlocks(const ShapeContext& context, int64_t axis, int64_t block) {
  const Shape& x = *context.input_shape(0);
  const Shape& scale = *context.input_shape(1);
  Shape expected = x;
  Dim& blocks = expected[static_cast<int>(axis)];
  const std::optional<int64_t> length = blocks.constant();
  blocks = length ? Dim(*length / block + (*length % block != 0)) : Dim::Unknown();
  if (MayAgree(scale, expected)) return absl::OkStatus();
  return context.InputError(1, StrCat("shape ", scale.ToString(), " does not fit ", x.ToString(),
                                      " in blocks of ", block, " along axis ", axis));
}

// Shapes of scale and zero point against the input.
absl::Status CheckParameters(const ShapeContext& context) {
  const Shape* x = context.input_shape(0);
  const Shape* scale = context.input_shape(1);
  PF_ASSIGN_OR_RETURN(int64_t axis, context.node().IntAttribute("axis", 1));
  PF_ASSIGN_OR_RETURN(const int64_t block, context.node().IntAttribute("block_size", 0));
  if (block < 0)
    return context.AttributeError("block_size", StrCat("expected 0 or more, got ", block));
  if (x == nullptr || scale == nullptr) return absl::OkStatus();
  const Shape* zero_point = context.input_shape(2);
  const bool same = zero_point == nullptr || MayAgree(*zero_point, *scale);
  const auto count = [](const Shape& shape) {
    const auto dims = shape.constant();
    return dims ? ElementCount(*dims) : std::nullopt;
  };
  // A scalar and a vector of one element are taken for the same.
  if (!same && !(count(*scale) == 1 && count(*zero_point) == 1)) {
    return context.InputError(2, StrCat("expected the shape of the scale, ", scale->ToString(),
                                        ", got ", zero_point->ToString()));
  }
  if (count(*scale) == 1) return absl::OkStatus();
  if (axis < -x->rank() || axis >= x->rank()) {
    return context.AttributeError("axis", StrCat(axis, " is out of range for rank ", x->rank()));
  }
  if (axis < 0) axis += x->rank();
  if (block > 0) return CheckBlocks(context, axis, block);
  if (scale->rank() != 1 || Differ((*scale)[0], (*x)[static_cast<int>(axis)])) {
    return context.InputError(1, StrCat("expected one scale, or one for each index of axis ", axis,
                                        " of ", x->ToString(), ", got shape ", scale->ToString()));
  }
  return absl::OkStatus();
}

absl::StatusOr<DataType> OutputType(const ShapeContext& context, DataType otherwise) {
  PF_ASSIGN_OR_RETURN(const int64_t code, context.node().IntAttribute("output_dtype", 0));
  if (code == 0) return otherwise;
  const std::optional<DataType> type = code > 0 && code <= kLastDataType
                                           ? DataTypeFromCode(static_cast<int32_t>(code))
                                           : std::nullopt;
  if (!type) return context.AttributeError("output_dtype", StrCat("unknown type ", code));
  return *type;
}

absl::Status InferQuantize(ShapeContext& context) {
  PF_RETURN_IF_ERROR(CheckParameters(context));
  const bool has_zero_point = context.has_input(2);
  const DataType otherwise = has_zero_point ? context.input_type(2) : DataType::kUint8;
  PF_ASSIGN_OR_RETURN(const DataType type, OutputType(context, otherwise));
  if (has_zero_point && type != otherwise) {
    return context.AttributeError("output_dtype", "differs from the type of y_zero_point");
  }
  if (std::ranges::find(kNarrow, type) == kNarrow.end() || type == DataType::kInt32) {
    return context.AttributeError("output_dtype",
                                  StrCat(DataTypeName(type), " is no type to quantise to"));
  }
  const Shape* x = context.input_shape(0);
  context.SetOutput(0, type, CopyOf(x));
  return absl::OkStatus();
}

absl::Status InferDequantize(ShapeContext& context) {
  PF_RETURN_IF_ERROR(CheckParameters(context));
  const DataType scale = context.input_type(1);
  PF_ASSIGN_OR_RETURN(
      const DataType type,
      OutputType(context, scale == DataType::kFloat8E8M0 ? DataType::kFloat : scale));
  const Shape* x = context.input_shape(0);
  context.SetOutput(0, type, CopyOf(x));
  return absl::OkStatus();
}

// Elements that are converted at once; even, so that packed elements start at bytes.
constexpr int64_t kChunk = 1024;

// Writes f(x, scale, zero point) of each element, the types that are not float by way of it.
template <typename F>
absl::Status MapFloats(const KernelArgs& args, const Quantization& q, bool saturate, const F& f) {
  const TensorArg& x = args.input(0);
  const TensorArg& y = args.output(0);
  PF_RETURN_IF_ERROR(DecodeToFloat(x.dtype, x.data, 0, nullptr));
  PF_RETURN_IF_ERROR(EncodeFromFloat(y.dtype, nullptr, 0, y.data));
  const int64_t chunks = (x.size() + kChunk - 1) / kChunk;
  ParallelFor(chunks, kChunk, [&](int64_t begin, int64_t end) {
    std::array<float, kChunk> values;
    for (int64_t start = begin * kChunk; start < std::min(end * kChunk, x.size());
         start += kChunk) {
      const int64_t count = std::min(kChunk, x.size() - start);
      // The types were tried above.
      DecodeToFloat(x.dtype, ElementAt(x, start), count, values.data()).IgnoreError();
      q.ForEachRun(start, start + count, [&](int64_t at, int64_t n, int64_t k, int64_t stride) {
        float* run = values.data() + (at - start);
        for (int64_t i = 0; i < n; ++i, k += stride)
          run[i] = f(run[i], q.scales[k], q.zero_points[k]);
      });
      EncodeFromFloat(y.dtype, values.data(), count, ElementAt(y, start), saturate).IgnoreError();
    }
  });
  return absl::OkStatus();
}

// A quotient in the type that the division is done in.
float InPrecision(float quotient, DataType precision) {
  if (precision == DataType::kFloat16) return static_cast<float>(Float16(quotient));
  if (precision == DataType::kBfloat16) return static_cast<float>(Bfloat16(quotient));
  return quotient;
}

absl::Status RunQuantize(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(Quantization q, QuantizationOf(args));
  // A zero point of 0, or none, leaves floats as they are: x + -0 is x, and so is -0 + -0.
  std::replace(q.zero_points.begin(), q.zero_points.end(), 0.0f, -0.0f);
  PF_ASSIGN_OR_RETURN(const int64_t saturate, args.node->IntAttribute("saturate", 1));
  PF_ASSIGN_OR_RETURN(const int64_t code, args.node->IntAttribute("precision", 0));
  const DataType precision = code != 0 ? static_cast<DataType>(code) : args.input(1).dtype;
  const bool rounds = IsInteger(args.output(0).dtype);
  return MapFloats(args, q, saturate != 0, [&](float x, float scale, float zero_point) {
    const float quotient = InPrecision(x / scale, precision);
    return (rounds ? std::nearbyint(quotient) : quotient) + zero_point;
  });
}

// Floats to bytes in one pass, where the division is one of floats.
absl::Status RunQuantizeHwy(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t code, args.node->IntAttribute("precision", 0));
  const DataType precision = code != 0 ? static_cast<DataType>(code) : args.input(1).dtype;
  const TensorArg& y = args.output(0);
  const bool bytes = y.dtype == DataType::kInt8 || y.dtype == DataType::kUint8;
  if (!bytes || precision != DataType::kFloat) return RunQuantize(args);
  PF_ASSIGN_OR_RETURN(const Quantization q, QuantizationOf(args));
  ParallelFor(args.input(0).size(), 8, [&](int64_t begin, int64_t end) {
    q.ForEachRun(begin, end, [&](int64_t position, int64_t n, int64_t k, int64_t stride) {
      QuantizeRow(args.input(0).as<float>() + position, n,
                  {q.scales.data() + k, q.zero_points.data() + k, stride},
                  y.dtype == DataType::kInt8, y.as<uint8_t>() + position);
    });
  });
  return absl::OkStatus();
}

absl::Status RunDequantize(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Quantization q, QuantizationOf(args));
  return MapFloats(args, q, /*saturate=*/true,
                   [](float x, float scale, float zero_point) { return (x - zero_point) * scale; });
}

absl::Status InferDynamic(ShapeContext& context) {
  const Shape* x = context.input_shape(0);
  context.SetOutput(0, DataType::kUint8, CopyOf(x));
  if (context.has_output(1)) context.SetOutput(1, DataType::kFloat, Shape());
  if (context.has_output(2)) context.SetOutput(2, DataType::kUint8, Shape());
  return absl::OkStatus();
}

// The least and the largest element, 0 among them.
std::pair<float, float> RangeOf(const float* x, int64_t count) {
  constexpr int64_t kPart = 1 << 14;
  const int64_t parts = (count + kPart - 1) / kPart;
  std::vector<float> low(static_cast<size_t>(parts)), high(low);
  ParallelFor(parts, 4 * kPart, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = std::min(kPart, count - i * kPart);
      low[i] = MinOfRow(x + i * kPart, n);
      high[i] = MaxOfRow(x + i * kPart, n);
    }
  });
  return {std::min(0.0f, MinOfRow(low.data(), parts)),
          std::max(0.0f, MaxOfRow(high.data(), parts))};
}

absl::Status RunDynamic(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const int64_t count = x.size();
  const auto [low, high] = RangeOf(x.as<float>(), count);
  // All zeros have no range; any scale represents them.
  const float scale = high > low ? (high - low) / 255.0f : 1.0f;
  const float zero_point = std::nearbyint(std::clamp(-low / scale, 0.0f, 255.0f));
  uint8_t* y = args.output(0).as<uint8_t>();
  ParallelFor(count, 8, [&](int64_t begin, int64_t end) {
    QuantizeRow(x.as<float>() + begin, end - begin, {&scale, &zero_point, 0}, /*is_signed=*/false,
                y + begin);
  });
  if (args.output(1).present()) *args.output(1).as<float>() = scale;
  if (args.output(2).present()) *args.output(2).as<uint8_t>() = static_cast<uint8_t>(zero_point);
  return absl::OkStatus();
}

}  // namespace

OpDef QuantizeLinearDef() { return QuantizeLinearOf("", 10); }
OpDef DequantizeLinearDef() { return DequantizeLinearOf("", 10); }

OpDef QuantizeLinearOf(std::string_view domain, int since) {
  return OpDef(domain, "QuantizeLinear", since)
      .Doc(
          "saturate(round(x / y_scale) + y_zero_point), halves to even; floats are rounded by "
          "their type.")
      .Input("x", "T1", "[...]")
      .Input("y_scale", "T2", "[], [dim of axis], or as x with ceil(dim / block_size) along axis")
      .Input("y_zero_point", "T3", "as y_scale", PortKind::kOptional)
      .Output("y", "T3", "as x")
      .Attr("axis", int64_t{1}, "axis of the scales")
      .Attr("block_size", int64_t{0}, "elements of the axis that share a scale, 0: not blocked")
      .Attr("output_dtype", int64_t{0}, "type of y where there is no zero point; uint8 if 0")
      .Attr("precision", int64_t{0}, "type of the division, 0: that of y_scale")
      .FlagAttr("saturate", int64_t{1},
                "8-bit floats: 1 to the largest number, 0 to infinity or NaN")
      .Types("T1", kWide)
      .Types("T2", kScales)
      .Types("T3", kNarrow)
      .InferShapes(InferQuantize)
      .AddKernel({.name = "reference", .run = RunQuantize})
      .AddKernel(
          {.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = RunQuantizeHwy});
}

OpDef DequantizeLinearOf(std::string_view domain, int since) {
  return OpDef(domain, "DequantizeLinear", since)
      .Doc("(x - x_zero_point) * x_scale.")
      .Input("x", "T1", "[...]")
      .Input("x_scale", "T2", "[], [dim of axis], or as x with ceil(dim / block_size) along axis")
      .Input("x_zero_point", "T1", "as x_scale", PortKind::kOptional)
      .Output("y", "T3", "as x")
      .Attr("axis", int64_t{1}, "axis of the scales")
      .Attr("block_size", int64_t{0}, "elements of the axis that share a scale, 0: not blocked")
      .Attr("output_dtype", int64_t{0}, "type of y, 0: that of x_scale")
      .Types("T1", kNarrow)
      .Types("T2", kScales)
      .Types("T3", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16})
      .InferShapes(InferDequantize)
      .AddKernel({.name = "reference", .run = RunDequantize});
}

OpDef DynamicQuantizeLinearDef() {
  return OpDef("", "DynamicQuantizeLinear", 11)
      .Doc("Quantises to uint8 with the scale and zero point of the data's range, 0 included.")
      .Input("x", "float", "[...]")
      .Output("y", "uint8", "as x")
      .Output("y_scale", "float", "[]")
      .Output("y_zero_point", "uint8", "[]")
      .InferShapes(InferDynamic)
      .AddKernel({.name = "reference", .run = RunDynamic});
}

}  // namespace pagefuse::onnx_ops
