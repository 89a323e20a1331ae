// SPDX-License-Identifier: Apache-2.0
// Single nodes of domains ai.onnx and com.microsoft that multiply: quantised products, windows,
// attention; and the conversions around them.
#include <functional>
#include <numeric>
#include <utility>

#include "standard_cases.h"

namespace pagefuse {
namespace {

using enum DataType;

constexpr int64_t kTokens = 512, kHidden = 1152, kWide = 2304;

std::string Text(int64_t number) { return std::to_string(number); }

// `first`, then `rest`.
std::vector<Part> Joined(std::vector<Part> first, const std::vector<Part>& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

void AddQuantisation(StandardCases& cases) {
  // Behind x, scales and zero points of these dims.
  const auto add = [&](const char* name, const char* size, Part x, DataType type, const Dims& dims,
                       const std::vector<Part>& attributes) {
    const int64_t count =
        std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
    const std::string op(name);
    cases.Add(name, size, op.substr(0, op.find('_')),
              Joined({std::move(x), Floats(dims, std::vector<float>(count, 0.02f)),
                      Uniform(type, dims, 0, 5)},
                     attributes));
  };
  const char* matrix = "2304 x 1152";
  const Part codes = Uniform(kInt8, {kWide, kHidden}, -128, 128);
  add("QuantizeLinear", "512 x 2304", Normal(kFloat, {kTokens, kWide}), kUint8, {}, {});
  add("QuantizeLinear_axis", matrix, Normal(kFloat, {kWide, kHidden}), kInt8, {kHidden}, {});
  add("DequantizeLinear", "512 x 2304", Uniform(kUint8, {kTokens, kWide}, 0, 256), kUint8, {}, {});
  add("DequantizeLinear_rows", matrix, codes, kInt8, {kWide}, {Attr("axis", 0)});
  add("DequantizeLinear_blocks", matrix, codes, kInt8, {kWide, kHidden / 32},
      {Attr("block_size", 32)});
  for (const int64_t tokens : {int64_t{1}, kTokens}) {
    cases.Add("DynamicQuantizeLinear_" + Text(tokens), Text(tokens) + " x 2304",
              "DynamicQuantizeLinear", {Normal(kFloat, {tokens, kWide}), Outputs(3)});
  }
}

// A scale and a zero point.
std::vector<Part> Parameters(DataType type, float scale, int64_t zero) {
  return {Const(Floats({}, {scale})), Const(Uniform(type, {}, zero, zero + 1))};
}

void AddIntegerProducts(StandardCases& cases) {
  for (const int64_t tokens : {int64_t{1}, kTokens}) {
    const std::string rows = Text(tokens), size = rows + " x 1152 x 2304";
    const Part x = Normal(kFloat, {tokens, kHidden});
    const Part codes = Uniform(kUint8, {tokens, kHidden}, 0, 256);
    for (const DataType weight : {kInt8, kUint8}) {
      cases.Add((weight == kInt8 ? "MatMulInteger_s8_" : "MatMulInteger_u8_") + rows, size,
                "MatMulInteger",
                {codes, Const(Uniform(weight, {kHidden, kWide}, 0, 128)),
                 Uniform(kUint8, {}, 100, 101), Const(Uniform(weight, {}, 3, 4))});
    }
    std::vector<Part> parts = Joined({codes}, Parameters(kUint8, 0.02f, 3));
    parts.push_back(Const(Uniform(kInt8, {kHidden, kWide}, -128, 128)));
    parts = Joined(std::move(parts), Parameters(kInt8, 0.02f, 3));
    cases.Add("QLinearMatMul_" + rows, size, "QLinearMatMul",
              Joined(std::move(parts), Parameters(kUint8, 0.5f, 3)));
    for (const int64_t bits : {4, 8}) {
      cases.Add("MatMulNBits" + Text(bits) + "_" + rows, size, "com.microsoft.MatMulNBits",
                {x, Const(Uniform(kUint8, {kWide, kHidden / 32, 4 * bits}, 0, 256)),
                 Const(Normal(kFloat, {kWide, kHidden / 32})), Attr("K", kHidden), Attr("N", kWide),
                 Attr("bits", bits), Attr("block_size", 32)});
    }
    cases.Add("MatMul_" + rows, size, "MatMul", {x, Const(Normal(kFloat, {kHidden, kWide}))});
  }
  cases.Add("MatMul_scores", "16 x 512 x 72 x 512", "MatMul",
            {Normal(kFloat, {1, 16, kTokens, 72}), Normal(kFloat, {1, 16, 72, kTokens})});
}

// The attributes of a window of `kernel` x `kernel`.
Part Window(int64_t kernel, int64_t stride, int64_t pad) {
  return [=](OpCall& call) {
    call.Attribute("kernel_shape", std::vector<int64_t>{kernel, kernel});
    call.Attribute("strides", std::vector<int64_t>{stride, stride});
    call.Attribute("pads", std::vector<int64_t>(4, pad));
  };
}

struct ConvSize {
  int64_t channels, side, outputs, kernel, stride, pad, group;
};

void AddConv(StandardCases& cases, const char* name, const ConvSize& s) {
  cases.Add(name, Text(s.channels) + " x " + Text(s.side) + "^2 to " + Text(s.outputs), "Conv",
            {Normal(kFloat, {1, s.channels, s.side, s.side}),
             Const(Normal(kFloat, {s.outputs, s.channels / s.group, s.kernel, s.kernel})),
             Const(Normal(kFloat, {s.outputs})), Window(s.kernel, s.stride, s.pad),
             Attr("group", s.group)});
}

void AddWindows(StandardCases& cases) {
  AddConv(cases, "Conv_patches", {3, 896, 1152, 14, 14, 0, 1});
  AddConv(cases, "Conv_3x3", {64, 56, 64, 3, 1, 1, 1});
  AddConv(cases, "Conv_1x1", {256, 28, 512, 1, 1, 0, 1});
  AddConv(cases, "Conv_depthwise", {256, 56, 256, 3, 1, 1, 256});
  for (const char* op : {"AveragePool", "LpPool"}) {
    cases.Add(op + std::string("_4x4"), "1152 x 64 x 64", op,
              {Normal(kFloat, {1, kHidden, 64, 64}), Window(4, 4, 0)});
  }
  const char* channels = "256 x 64 x 64";
  const Part image = Normal(kFloat, {1, 256, 64, 64});
  cases.Add("AveragePool_3x3", channels, "AveragePool", {image, Window(3, 1, 1)});
  for (const int outputs : {1, 2}) {
    cases.Add(outputs == 1 ? "MaxPool" : "MaxPool_indices", "64 x 112 x 112", "MaxPool",
              {Normal(kFloat, {1, 64, 112, 112}), Window(3, 2, 1), Outputs(outputs)});
  }
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool"}) {
    cases.Add(op, channels, op, {image});
  }
  const Part codes = Uniform(kUint8, {1, 64, 56, 56}, 0, 256);
  cases.Add("ConvInteger", "64 x 56^2 to 64", "ConvInteger",
            {codes, Const(Uniform(kUint8, {64, 64, 3, 3}, 0, 256)), Uniform(kUint8, {}, 128, 129),
             Window(3, 1, 1)});
  std::vector<Part> parts = Joined({codes}, Parameters(kUint8, 0.02f, 0));
  parts.push_back(Const(Uniform(kInt8, {64, 64, 3, 3}, -128, 128)));
  parts =
      Joined(Joined(std::move(parts), Parameters(kInt8, 0.02f, 0)), Parameters(kUint8, 0.5f, 0));
  cases.Add("QLinearConv", "64 x 56^2 to 64", "QLinearConv",
            Joined(std::move(parts), {Window(3, 1, 1)}));
}

void AddAttention(StandardCases& cases) {
  const Part heads = Normal(kFloat, {1, 8, kTokens, 128});
  cases.Add("Attention", "512 tokens, 8 x 128", "Attention",
            {heads, heads, heads, Attr("is_causal", 1)});
  // New tokens at the end of a cache that is as long as the sequence.
  for (const int64_t tokens : {int64_t{1}, kTokens}) {
    constexpr int32_t kTotal = 1024;
    const Part rows = Normal(kFloat, {1, tokens, 4 * 256});
    const Part past = Normal(kFloat, {1, 4, kTotal - tokens, 256});
    cases.Add(
        "GroupQueryAttention_" + Text(tokens), Text(tokens) + " of 1024, 8 and 4 x 256",
        "com.microsoft.GroupQueryAttention",
        {Normal(kFloat, {1, tokens, 8 * 256}), rows, rows, past, past, Ints({1}, {kTotal - 1}),
         Ints({}, {kTotal}), Attr("num_heads", 8), Attr("kv_num_heads", 4), Outputs(3)});
  }
  for (const int64_t tokens : {1, 64}) {
    const Part weights = Const(Uniform(kUint8, {8, kHidden, kHidden / 2}, 0, 256));
    const Part scales = Const(Normal(kFloat, {8, kHidden}, 0.01f));
    cases.Add(
        "QMoE_" + Text(tokens), Text(tokens) + " x 1152, 2 of 8 x 1152", "com.microsoft.QMoE",
        {Normal(kFloat, {tokens, kHidden}), Normal(kFloat, {tokens, 8}), weights, scales, Omitted(),
         weights, scales, Omitted(), Attr("k", 2), Attr("activation_type", "silu")});
  }
}

}  // namespace

void AddProductCases(StandardCases& cases) {
  AddQuantisation(cases);
  AddIntegerProducts(cases);
  AddWindows(cases);
  AddAttention(cases);
}

void StandardCases::Add(std::string name, std::string size, std::string op,
                        std::vector<Part> parts) {
  constexpr int64_t kOpset = 26;
  const size_t dot = op.rfind('.');
  const std::string domain = dot == std::string::npos ? "" : op.substr(0, dot);
  const std::string type = dot == std::string::npos ? op : op.substr(dot + 1);
  cases_.push_back({"std_" + name, std::move(size), [domain, type, parts = std::move(parts)] {
                      auto call =
                          std::make_unique<OpCall>(domain, type, domain.empty() ? kOpset : 1);
                      for (const Part& part : parts) part(*call);
                      return call;
                    }});
}

std::vector<OpPeerCase> StandardOpPeerCases() {
  StandardCases cases;
  AddElementCases(cases);
  AddMovementCases(cases);
  AddProductCases(cases);
  return cases.cases();
}

}  // namespace pagefuse
