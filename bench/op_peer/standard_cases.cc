// Single nodes of domains ai.onnx and com.microsoft at the sizes of decoders and vision towers:
// elementwise ops, reductions, order, norms and movement. The rest: standard_product_cases.cc.
#include "standard_cases.h"

#include <utility>

namespace pagefuse {
namespace {

using enum DataType;
using Dims = std::vector<int64_t>;

constexpr int64_t kTokens = 512, kHidden = 1152, kWide = 2304, kVocabulary = 262144;
constexpr char kRows[] = "512 x 2304";

void Wide(OpCall& call) { call.Normal(kFloat, {kTokens, kWide}); }
void Narrow(OpCall& call) { call.Normal(kFloat, {kTokens, kHidden}); }
void Row(OpCall& call) { call.Normal(kFloat, {kWide}); }
void Image(OpCall& call) { call.Normal(kFloat, {1, 256, 64, 64}); }
void Logits(OpCall& call) { call.Normal(kFloat, {1, kVocabulary}); }

// Numbers above 0, for roots and logarithms.
void Positive(OpCall& call, const Dims& dims) {
  call.Normal(kFloat, dims, 0.25f);
  float* values = call.Last<float>();
  for (int64_t i = 0, n = call.input(call.num_inputs() - 1).size(); i < n; ++i) {
    values[i] = values[i] * values[i] + 0.5f;
  }
}

void AddUnary(StandardCases& cases) {
  for (const char* op : {"Abs",   "Ceil", "Cos",         "Elu",       "Erf",   "Exp",
                         "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsNaN", "LeakyRelu",
                         "Mish",  "Neg",  "Reciprocal",  "Relu",      "Round", "Sigmoid",
                         "Sign",  "Sin",  "Softplus",    "Softsign",  "Tanh"}) {
    cases.Add(op, kRows, op, Wide);
  }
  for (const char* op : {"Log", "Sqrt"}) {
    cases.Add(op, kRows, op, [](OpCall& call) { Positive(call, {kTokens, kWide}); });
  }
  cases.Add("Gelu_tanh", kRows, "Gelu", [](OpCall& call) {
    Wide(call);
    call.Attribute("approximate", std::string("tanh"));
  });
  cases.Add("Clip", kRows, "Clip", [](OpCall& call) {
    Wide(call);
    call.Floats({}, {-1});
    call.Floats({}, {1});
  });
  for (const char* op : {"FastGelu", "QuickGelu"}) {
    cases.Add(op, kRows, std::string("com.microsoft.") + op, Wide);
  }
  cases.Add("BiasGelu", kRows, "com.microsoft.BiasGelu", [](OpCall& call) {
    Wide(call);
    Row(call);
  });
  cases.Add("Not", kRows, "Not", [](OpCall& call) { call.Uniform(kBool, {kTokens, kWide}, 0, 2); });
}

void AddBinary(StandardCases& cases) {
  for (const char* op : {"Add", "Div", "Max", "Mul", "Sub", "Greater", "Less", "Equal"}) {
    cases.Add(std::string(op) + "_row", kRows, op, [](OpCall& call) {
      Wide(call);
      Row(call);
    });
  }
  cases.Add("Mul_same", kRows, "Mul", [](OpCall& call) {
    Wide(call);
    Wide(call);
  });
  cases.Add("Sub_column", kRows, "Sub", [](OpCall& call) {
    Wide(call);
    call.Normal(kFloat, {kTokens, 1});
  });
  for (const auto& [name, exponent] :
       {std::pair{"Pow_2", 2.0f}, {"Pow_half", 0.5f}, {"Pow", 1.7f}}) {
    cases.Add(name, kRows, "Pow", [exponent = exponent](OpCall& call) {
      Positive(call, {kTokens, kWide});
      call.Floats({}, {exponent});
    });
  }
  for (const char* op : {"Add", "Mul", "LessOrEqual", "Equal"}) {
    cases.Add(std::string(op) + "_int64", "512 x 1 and 512", op, [](OpCall& call) {
      call.Uniform(kInt64, {kTokens, 1}, 0, kTokens);
      call.Uniform(kInt64, {kTokens}, 0, kTokens);
    });
  }
  for (const char* op : {"And", "Or"}) {
    cases.Add(op, "2048 x 2048", op, [](OpCall& call) {
      call.Uniform(kBool, {2048, 2048}, 0, 2);
      call.Uniform(kBool, {2048, 2048}, 0, 2);
    });
  }
  cases.Add("Where_mask", "2048 x 2048", "Where", [](OpCall& call) {
    call.Uniform(kBool, {2048, 2048}, 0, 2);
    call.Floats({}, {0});
    call.Floats({}, {-1e30f});
  });
  cases.Add("Where", kRows, "Where", [](OpCall& call) {
    call.Uniform(kBool, {kTokens, kWide}, 0, 2);
    Wide(call);
    Wide(call);
  });
  cases.Add("Mod_int64", "512 x 512", "Mod", [](OpCall& call) {
    call.Uniform(kInt64, {kTokens, kTokens}, 0, 1000);
    *call.Input<int64_t>(kInt64, {}) = 7;
  });
}

void AddReductions(StandardCases& cases) {
  for (const char* op : {"ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
                         "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"}) {
    cases.Add(std::string(op) + "_last", kRows, op, [](OpCall& call) {
      Wide(call);
      call.Longs({-1});
      call.Constant();
    });
  }
  for (const char* op : {"ReduceMax", "ReduceMean", "ReduceSum"}) {
    cases.Add(std::string(op) + "_first", kRows, op, [](OpCall& call) {
      Wide(call);
      call.Longs({0});
      call.Constant();
    });
  }
  cases.Add("ReduceMean_middle", "16 x 256 x 1152", "ReduceMean", [](OpCall& call) {
    call.Normal(kFloat, {16, 256, kHidden});
    call.Longs({1});
    call.Constant();
  });
  cases.Add("ReduceMean_image", "256 x 64 x 64", "ReduceMean", [](OpCall& call) {
    Image(call);
    call.Longs({2, 3});
    call.Constant();
  });
  cases.Add("ReduceSum_int64", "512 x 512", "ReduceSum", [](OpCall& call) {
    call.Uniform(kInt64, {kTokens, kTokens}, 0, 1000);
    call.Longs({1});
    call.Constant();
  });
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    cases.Add(std::string(op) + "_logits", "262144", op, Logits);
    cases.Add(std::string(op) + "_scores", "8 x 512 x 512", op, [](OpCall& call) {
      call.Normal(kFloat, {8, kTokens, kTokens});
    });
    cases.Add(std::string(op) + "_first", "512 x 1152", op, [](OpCall& call) {
      Narrow(call);
      call.Attribute("axis", int64_t{0});
    });
  }
}

void AddOrder(StandardCases& cases) {
  cases.Add("ArgMax_logits", "262144", "ArgMax", [](OpCall& call) {
    Logits(call);
    call.Attribute("axis", int64_t{-1});
  });
  for (const auto& [name, axis] : {std::pair{"ArgMax_last", 1}, {"ArgMax_first", 0}}) {
    cases.Add(name, "512 x 1152", "ArgMax", [axis = axis](OpCall& call) {
      Narrow(call);
      call.Attribute("axis", int64_t{axis});
    });
  }
  cases.Add("TopK_logits", "64 of 262144", "TopK", [](OpCall& call) {
    Logits(call);
    call.Longs({64});
  });
  cases.Add("TopK_experts", "8 of 512 x 128", "TopK", [](OpCall& call) {
    call.Normal(kFloat, {kTokens, 128});
    call.Longs({8});
  });
  cases.Add("TopK_half", "1024 of 16 x 2304", "TopK", [](OpCall& call) {
    call.Normal(kFloat, {16, kWide});
    call.Longs({1024});
  });
  cases.Add("CumSum_last", kRows, "CumSum", [](OpCall& call) {
    Wide(call);
    *call.Input<int64_t>(kInt64, {}) = 1;
    call.Constant();
  });
  cases.Add("CumSum_first", kRows, "CumSum", [](OpCall& call) {
    Wide(call);
    *call.Input<int64_t>(kInt64, {}) = 0;
    call.Constant();
  });
}

void AddNorms(StandardCases& cases) {
  for (const int64_t tokens : {int64_t{1}, kTokens}) {
    const std::string rows = std::to_string(tokens);
    for (const char* op : {"LayerNormalization", "RMSNormalization"}) {
      cases.Add(op + ("_" + rows), rows + " x 2304", op, [tokens](OpCall& call) {
        call.Normal(kFloat, {tokens, kWide});
        Row(call);
        if (call.op().name() == "LayerNormalization") Row(call);
      });
    }
    for (const char* op : {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}) {
      cases.Add(op + ("_" + rows), rows + " x 2304", std::string("com.microsoft.") + op,
                [tokens](OpCall& call) {
                  for (int i = 0; i < 2; ++i) call.Normal(kFloat, {1, tokens, kWide});
                  Row(call);
                  if (call.op().name() == "SkipLayerNormalization") Row(call);
                });
    }
  }
  const auto channels = [](OpCall& call, int vectors) {
    Image(call);
    for (int i = 0; i < vectors; ++i) Positive(call, {256});
  };
  cases.Add("GroupNormalization", "256 x 64 x 64", "GroupNormalization", [channels](OpCall& call) {
    channels(call, 2);
    call.Attribute("num_groups", int64_t{32});
  });
  cases.Add("InstanceNormalization", "256 x 64 x 64", "InstanceNormalization",
            [channels](OpCall& call) { channels(call, 2); });
  cases.Add("BatchNormalization", "256 x 64 x 64", "BatchNormalization",
            [channels](OpCall& call) { channels(call, 4); });
  cases.Add("LpNormalization", kRows, "LpNormalization", Wide);
}

void AddCasts(StandardCases& cases) {
  const auto add = [&](const char* name, DataType from, DataType to) {
    cases.Add(std::string("Cast_") + name, kRows, "Cast", [from, to](OpCall& call) {
      if (IsFloatingPoint(from)) {
        call.Normal(from, {kTokens, kWide});
      } else {
        call.Uniform(from, {kTokens, kWide}, 0, 2);
      }
      call.Attribute("to", static_cast<int64_t>(to));
    });
  };
  add("float_float16", kFloat, kFloat16);
  add("float16_float", kFloat16, kFloat);
  add("float_bfloat16", kFloat, kBfloat16);
  add("bfloat16_float", kBfloat16, kFloat);
  add("int64_float", kInt64, kFloat);
  add("float_int64", kFloat, kInt64);
  add("int64_int32", kInt64, kInt32);
  add("int32_int64", kInt32, kInt64);
  add("bool_float", kBool, kFloat);
  add("float_bool", kFloat, kBool);
  add("uint8_float", kUint8, kFloat);
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
