// Single nodes of domains ai.onnx and com.microsoft that multiply: quantised products, windows,
// attention; and the conversions around them.
#include <algorithm>

#include "standard_cases.h"

namespace pagefuse {
namespace {

using enum DataType;

constexpr int64_t kTokens = 512, kHidden = 1152, kWide = 2304;

std::string Rows(int64_t tokens) { return std::to_string(tokens); }

void AddQuantisation(StandardCases& cases) {
  const auto quantised = [](OpCall& call, DataType type, std::vector<int64_t> parameters) {
    int64_t count = 1;
    for (int64_t dim : parameters) count *= dim;
    call.Floats(parameters, std::vector<float>(count, 0.02f));
    call.Uniform(type, parameters, 0, 5);
  };
  cases.Add("QuantizeLinear", "512 x 2304", "QuantizeLinear", [quantised](OpCall& call) {
    call.Normal(kFloat, {kTokens, kWide});
    quantised(call, kUint8, {});
  });
  cases.Add("QuantizeLinear_axis", "2304 x 1152", "QuantizeLinear", [quantised](OpCall& call) {
    call.Normal(kFloat, {kWide, kHidden});
    quantised(call, kInt8, {kHidden});
  });
  cases.Add("DequantizeLinear", "512 x 2304", "DequantizeLinear", [quantised](OpCall& call) {
    call.Uniform(kUint8, {kTokens, kWide}, 0, 256);
    quantised(call, kUint8, {});
  });
  cases.Add("DequantizeLinear_rows", "2304 x 1152", "DequantizeLinear", [quantised](OpCall& call) {
    call.Uniform(kInt8, {kWide, kHidden}, -128, 128);
    quantised(call, kInt8, {kWide});
    call.Attribute("axis", int64_t{0});
  });
  cases.Add("DequantizeLinear_blocks", "2304 x 1152", "DequantizeLinear",
            [quantised](OpCall& call) {
              call.Uniform(kInt8, {kWide, kHidden}, -128, 128);
              quantised(call, kInt8, {kWide, kHidden / 32});
              call.Attribute("block_size", int64_t{32});
            });
  for (const int64_t tokens : {int64_t{1}, kTokens}) {
    cases.Add("DynamicQuantizeLinear_" + Rows(tokens), Rows(tokens) + " x 2304",
              "DynamicQuantizeLinear", [tokens](OpCall& call) {
                call.Normal(kFloat, {tokens, kWide});
                call.set_num_outputs(3);
              });
  }
}

void AddIntegerProducts(StandardCases& cases) {
  for (const int64_t tokens : {int64_t{1}, kTokens}) {
    const std::string size = Rows(tokens) + " x 1152 x 2304";
    for (const DataType weight : {kInt8, kUint8}) {
      const std::string name = weight == kInt8 ? "_s8_" : "_u8_";
      cases.Add("MatMulInteger" + name + Rows(tokens), size, "MatMulInteger",
                [tokens, weight](OpCall& call) {
                  call.Uniform(kUint8, {tokens, kHidden}, 0, 256);
                  call.Uniform(weight, {kHidden, kWide}, 0, 128);
                  call.Constant();
                  call.Uniform(kUint8, {}, 100, 101);
                  call.Uniform(weight, {}, 3, 4);
                  call.Constant();
                });
    }
    cases.Add("QLinearMatMul_" + Rows(tokens), size, "QLinearMatMul", [tokens](OpCall& call) {
      const auto parameters = [&](DataType type, float scale) {
        call.Floats({}, {scale});
        call.Constant();
        call.Uniform(type, {}, 3, 4);
        call.Constant();
      };
      call.Uniform(kUint8, {tokens, kHidden}, 0, 256);
      parameters(kUint8, 0.02f);
      call.Uniform(kInt8, {kHidden, kWide}, -128, 128);
      call.Constant();
      parameters(kInt8, 0.02f);
      parameters(kUint8, 0.5f);
    });
    for (const int64_t bits : {int64_t{4}, int64_t{8}}) {
      cases.Add("MatMulNBits" + std::to_string(bits) + "_" + Rows(tokens), size,
                "com.microsoft.MatMulNBits", [tokens, bits](OpCall& call) {
                  call.Normal(kFloat, {tokens, kHidden});
                  call.Uniform(kUint8, {kWide, kHidden / 32, 4 * bits}, 0, 256);
                  call.Constant();
                  call.Normal(kFloat, {kWide, kHidden / 32});
                  call.Constant();
                  call.Attribute("K", kHidden);
                  call.Attribute("N", kWide);
                  call.Attribute("bits", bits);
                  call.Attribute("block_size", int64_t{32});
                });
    }
    cases.Add("MatMul_" + Rows(tokens), size, "MatMul", [tokens](OpCall& call) {
      call.Normal(kFloat, {tokens, kHidden});
      call.Normal(kFloat, {kHidden, kWide});
      call.Constant();
    });
  }
  cases.Add("MatMul_scores", "16 x 512 x 72 x 512", "MatMul", [](OpCall& call) {
    call.Normal(kFloat, {1, 16, kTokens, 72});
    call.Normal(kFloat, {1, 16, 72, kTokens});
  });
}

struct ConvSize {
  int64_t channels, side, outputs, kernel, stride, pad, group;
};

void AddConv(StandardCases& cases, const char* name, const ConvSize& s) {
  cases.Add(name, Rows(s.channels) + " x " + Rows(s.side) + "^2 to " + Rows(s.outputs), "Conv",
            [s](OpCall& call) {
              call.Normal(kFloat, {1, s.channels, s.side, s.side});
              call.Normal(kFloat, {s.outputs, s.channels / s.group, s.kernel, s.kernel});
              call.Constant();
              call.Normal(kFloat, {s.outputs});
              call.Constant();
              call.Attribute("kernel_shape", std::vector<int64_t>{s.kernel, s.kernel});
              call.Attribute("strides", std::vector<int64_t>{s.stride, s.stride});
              call.Attribute("pads", std::vector<int64_t>(4, s.pad));
              call.Attribute("group", s.group);
            });
}

// Sets the attributes of a window of `kernel` x `kernel`.
void SquareWindow(OpCall& call, int64_t kernel, int64_t stride, int64_t pad) {
  call.Attribute("kernel_shape", std::vector<int64_t>{kernel, kernel});
  call.Attribute("strides", std::vector<int64_t>{stride, stride});
  call.Attribute("pads", std::vector<int64_t>(4, pad));
}

void AddWindows(StandardCases& cases) {
  AddConv(cases, "Conv_patches", {3, 896, 1152, 14, 14, 0, 1});
  AddConv(cases, "Conv_3x3", {64, 56, 64, 3, 1, 1, 1});
  AddConv(cases, "Conv_1x1", {256, 28, 512, 1, 1, 0, 1});
  AddConv(cases, "Conv_depthwise", {256, 56, 256, 3, 1, 1, 256});
  for (const char* op : {"AveragePool", "LpPool"}) {
    cases.Add(op + std::string("_4x4"), "1152 x 64 x 64", op, [](OpCall& call) {
      call.Normal(kFloat, {1, kHidden, 64, 64});
      SquareWindow(call, 4, 4, 0);
    });
  }
  cases.Add("AveragePool_3x3", "256 x 64 x 64", "AveragePool", [](OpCall& call) {
    call.Normal(kFloat, {1, 256, 64, 64});
    SquareWindow(call, 3, 1, 1);
  });
  for (const char* op : {"MaxPool", "MaxPool_indices"}) {
    cases.Add(op, "64 x 112 x 112", "MaxPool", [op = std::string(op)](OpCall& call) {
      call.Normal(kFloat, {1, 64, 112, 112});
      SquareWindow(call, 3, 2, 1);
      if (op != "MaxPool") call.set_num_outputs(2);
    });
  }
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool"}) {
    cases.Add(op, "256 x 64 x 64", op, [](OpCall& call) { call.Normal(kFloat, {1, 256, 64, 64}); });
  }
  cases.Add("ConvInteger", "64 x 56^2 to 64", "ConvInteger", [](OpCall& call) {
    call.Uniform(kUint8, {1, 64, 56, 56}, 0, 256);
    call.Uniform(kUint8, {64, 64, 3, 3}, 0, 256);
    call.Constant();
    call.Uniform(kUint8, {}, 128, 129);
    SquareWindow(call, 3, 1, 1);
  });
  cases.Add("QLinearConv", "64 x 56^2 to 64", "QLinearConv", [](OpCall& call) {
    const auto parameters = [&](DataType type, float scale) {
      call.Floats({}, {scale});
      call.Constant();
      call.Uniform(type, {}, 0, 1);
      call.Constant();
    };
    call.Uniform(kUint8, {1, 64, 56, 56}, 0, 256);
    parameters(kUint8, 0.02f);
    call.Uniform(kInt8, {64, 64, 3, 3}, -128, 128);
    call.Constant();
    parameters(kInt8, 0.02f);
    parameters(kUint8, 0.5f);
    SquareWindow(call, 3, 1, 1);
  });
}

void AddAttention(StandardCases& cases) {
  cases.Add("Attention", "512 tokens, 8 x 128", "Attention", [](OpCall& call) {
    for (int i = 0; i < 3; ++i) call.Normal(kFloat, {1, 8, kTokens, 128});
    call.Attribute("is_causal", int64_t{1});
  });
  // New tokens at the end of a cache that is as long as the sequence.
  for (const int64_t tokens : {int64_t{1}, kTokens}) {
    cases.Add("GroupQueryAttention_" + Rows(tokens), Rows(tokens) + " of 1024, 8 and 4 x 256",
              "com.microsoft.GroupQueryAttention", [tokens](OpCall& call) {
                constexpr int32_t kTotal = 1024;
                call.Normal(kFloat, {1, tokens, 8 * 256});
                for (int i = 0; i < 2; ++i) call.Normal(kFloat, {1, tokens, 4 * 256});
                for (int i = 0; i < 2; ++i) call.Normal(kFloat, {1, 4, kTotal - tokens, 256});
                call.Ints({1}, {kTotal - 1});
                call.Ints({}, {kTotal});
                call.Attribute("num_heads", int64_t{8});
                call.Attribute("kv_num_heads", int64_t{4});
                call.set_num_outputs(3);
              });
  }
  for (const int64_t tokens : {int64_t{1}, int64_t{64}}) {
    cases.Add("QMoE_" + Rows(tokens), Rows(tokens) + " x 1152, 2 of 8 x 1152", "com.microsoft.QMoE",
              [tokens](OpCall& call) {
                call.Normal(kFloat, {tokens, kHidden});
                call.Normal(kFloat, {tokens, 8});
                for (int i = 0; i < 2; ++i) {
                  call.Uniform(kUint8, {8, kHidden, kHidden / 2}, 0, 256);
                  call.Constant();
                  call.Normal(kFloat, {8, kHidden}, 0.01f);
                  call.Constant();
                  call.Omit();
                }
                call.Attribute("k", int64_t{2});
                call.Attribute("activation_type", std::string("silu"));
              });
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
                        std::function<void(OpCall&)> fill) {
  constexpr int64_t kOpset = 26;
  const size_t dot = op.rfind('.');
  const std::string domain = dot == std::string::npos ? "" : op.substr(0, dot);
  const std::string type = dot == std::string::npos ? op : op.substr(dot + 1);
  cases_.push_back({"std_" + name, std::move(size), [domain, type, fill = std::move(fill)] {
                      auto call =
                          std::make_unique<OpCall>(domain, type, domain.empty() ? kOpset : 1);
                      fill(*call);
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
