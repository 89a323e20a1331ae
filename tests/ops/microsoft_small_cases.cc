// SPDX-License-Identifier: Apache-2.0
// Cases of the small ops of com.microsoft: norms, activations, rotation, quantisation, gather.
#include "op_test.h"

namespace pagefuse::microsoft_ops {
namespace {

constexpr const char* kSumsInFloat = "float sums against sums in double";

OpCase SkipCase(std::string name, std::vector<Tensor> inputs, int outputs,
                DataType type = DataType::kFloat) {
  for (Tensor& input : inputs) {
    if (input.defined()) input = As(type, input);
  }
  return {.name = std::move(name),
          .inputs = std::move(inputs),
          .attributes = {{"epsilon", 1e-5f}},
          .num_outputs = outputs};
}

}  // namespace

OpCases SkipSimplifiedLayerNormalizationCases() {
  const Tensor x = Values({2, 3, 37}, 1), skip = Values({2, 3, 37}, 2), gamma = Values({37}, 3);
  const Tensor bias = Values({37}, 4);
  return OpCases("com.microsoft.SkipSimplifiedLayerNormalization")
      .Add({.name = "by_hand",  // the sum is 3, 4: its mean square is 12.5
            .inputs = {Floats({1, 2}, {1, 2}), Floats({1, 2}, {2, 2}), Floats({2}, {1, 2})},
            .attributes = {{"epsilon", 0.0f}},
            .outputs = {Floats({1, 2}, {0.84852814f, 2.2627417f}), Floats({1, 1}, {0}),
                        Floats({1, 1}, {0.28284271f}), Floats({1, 2}, {3, 4})}})
      .Add(SkipCase("sum", {x, skip, gamma}, 4))
      .Add(SkipCase("norm_alone", {x, skip, gamma, bias}, 1))
      .Add(SkipCase("half", {x, skip, gamma, bias}, 4, DataType::kFloat16))
      .Add(SkipCase("repeated", {x, Values({3, 37}, 5), gamma}, 4))
      .Add(SkipCase("repeated_once", {x, Values({1, 3, 37}, 5), gamma}, 1))
      .Add(SkipCase("tokens", {Values({5, 64}, 1), Values({5, 64}, 2), Values({64}, 3)}, 4))
      .Add(SkipCase("none", {Values({0, 8}, 1), Values({0, 8}, 2), Values({8}, 3)}, 4))
      .Within(DataType::kFloat, {.rtol = 2e-5, .atol = 2e-6}, kSumsInFloat)
      .Within(DataType::kFloat16, {.rtol = 2e-3, .atol = 1e-3}, "float sums against double ones")
      .Rejects(SkipCase("skip", {x, Values({2, 37}, 2), gamma}, 1), "does not repeat")
      .Rejects(SkipCase("gamma", {x, skip, Values({36}, 3)}, 1), "expected shape [37]");
}

OpCases SkipLayerNormalizationCases() {
  const Tensor x = Values({2, 3, 37}, 1), skip = Values({2, 3, 37}, 2), gamma = Values({37}, 3);
  const Tensor beta = Values({37}, 4), bias = Values({37}, 5);
  return OpCases("com.microsoft.SkipLayerNormalization")
      .Add({.name = "by_hand",  // the sum is 1, 3: its mean 2, its variance 1
            .inputs = {Floats({1, 2}, {1, 2}), Floats({1, 2}, {0, 1}), Floats({2}, {1, 2}),
                       Floats({2}, {0, 5})},
            .attributes = {{"epsilon", 0.0f}},
            .outputs = {Floats({1, 2}, {-1, 7}), Floats({1, 1}, {2}), Floats({1, 1}, {1}),
                        Floats({1, 2}, {1, 3})}})
      .Add(SkipCase("plain", {x, skip, gamma}, 4))
      .Add(SkipCase("beta", {x, skip, gamma, beta}, 1))
      .Add(SkipCase("all", {x, skip, gamma, beta, bias}, 4))
      .Add(SkipCase("bias", {x, skip, gamma, Tensor(), bias}, 4, DataType::kFloat16))
      .Within(DataType::kFloat, {.rtol = 4e-5, .atol = 4e-6}, kSumsInFloat)
      .Within(DataType::kFloat16, {.rtol = 2e-3, .atol = 1e-3}, "float sums against double ones")
      .Rejects(SkipCase("beta", {x, skip, gamma, Values({1, 37}, 4)}, 1), "expected shape [37]");
}

OpCases GeluCases() {
  return OpCases("com.microsoft.Gelu")
      .Exact({{0, 1, -1}}, {{0, 0.84134475f, -0.15865525f}})
      .Shapes({{0}, {3, 127}, {2, 5, 64}})
      .Fill(Normal{0, 3})
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 1e-6}, "erf in float near its limits")
      .Within(DataType::kFloat16, {.rtol = 2e-3, .atol = 1e-6}, "rounded twice");
}

OpCases FastGeluCases() {
  return OpCases("com.microsoft.FastGelu")
      .Exact({{0, 1, -1}}, {{0, 0.841192f, -0.158808f}})
      .Exact({{0, 1, -1}, {1, 0, 2}}, {{0.841192f, 0.841192f, 0.841192f}})
      .ShapeSets({{{3, 127}}, {{3, 127}, {127}}, {{2, 4, 64}, {64}}})
      .Fill(Normal{0, 2})
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 2e-6}, "tanh in float near its limits")
      .Within(DataType::kFloat16, {.rtol = 4e-3, .atol = 2e-3},
              "the decomposition rounds the sum to half")
      .Within(DataType::kBfloat16, {.rtol = 3e-2, .atol = 2e-2},
              "the decomposition rounds the sum to bfloat16")
      .Rejects({Floats({2}, {1, 2}), Floats({1}, {1})}, "expected shape [2]");
}

OpCases QuickGeluCases() {
  return OpCases("com.microsoft.QuickGelu")
      .Exact({{0, 1}}, {{0, 0.845795f}})
      .Shapes({{3, 127}})
      .Attributes({{"alpha", 0.5f}})
      .Shapes({{2, 5, 64}})
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 1e-6}, "exp in float");
}

OpCases BiasGeluCases() {
  return OpCases("com.microsoft.BiasGelu")
      .Exact({{0, 1, -1}, {1, 0, 2}}, {{0.84134475f, 0.84134475f, 0.84134475f}})
      .ShapeSets({{{3, 127}, {127}}, {{2, 4, 64}, {64}}, {{0, 5}, {5}}})
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 2e-6}, "erf in float near its limits")
      .Within(DataType::kFloat16, {.rtol = 4e-3, .atol = 2e-3},
              "the decomposition rounds the sum to half")
      .Within(DataType::kBfloat16, {.rtol = 3e-2, .atol = 2e-2},
              "the decomposition rounds the sum to bfloat16")
      .Rejects({Floats({2}, {1, 2}), Floats({3}, {1, 2, 3})}, "expected shape [2]");
}

OpCases RotaryEmbeddingCases() {
  const Tensor table = Values({7, 4}, 3), sines = Values({7, 4}, 4);
  const std::pair<std::string, AttributeValue> two_heads = {"num_heads", 2};
  return OpCases("com.microsoft.RotaryEmbedding")
      .Add("quarter_turn",
           {Floats({1, 1, 1, 4}, {1, 2, 3, 4}), Ints({1}, {1}), Floats({2, 2}, {9, 9, 0, 1}),
            Floats({2, 2}, {9, 9, 1, 0})},
           {Floats({1, 1, 1, 4}, {-3, 2, 1, 4})})
      .Add({.name = "quarter_turn_of_neighbours",
            .inputs = {Floats({1, 1, 1, 4}, {1, 2, 3, 4}), Ints({1, 1}, {1}),
                       Floats({2, 2}, {9, 9, 0, 0}), Floats({2, 2}, {9, 9, 1, 1})},
            .attributes = {{"interleaved", 1}, {"scale", 0.5f}},
            .outputs = {Floats({1, 1, 1, 4}, {-1, 0.5f, -2, 1.5f})}})
      .Add({.name = "quarter_turn_of_a_part",
            .inputs = {Floats({1, 1, 6}, {1, 2, 3, 4, 5, 6}), Ints({1}, {1}),
                       Floats({2, 1}, {9, 0}), Floats({2, 1}, {9, 1})},
            .attributes = {two_heads, {"rotary_embedding_dim", 2}},
            .outputs = {Floats({1, 1, 6}, {-2, 1, 3, -5, 4, 6})}})
      .Add({.name = "no_pairs",
            .inputs = {Floats({1, 1, 1, 2}, {1, 2}), Ints({1}, {0}), Floats({1, 0}, {}),
                       Floats({1, 0}, {})},
            .outputs = {Floats({1, 1, 1, 2}, {1, 2})}})
      .Add("from_the_first_position", {Values({2, 3, 16}, 1), Ints({1}, {4}), table, sines})
      .Add({.name = "positions",
            .inputs = {Values({2, 3, 16}, 1), Ints({2, 3}, {0, 1, 2, 6, 6, 0}), table, sines},
            .attributes = {{"interleaved", 1}, {"scale", 0.5f}}})
      .Add({.name = "a_part_of_the_head",
            .inputs = {Values({2, 2, 3, 11}, 1), Ints({2, 3}, {0, 1, 2, 6, 6, 0}), table, sines},
            .attributes = {{"rotary_embedding_dim", 8}}})
      .Add({.name = "half_a_part",
            .inputs = {Values({2, 3, 24}, 1, DataType::kFloat16), Ints({1}, {0}),
                       As(DataType::kFloat16, table), As(DataType::kFloat16, sines)},
            .attributes = {two_heads, {"rotary_embedding_dim", 8}}})
      .Rejects({Values({1, 1, 16}, 1), Ints({1}, {7}), table, sines},
               "position 7 is not in the 7 rows")
      .Rejects({Values({1, 1, 12}, 1), Ints({1}, {0}), table, sines}, "is no multiple of 8");
}

OpCases QuantizeLinearCases() {
  return OpCases("com.microsoft.QuantizeLinear")
      .Add("halves_go_to_even",
           {Floats({4}, {0.5f, 1.5f, -300, 300}), Floats({}, {1}),
            As(DataType::kInt8, Floats({}, {1}))},
           {As(DataType::kInt8, Floats({4}, {1, 3, -128, 127}))})
      .Add("by_column",
           {Floats({2, 2}, {1, 2, 3, 4}), Floats({2}, {1, 0.5f}),
            As(DataType::kUint8, Floats({2}, {0, 1}))},
           {As(DataType::kUint8, Floats({2, 2}, {1, 5, 3, 9}))})
      .Rejects({Floats({2, 2}, {1, 2, 3, 4}), Floats({3}, {1, 1, 1})}, "expected one scale");
}

OpCases DequantizeLinearCases() {
  return OpCases("com.microsoft.DequantizeLinear")
      .Add("by_row",
           {As(DataType::kInt8, Floats({2, 2}, {1, 2, 3, 4})), Floats({2}, {1, 0.5f}),
            As(DataType::kInt8, Floats({2}, {0, 1}))},
           {Floats({2, 2}, {1, 2, 1, 1.5f})}, {{"axis", 0}})
      .Rejects({As(DataType::kInt8, Floats({2, 2}, {1, 2, 3, 4})), Floats({3}, {1, 1, 1})},
               "expected one scale");
}

OpCases GatherBlockQuantizedCases() {
  std::vector<uint8_t> bytes(3 * 16);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 + 11);
  const AttributeList packed = {{"block_size", 16}, {"bits", 4}};
  const AttributeList whole = {{"block_size", 16}, {"bits", 8}};
  std::vector<uint8_t> one_row(8, 0x98);  // codes 8 and 9 in turn: 0 and 1
  std::vector<float> turns;
  for (int i = 0; i < 16; ++i) turns.push_back(i % 2 == 0 ? 0.0f : 0.5f);
  return OpCases("com.microsoft.GatherBlockQuantized")
      .Add("low_bits_first",
           {Codes(DataType::kUint8, {1, 8}, one_row), Ints({1}, {-1}), Floats({1, 1}, {0.5f})},
           {Floats({1, 16}, turns)}, packed)
      .Add("zero_points",
           {Codes(DataType::kUint8, {1, 8}, one_row), Ints({1}, {0}), Floats({1, 1}, {0.5f}),
            Codes(DataType::kUint8, {1, 1}, {0x08})},
           {Floats({1, 16}, turns)}, packed)
      .Add("signed",
           {Codes(DataType::kInt4, {1, 16}, std::vector<uint8_t>(8, 0x10)), Ints({1}, {0}),
            Floats({1, 1}, {0.5f})},
           {Floats({1, 16}, turns)}, packed)
      .Add({.name = "packed",
            .inputs = {Codes(DataType::kUint8, {3, 16}, bytes), Ints({2, 2}, {2, 0, -3, 1}),
                       Values({3, 2}, 1), Codes(DataType::kUint8, {3, 1}, {0x12, 0x34, 0x56})},
            .attributes = packed})
      .Add({.name = "bytes",
            .inputs = {Codes(DataType::kUint8, {3, 16}, bytes), Ints({2}, {2, 0}),
                       Values({3, 1}, 1, DataType::kFloat16)},
            .attributes = whole})
      .Add("two_bits",
           {Codes(DataType::kUint8, {1, 4}, std::vector<uint8_t>(4, 0xE4)), Ints({1}, {0}),
            Floats({1, 1}, {0.5f})},
           {Floats({1, 16}, {-1, -0.5f, 0, 0.5f, -1, -0.5f, 0, 0.5f, -1, -0.5f, 0, 0.5f, -1, -0.5f,
                             0, 0.5f})},
           {{"block_size", 16}, {"bits", 2}})
      .Add("zero_points_of_two_bits",
           {Codes(DataType::kUint8, {1, 8}, std::vector<uint8_t>(8, 0xAA)), Ints({1}, {0}),
            Floats({1, 2}, {1, 10}), Codes(DataType::kUint8, {1, 1}, {0x04})},
           {Floats({1, 32}, {2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,
                             10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10})},
           {{"block_size", 16}, {"bits", 2}})
      .Add({.name = "middle",
            .inputs = {Codes(DataType::kUint4, {2, 3, 16}, bytes), Ints({2}, {2, 0}),
                       Values({2, 3, 1}, 1)},
            .attributes = {{"block_size", 16}, {"gather_axis", 1}, {"quantize_axis", -1}}})
      .Rejects({Codes(DataType::kUint8, {1, 8}, one_row), Ints({1}, {1}), Floats({1, 1}, {0.5f})},
               packed, "index 1 is out of range")
      .Rejects(
          {Codes(DataType::kUint8, {1, 8}, one_row), Ints({1}, {0}), Floats({1, 2}, {0.5f, 1})},
          packed, "expected shape [1, 1]");
}

}  // namespace pagefuse::microsoft_ops
