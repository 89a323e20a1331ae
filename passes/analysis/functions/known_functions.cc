// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/functions/known_functions.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

Value* Cast(GraphBuilder& builder, Value* x, DataType to) { return builder.Cast(x, to); }
Value* BitCast(GraphBuilder& builder, Value* x, DataType to) {
  return builder.Add("BitCast", {x}, {{"to", to}});
}

Value* WriteE4m3(GraphBuilder& builder, Value* x) {
  return Cast(builder, x, DataType::kFloat8E4M3FN);
}
Value* WriteE4m3Codes(GraphBuilder& builder, Value* x) {
  return BitCast(builder, WriteE4m3(builder, x), DataType::kUint8);
}
Value* WriteE4m3Values(GraphBuilder& builder, Value* x) {
  return Cast(builder, BitCast(builder, x, DataType::kFloat8E4M3FN), DataType::kFloat);
}

// `type`: that of x.
Value* ClippedToInt8(GraphBuilder& builder, Value* x, DataType type) {
  Value* clipped = builder.Add("Clip", {x, builder.Float(-128, type), builder.Float(127, type)});
  return Cast(builder, clipped, DataType::kInt8);
}
Value* WriteInt8(GraphBuilder& builder, Value* x) { return ClippedToInt8(builder, x, x->dtype()); }
Value* WriteRoundedInt8(GraphBuilder& builder, Value* x) {
  return ClippedToInt8(builder, builder.Add("Round", {x}), x->dtype());
}

// The floats that the finite codes of an 8-bit type stand for, ascending.
std::vector<float> ValuesOf(DataType type) {
  std::vector<float> values;
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    float value = 0;
    if (DecodeToFloat(type, &byte, 1, &value).ok() && std::isfinite(value)) {
      values.push_back(value);
    }
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// The values of the codes, the borders halfway between them, their neighbours, and points between.
std::vector<float> PointsAround(const std::vector<float>& values) {
  std::vector<float> points;
  const auto add = [&](float point) {
    if (point == 0) point = 0.0f;  // not -0
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    points.insert(points.end(),
                  {point, std::nextafterf(point, kInfinity), std::nextafterf(point, -kInfinity)});
  };
  for (size_t i = 0; i < values.size(); ++i) {
    add(values[i]);
    if (i + 1 == values.size()) break;
    const float step = values[i + 1] - values[i];
    add(values[i] + step / 2);
    for (float part : {0.1f, 0.3f, 0.7f, 0.9f}) points.push_back(values[i] + step * part);
  }
  return points;
}

Tensor Floats(std::vector<float> points) {
  // A number that rounds to zero has a sign that formats may lose.
  const auto tiny = [](float x) { return x < 0 && x > -1e-30f; };
  points.erase(std::remove_if(points.begin(), points.end(), tiny), points.end());
  const auto size = static_cast<int64_t>(points.size());
  return Tensor::Of<float>({size}, points);
}

// Numbers that round to a zero code get no code with a sign.
Tensor E4m3Points() {
  std::vector<float> points = PointsAround(ValuesOf(DataType::kFloat8E4M3FN));
  constexpr float kHalfSmallest = 0.0009765625f;  // halfway to the smallest code, 2^-9
  const auto unsigned_zero = [](float x) { return x < 0 && x >= -kHalfSmallest; };
  points.erase(std::remove_if(points.begin(), points.end(), unsigned_zero), points.end());
  for (float large : {449.0f, 463.9f, 464.0f, 480.0f, 1000.0f, 1e10f, 3e38f}) {
    points.insert(points.end(), {large, -large});
  }
  return Floats(std::move(points));
}

// Beyond both ends, too: codes that end at -127 are others.
Tensor Int8Points() {
  std::vector<float> values;
  for (int code = -129; code <= 129; ++code) values.push_back(static_cast<float>(code));
  for (float large : {200.0f, 255.0f, 256.0f, 1000.0f, 1e10f}) {
    values.insert(values.end(), {large, -large});
  }
  std::sort(values.begin(), values.end());
  return Floats(PointsAround(values));
}

// Every code of a finite number.
Tensor E4m3Codes() {
  std::vector<uint8_t> codes;
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) != 0x7F && code != 0x80) codes.push_back(static_cast<uint8_t>(code));
  }
  const auto size = static_cast<int64_t>(codes.size());
  return Tensor::Of<uint8_t>({size}, codes);
}

KnownFunction Make(std::string name, DataType to, Value* (*write)(GraphBuilder&, Value*),
                   Tensor points) {
  KnownFunction function;
  function.name = std::move(name);
  function.from = points.dtype();
  function.to = to;
  function.write = write;
  Model model;
  model.opset_imports = {{"", kNewestOpset}};
  model.graph = std::make_shared<Graph>();
  Value* x = model.graph->AddInput("x", points.dtype(), Shape::FromInts(points.dims()));
  GraphBuilder builder(*model.graph, nullptr, "y");
  model.graph->AddOutput(write(builder, x));
  for (const auto& node : model.graph->nodes()) function.written.push_back(node->op_type());
  auto values = EvaluateModel(model, {{"x", points}});
  if (values.ok()) function.values = (*values)[0];
  function.points = std::move(points);
  return function;
}

std::vector<KnownFunction> MakeAll() {
  std::vector<KnownFunction> all;
  all.push_back(Make("e4m3 codes", DataType::kUint8, WriteE4m3Codes, E4m3Points()));
  all.push_back(Make("e4m3", DataType::kFloat8E4M3FN, WriteE4m3, E4m3Points()));
  all.push_back(Make("rounded int8", DataType::kInt8, WriteRoundedInt8, Int8Points()));
  all.push_back(Make("truncated int8", DataType::kInt8, WriteInt8, Int8Points()));
  all.push_back(Make("e4m3 values", DataType::kFloat, WriteE4m3Values, E4m3Codes()));
  return all;
}

std::vector<double> AsDoubles(const Tensor& tensor) {
  std::vector<double> numbers(tensor.size());
  if (!DecodeToDouble(tensor.dtype(), tensor.data(), tensor.size(), numbers.data()).ok()) {
    numbers.clear();
  }
  return numbers;
}

}  // namespace

const std::vector<KnownFunction>& KnownFunctions() {
  static const auto& all = *new std::vector<KnownFunction>(MakeAll());
  return all;
}

absl::Status CompareAtPoints(const KnownFunction& function, const Tensor& values) {
  const std::vector<double> points = AsDoubles(function.points);
  const std::vector<double> expected = AsDoubles(function.values);
  const std::vector<double> found = AsDoubles(values);
  if (found.size() != expected.size()) {
    return MatchFailure("it gives ", found.size(), " numbers, \"", function.name, "\" ",
                        expected.size());
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;
    return MatchFailure("at ", points[i], " it gives ", found[i], ", \"", function.name, "\" ",
                        expected[i]);
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
