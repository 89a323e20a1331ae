// SPDX-License-Identifier: Apache-2.0
// Cases of MatMulNBits, and of GatedLinear over codes.
#include "op_test.h"
#include "weight_cases.h"

namespace pagefuse::microsoft_ops {
namespace {

// Bytes without a pattern.
Tensor Bytes(std::vector<int64_t> dims, uint64_t seed) {
  return Random(DataType::kUint8, std::move(dims), Uniform{-0.49, 255.49}, seed);
}

struct Problem {
  int64_t m, k, n, bits, block;
  int64_t batch = 2;
  int64_t blocks() const { return (k + block - 1) / block; }
};

enum class Zeros { kNone, kPacked, kFloat };

OpCase Case(std::string name, const Problem& p, Zeros zeros = Zeros::kNone, bool bias = false,
            DataType type = DataType::kFloat) {
  const uint64_t seed = p.m * 1000 + p.k;
  OpCase made{.name = std::move(name)};
  made.inputs = {Random(type, {p.batch, p.m, p.k}, Normal{0, 1}, seed),
                 Bytes({p.n, p.blocks(), p.block * p.bits / 8}, seed + 1),
                 Random(type, {p.n * p.blocks()}, Uniform{0.01, 0.05}, seed + 2)};
  if (zeros == Zeros::kPacked) {
    made.inputs.push_back(Bytes({p.n * ((p.blocks() * p.bits + 7) / 8)}, seed + 3));
  } else if (zeros == Zeros::kFloat) {
    made.inputs.push_back(Random(type, {p.n, p.blocks()}, Uniform{0, 15}, seed + 3));
  }
  if (bias) {
    made.inputs.resize(5);
    made.inputs.push_back(Random(type, {p.n}, Normal{0, 1}, seed + 4));
  }
  made.attributes = {{"K", p.k}, {"N", p.n}, {"bits", p.bits}, {"block_size", p.block}};
  made.constants = {1, 2, 3};
  return made;
}

// Activations that are integers already, 127 the largest of each 32, and an exact 128th of that: as
// int8 they are what they were.
OpCase Rounded(std::string name, const Problem& p, Zeros zeros = Zeros::kNone, bool bias = false,
               DataType type = DataType::kFloat) {
  OpCase made = Case(std::move(name), p, zeros, bias, type);
  made.attributes.push_back({"accuracy_level", 4});
  std::vector<float> x(static_cast<size_t>(p.batch * p.m * p.k));
  for (size_t i = 0; i < x.size(); ++i) {
    const auto column = static_cast<int64_t>(i) % p.k;
    const int number = column % 32 == 5 ? 127 : static_cast<int>(i * 37 % 255) - 127;
    x[i] = static_cast<float>(number) / 128;
  }
  made.inputs[0] = As(type, Floats({p.batch, p.m, p.k}, x));
  return made;
}

// With the group of each column: its block, or groups in turn.
OpCase Grouped(std::string name, const Problem& p, Zeros zeros, bool in_turn) {
  OpCase made = Case(std::move(name), p, zeros, true);
  std::vector<int64_t> groups;
  for (int64_t i = 0; i < p.k; ++i) groups.push_back(in_turn ? i % p.blocks() : i / p.block);
  made.inputs[4] = Int32s({p.k}, groups);
  made.constants = {1, 2, 3, 4};
  return made;
}

}  // namespace

OpCases MatMulNBitsCases() {
  const auto by_hand = [](std::vector<uint8_t> codes) {
    return OpCase{.name = "by_hand",
                  .inputs = {Floats({1, 2}, {10, 1}), Codes(DataType::kUint8, {1, 1, 8}, codes),
                             Floats({1, 1}, {0.5f})},
                  .attributes = {{"K", 2}, {"N", 1}, {"block_size", 16}}};
  };
  OpCase exact = by_hand({0xA9, 0, 0, 0, 0, 0, 0, 0});  // 9 - 8 = 1 and 10 - 8 = 2
  exact.outputs = {Floats({1, 1}, {6})};
  OpCase two_bits = by_hand({0, 0, 0, 0, 0, 0, 0, 0});
  two_bits.name = "two_bits_by_hand";
  two_bits.inputs[1] =
      Codes(DataType::kUint8, {1, 1, 4}, {0x0B, 0, 0, 0});  // 3 - 2 = 1 and 2 - 2 = 0
  two_bits.attributes.emplace_back("bits", 2);
  two_bits.outputs = {Floats({1, 1}, {5})};  // 10 halves
  OpCase narrow = Case("short", {1, 32, 4, 4, 16});
  narrow.inputs[2] = Floats({7}, std::vector<float>(7, 1));
  return OpCases("com.microsoft.MatMulNBits")
      .Add(exact)
      .Add(Case("one_row", {1, 128, 19, 4, 32, 1}))
      .Add(Case("one_row_of_bytes", {1, 128, 19, 8, 32, 1}, Zeros::kPacked))
      .Add(Case("one_row_blocks_of_16", {1, 80, 6, 4, 16, 1}))
      .Add(Case("one_row_blocks_of_128", {1, 384, 11, 4, 128, 1}, Zeros::kPacked))
      .Add(Case("two_rows", {1, 128, 19, 4, 32}))
      .Add(Case("seven_rows", {7, 160, 23, 4, 32, 1}, Zeros::kFloat))
      .Add(Case("seven_rows_of_bytes", {7, 160, 23, 8, 64, 1}))
      .Add(Case("blocks_of_16", {2, 96, 5, 4, 16}, Zeros::kPacked))
      .Add(Case("padded_block", {3, 100, 7, 4, 64}, Zeros::kPacked, true))
      .Add(Case("one_block", {1, 100, 9, 4, 128}, Zeros::kFloat))
      .Add(Case("bytes", {3, 100, 9, 8, 32}, Zeros::kPacked, true))
      .Add(Case("bytes_of_16", {1, 48, 9, 8, 16}))
      .Add(Case("many_rows", {20, 96, 70, 4, 32}, Zeros::kPacked, true))
      .Add(Case("more_rows_than_stream", {30, 96, 70, 4, 32}, Zeros::kPacked, true))
      .Add(Case("many_rows_of_bytes", {9, 40, 33, 8, 16}, Zeros::kFloat))
      .Add(Case("half", {3, 64, 11, 4, 32}, Zeros::kPacked, true, DataType::kFloat16))
      .Add(Case("no_rows", {0, 64, 11, 4, 32}))
      .Add(Rounded("rounded_row", {1, 128, 301, 4, 32, 1}))
      .Add(Rounded("rounded_row_of_bytes", {1, 128, 151, 8, 32, 1}, Zeros::kPacked))
      .Add(Rounded("rounded_blocks_of_64", {3, 160, 215, 4, 64}, Zeros::kFloat, true))
      .Add(Rounded("rounded_padded_block", {3, 102, 135, 8, 128}, Zeros::kPacked, true))
      .Add(Rounded("rounded_blocks_of_16", {2, 96, 5, 4, 16}))
      .Add(Rounded("rounded_rows", {25, 96, 350, 4, 32}, Zeros::kPacked, true))
      .Add(Rounded("rounded_rows_of_bytes", {25, 96, 182, 8, 32}))
      .Add(Rounded("rounded_half", {3, 64, 523, 4, 32}, Zeros::kPacked, true, DataType::kFloat16))
      .Within(DataType::kFloat, {.rtol = 2e-4, .atol = 3e-5}, "float sums of codes against double")
      .Within(DataType::kFloat16, {.rtol = 2e-3, .atol = 2e-3}, "float sums of codes")
      .Add(two_bits)
      .Add(Case("two_bits", {3, 128, 19, 2, 32, 1}))
      .Add(Case("two_bits_padded", {2, 100, 7, 2, 64}, Zeros::kPacked, true))
      .Add(Case("two_bits_rows", {30, 96, 70, 2, 16}, Zeros::kFloat))
      .Add(Rounded("two_bits_rounded", {3, 128, 301, 2, 32}, Zeros::kPacked))
      .Add(Grouped("groups_in_order", {2, 100, 5, 4, 32}, Zeros::kNone, false))
      .Add(Grouped("groups", {2, 100, 5, 4, 32}, Zeros::kNone, true))
      .Add(Grouped("groups_with_zeros", {2, 96, 5, 4, 16}, Zeros::kPacked, true))
      .Add(Grouped("groups_of_bytes", {2, 96, 5, 8, 32}, Zeros::kFloat, true))
      .Add(Grouped("groups_of_two_bits", {20, 96, 5, 2, 32}, Zeros::kPacked, true))
      .Rejects(With(Grouped("group", {1, 32, 4, 4, 16}, Zeros::kNone, true), 4,
                    Int32s({32}, std::vector<float>(32, 2))),
               "input 4 \"g_idx\": group 2 of column 0 is none of 2")
      .Rejects(With(Grouped("columns", {1, 32, 4, 4, 16}, Zeros::kNone, true), 4,
                    Int32s({31}, std::vector<float>(31, 0))),
               "input 4 \"g_idx\": expected [K], 32 elements")
      .Rejects(narrow, "expected [N, blocks], 8 elements");
}

}  // namespace pagefuse::microsoft_ops

namespace pagefuse::pagefuse_ops {
namespace {

// Codes near the centre, so that activations lie where they are no straight lines.
OpCase Gated(std::string activation, int64_t m, int64_t bits, int64_t level) {
  constexpr int64_t kK = 96, kN = 350, kBlock = 32, kBlocks = kK / kBlock;
  const Tensor codes = Random(DataType::kUint8, {kN, kBlocks, kBlock * bits / 8},
                              Uniform{-0.49, 255.49}, static_cast<uint64_t>(m));
  const Tensor scales = Random(DataType::kFloat, {kN, kBlocks},
                               Uniform{0.01, bits == 4 ? 0.03 : 0.012}, static_cast<uint64_t>(m));
  OpCase made{.name = std::move(activation)};
  // 16ths of integers, 127 the largest of each 32: as int8 they are what they were.
  std::vector<float> x(static_cast<size_t>(m * kK));
  for (size_t i = 0; i < x.size(); ++i) {
    const int number = i % 32 == 5 ? 127 : static_cast<int>(i * 37 % 9) - 4;
    x[i] = static_cast<float>(number) / 16;
  }
  made.inputs = {Floats({m, kK}, x), codes,
                 Random(DataType::kUint8, {kN, kBlocks, kBlock * bits / 8}, Uniform{-0.49, 255.49},
                        static_cast<uint64_t>(m + 1)),
                 scales, scales};
  made.attributes = {
      {"activation", made.name}, {"bits", bits}, {"block_size", kBlock}, {"accuracy_level", level}};
  made.constants = {1, 2, 3, 4};
  made.within = Tolerance{.rtol = 2e-4, .atol = 3e-3};  // sums of codes, to 200 and more
  return made;
}

}  // namespace

void AddGatedCodesCases(OpCases& cases) {
  for (const char* activation : {"gelu", "gelu_tanh", "silu"}) {
    for (const int64_t bits : {2, 4, 8}) {
      for (const int64_t m : {0, 1, 3, 40}) {
        for (const int64_t level : {0, 4}) cases.Add(Gated(activation, m, bits, level));
      }
    }
  }
  OpCase flat = Gated("silu", 3, 4, 4);
  flat.name = "flat_scales";
  for (const size_t scales : {3, 4}) flat.inputs[scales] = *flat.inputs[scales].Reshaped({350 * 3});
  OpCase wide = Gated("silu", 1, 4, 4);
  wide.inputs[0] = Floats({1, 64}, std::vector<float>(64, 1));
  OpCase narrow = Gated("silu", 1, 4, 4);
  narrow.inputs[4] = Floats({350, 2}, std::vector<float>(700, 1));
  OpCase alone = Gated("silu", 1, 4, 4);
  alone.inputs.pop_back();
  OpCase odd = Gated("silu", 1, 4, 4);
  odd.attributes[2].second = int64_t{24};
  for (const size_t codes : {1, 2}) {
    odd.inputs[codes] =
        Codes(DataType::kUint8, {350, 4, 12}, std::vector<uint8_t>(350 * 4 * 12, 1));
  }
  for (const size_t scales : {3, 4}) {
    odd.inputs[scales] = Floats({350, 4}, std::vector<float>(1400, 1));
  }
  cases.Add(flat)
      .Rejects(wide, "input 1 \"w_gate\": expected [N, blocks, block_size * bits / 8]")
      .Rejects(narrow, "input 4 \"up_scales\": expected [N, blocks]")
      .Rejects(alone, "up_scales")
      .Rejects(odd, "attribute \"block_size\": expected a power of two from 16 on, got 24");
}

}  // namespace pagefuse::pagefuse_ops
