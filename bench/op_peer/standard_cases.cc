// SPDX-License-Identifier: Apache-2.0
// Single nodes of domains ai.onnx and com.microsoft at the sizes of decoders and vision towers:
// elementwise ops, reductions, order, norms and conversions.
#include "standard_cases.h"

#include <utility>

namespace pagefuse {
namespace {

using enum DataType;

constexpr int64_t kTokens = 512, kHidden = 1152, kWide = 2304, kVocabulary = 262144;
constexpr char kRows[] = "512 x 2304", kNarrowRows[] = "512 x 1152", kChannels[] = "256 x 64 x 64";

const Part kWideRows = Normal(kFloat, {kTokens, kWide});
const Part kNarrow = Normal(kFloat, {kTokens, kHidden});
const Part kRow = Normal(kFloat, {kWide});
const Part kImage = Normal(kFloat, {1, 256, 64, 64});
const Part kLogits = Normal(kFloat, {1, kVocabulary});

Part Bools(Dims dims) { return Uniform(kBool, std::move(dims), 0, 2); }
Part Axes(std::vector<int64_t> axes) { return Const(Longs(std::move(axes))); }

// Numbers above 0, for roots and logarithms.
Part Positive(const Dims& dims) {
  return [=](OpCall& call) {
    call.Normal(kFloat, dims, 0.25f);
    float* values = call.Last<float>();
    for (int64_t i = 0, n = call.input(call.num_inputs() - 1).size(); i < n; ++i) {
      values[i] = values[i] * values[i] + 0.5f;
    }
  };
}

void AddUnary(StandardCases& cases) {
  for (const char* op : {"Abs",   "Ceil", "Cos",         "Elu",       "Erf",   "Exp",
                         "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsNaN", "LeakyRelu",
                         "Mish",  "Neg",  "Reciprocal",  "Relu",      "Round", "Sigmoid",
                         "Sign",  "Sin",  "Softplus",    "Softsign",  "Tanh"}) {
    cases.Add(op, kRows, op, {kWideRows});
  }
  for (const char* op : {"Log", "Sqrt"}) cases.Add(op, kRows, op, {Positive({kTokens, kWide})});
  cases.Add("Gelu_tanh", kRows, "Gelu", {kWideRows, Attr("approximate", "tanh")});
  cases.Add("Clip", kRows, "Clip", {kWideRows, Floats({}, {-1}), Floats({}, {1})});
  for (const char* op : {"FastGelu", "QuickGelu"}) {
    cases.Add(op, kRows, std::string("com.microsoft.") + op, {kWideRows});
  }
  cases.Add("BiasGelu", kRows, "com.microsoft.BiasGelu", {kWideRows, kRow});
  cases.Add("Not", kRows, "Not", {Bools({kTokens, kWide})});
}

void AddBinary(StandardCases& cases) {
  for (const char* op : {"Add", "Div", "Max", "Mul", "Sub", "Greater", "Less", "Equal"}) {
    cases.Add(std::string(op) + "_row", kRows, op, {kWideRows, kRow});
  }
  cases.Add("Mul_same", kRows, "Mul", {kWideRows, kWideRows});
  cases.Add("Sub_column", kRows, "Sub", {kWideRows, Normal(kFloat, {kTokens, 1})});
  for (const auto& [name, exponent] :
       {std::pair{"Pow_2", 2.0f}, {"Pow_half", 0.5f}, {"Pow", 1.7f}}) {
    cases.Add(name, kRows, "Pow", {Positive({kTokens, kWide}), Floats({}, {exponent})});
  }
  for (const char* op : {"Add", "Mul", "LessOrEqual", "Equal"}) {
    cases.Add(std::string(op) + "_int64", "512 x 1 and 512", op,
              {Uniform(kInt64, {kTokens, 1}, 0, kTokens), Uniform(kInt64, {kTokens}, 0, kTokens)});
  }
  for (const char* op : {"And", "Or"}) {
    cases.Add(op, "2048 x 2048", op, {Bools({2048, 2048}), Bools({2048, 2048})});
  }
  cases.Add("Where_mask", "2048 x 2048", "Where",
            {Bools({2048, 2048}), Floats({}, {0}), Floats({}, {-1e30f})});
  cases.Add("Where", kRows, "Where", {Bools({kTokens, kWide}), kWideRows, kWideRows});
  cases.Add("Mod_int64", "512 x 512", "Mod",
            {Uniform(kInt64, {kTokens, kTokens}, 0, 1000), Scalar(7)});
}

void AddReductions(StandardCases& cases) {
  for (const char* op : {"ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
                         "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"}) {
    cases.Add(std::string(op) + "_last", kRows, op, {kWideRows, Axes({-1})});
  }
  for (const char* op : {"ReduceMax", "ReduceMean", "ReduceSum"}) {
    cases.Add(std::string(op) + "_first", kRows, op, {kWideRows, Axes({0})});
  }
  cases.Add("ReduceMean_middle", "16 x 256 x 1152", "ReduceMean",
            {Normal(kFloat, {16, 256, kHidden}), Axes({1})});
  cases.Add("ReduceMean_image", kChannels, "ReduceMean", {kImage, Axes({2, 3})});
  cases.Add("ReduceSum_int64", "512 x 512", "ReduceSum",
            {Uniform(kInt64, {kTokens, kTokens}, 0, 1000), Axes({1})});
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    cases.Add(std::string(op) + "_logits", "262144", op, {kLogits});
    cases.Add(std::string(op) + "_scores", "8 x 512 x 512", op,
              {Normal(kFloat, {8, kTokens, kTokens})});
    cases.Add(std::string(op) + "_first", kNarrowRows, op, {kNarrow, Attr("axis", 0)});
  }
}

void AddOrder(StandardCases& cases) {
  cases.Add("ArgMax_logits", "262144", "ArgMax", {kLogits, Attr("axis", -1)});
  cases.Add("ArgMax_last", kNarrowRows, "ArgMax", {kNarrow, Attr("axis", 1)});
  cases.Add("ArgMax_first", kNarrowRows, "ArgMax", {kNarrow, Attr("axis", 0)});
  cases.Add("TopK_logits", "64 of 262144", "TopK", {kLogits, Longs({64})});
  cases.Add("TopK_experts", "8 of 512 x 128", "TopK", {Normal(kFloat, {kTokens, 128}), Longs({8})});
  cases.Add("TopK_half", "1024 of 16 x 2304", "TopK", {Normal(kFloat, {16, kWide}), Longs({1024})});
  cases.Add("CumSum_last", kRows, "CumSum", {kWideRows, Const(Scalar(1))});
  cases.Add("CumSum_first", kRows, "CumSum", {kWideRows, Const(Scalar(0))});
}

void AddNorms(StandardCases& cases) {
  for (const int64_t tokens : {int64_t{1}, kTokens}) {
    const std::string rows = std::to_string(tokens), size = rows + " x 2304";
    const Part x = Normal(kFloat, {tokens, kWide}), batch = Normal(kFloat, {1, tokens, kWide});
    const std::string microsoft = "com.microsoft.";
    const auto add = [&](std::string domain, const char* op, std::vector<Part> parts) {
      cases.Add(op + ("_" + rows), size, domain + op, std::move(parts));
    };
    add("", "LayerNormalization", {x, kRow, kRow});
    add("", "RMSNormalization", {x, kRow});
    add(microsoft, "SkipLayerNormalization", {batch, batch, kRow, kRow});
    add(microsoft, "SkipSimplifiedLayerNormalization", {batch, batch, kRow});
  }
  const Part channel = Positive({256});
  cases.Add("GroupNormalization", kChannels, "GroupNormalization",
            {kImage, channel, channel, Attr("num_groups", 32)});
  cases.Add("InstanceNormalization", kChannels, "InstanceNormalization",
            {kImage, channel, channel});
  cases.Add("BatchNormalization", kChannels, "BatchNormalization",
            {kImage, channel, channel, channel, channel});
  cases.Add("LpNormalization", kRows, "LpNormalization", {kWideRows});
}

void AddCasts(StandardCases& cases) {
  for (const auto& [from, to] : {std::pair{kFloat, kFloat16},
                                 {kFloat16, kFloat},
                                 {kFloat, kBfloat16},
                                 {kBfloat16, kFloat},
                                 {kInt64, kFloat},
                                 {kFloat, kInt64},
                                 {kInt64, kInt32},
                                 {kInt32, kInt64},
                                 {kBool, kFloat},
                                 {kFloat, kBool},
                                 {kUint8, kFloat}}) {
    const Dims dims = {kTokens, kWide};
    cases.Add("Cast_" + std::string(DataTypeName(from)) + "_" + std::string(DataTypeName(to)),
              kRows, "Cast",
              {IsFloatingPoint(from) ? Normal(from, dims) : Uniform(from, dims, 0, 2),
               Attr("to", static_cast<int64_t>(to))});
  }
}

}  // namespace

void AddElementCases(StandardCases& cases) {
  AddUnary(cases);
  AddBinary(cases);
  AddReductions(cases);
  AddOrder(cases);
  AddNorms(cases);
  AddCasts(cases);
}

}  // namespace pagefuse
