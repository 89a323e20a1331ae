// SPDX-License-Identifier: Apache-2.0
// IndexerQRopeQuant, IndexerKQuantInsert and IndexerKGather: compared byte by byte.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "op_test.h"
#include "special_rows.h"

namespace pagefuse::pagefuse_ops {
namespace {

// --- IndexerQRopeQuant ---

struct QCase {
  std::string name;
  std::string format = "fp8";
  DataType type = DataType::kBfloat16;
  DataType table_type = DataType::kFloat;
  DataType weight_type = DataType::kBfloat16;
  int64_t heads = 3;
  int64_t size = 128;
  int64_t rotated = 64;
  double deviation = 2;
};

OpCase IndexerQ(const QCase& o) {
  constexpr int64_t kTokens = 4;
  return {
      .name = o.name,
      .inputs = {Ints({kTokens}, {0, 8, 3, 3}),
                 Random(o.type, {kTokens, o.heads, o.size}, Normal{0, o.deviation}, 1),
                 Random(o.table_type, {9, o.rotated}, Uniform{-1, 1}, 2),
                 Random(o.weight_type, {kTokens, o.heads}, Normal{}, 3)},
      .attributes = {{"format", o.format}, {"softmax_scale", 0.08838835f}, {"head_scale", 0.125f}},
      .num_outputs = o.format == "mxfp4" ? 3 : 2};
}

// Position 1 turns the pair (1, 2) by a quarter: (-2, 1). The largest magnitude is 448, scale 1.
OpCase IndexerQByHand() {
  return {.name = "by_hand",
          .inputs = {Ints({1}, {1}), As(DataType::kBfloat16, Floats({1, 1, 4}, {448, -3, 1, 2})),
                     Floats({2, 2}, {1, 0, 0, 1}), Floats({1, 1}, {3})},
          .attributes = {{"softmax_scale", 0.5f}, {"head_scale", 4.0f}},
          .outputs = {As(DataType::kFloat8E4M3FN, Floats({1, 1, 4}, {448, -3, -2, 1})),
                      Floats({1, 1}, {6})}};
}

OpCases& AddRejectedQ(OpCases& cases) {
  const OpCase good = IndexerQByHand();
  OpCase scale_output = good;
  scale_output.outputs.clear();
  scale_output.num_outputs = 3;
  OpCase no_scale_output = IndexerQ({.name = "", .format = "mxfp4"});
  no_scale_output.num_outputs = 2;
  return cases
      .Rejects(With(good, 0, Ints({1}, {2})),
               "input 0 \"positions\": expected positions in [0, 2), got 2 at 0")
      .Rejects(With(good, 0, Ints({1}, {-1})),
               "input 0 \"positions\": expected positions in [0, 2), got -1 at 0")
      .Rejects(With(good, 2, Floats({2, 3}, {1, 0, 0, 0, 1, 0})),
               "input 2 \"cos_sin\": expected [P, R], R % 2 = 0, got [2, 3]")
      .Rejects(With(good, 2, Floats({1, 6}, {1, 0, 0, 0, 1, 0})),
               "input 2 \"cos_sin\": expected [P, R], R <= D with D = 4 of \"q\", got [1, 6]")
      .Rejects(With(good, 3, Floats({1, 2}, {1, 1})),
               "input 3 \"weights\": expected [T, H] with T = 1 of \"positions\", H = 1 of")
      .Rejects(WithAttribute(good, "rotary_offset", 3),
               "input 2 \"cos_sin\": expected [P, R], R + rotary_offset <= D with "
               "\"rotary_offset\" = 3, D "
               "= 4 of \"q\", got [2, 2]")
      .Rejects(WithAttribute(good, "rotary_offset", -1),
               "attribute \"rotary_offset\": expected at least 0, got -1")
      .Rejects(WithAttribute(good, "rotary_offset", std::numeric_limits<int64_t>::max()),
               "to 72057594037927936, got 9223372036854775807")
      .Rejects(WithAttribute(good, "format", "fp6"),
               "attribute \"format\": expected fp8, mxfp4 or none, got \"fp6\"")
      .Rejects(WithAttribute(good, "fp8_storage", "int8"),
               "attribute \"fp8_storage\": expected float8e4m3fn or uint8, got")
      .Rejects(scale_output, "output 2 \"q_scale\": is not expected with format = fp8")
      .Rejects(no_scale_output, "output 2 \"q_scale\": is missing with format = mxfp4")
      .Rejects(WithAttribute(IndexerQ({.name = "", .size = 96}), "hadamard", 1),
               "input 1 \"q\": expected rows of a power of two with hadamard = 1, got [4, 3, 96]")
      .Rejects(IndexerQ({.name = "", .format = "mxfp4", .size = 112}),
               "input 1 \"q\": expected [T, H, D], D % unit = 0 with unit = 32, got");
}

OpCase Rotated(OpCase op_case) {
  op_case.name += "_hadamard";
  return WithAttribute(std::move(op_case), "hadamard", 1);
}

// A head that stands out in one channel is spread over all: 4 * H / sqrt(4) e_0 = (2, 2, 2, 2).
OpCase HadamardByHand() {
  return {.name = "hadamard_by_hand",
          .inputs = {Ints({1}, {0}), Floats({1, 1, 4}, {4, 0, 0, 0}), Floats({1, 2}, {1, 0}),
                     Floats({1, 1}, {3})},
          .attributes = {{"format", "none"},
                         {"hadamard", 1},
                         {"softmax_scale", 0.5f},
                         {"head_scale", 4.0f}},
          .outputs = {Floats({1, 1, 4}, {2, 2, 2, 2}), Floats({1, 1}, {6})}};
}

// --- IndexerKQuantInsert ---

OpCase KInsert(const std::string& scale_fmt, DataType type, double deviation) {
  return {.name = scale_fmt,
          .inputs = {Random(type, {6, 128}, Normal{0, deviation}, 4), Ints({5}, {7, -1, 0, 11, 0}),
                     Random(DataType::kUint8, {3, 4, 132}, Uniform{0, 255}, 5)},
          .attributes = {{"scale_fmt", scale_fmt}}};
}

// Keys of another size.
OpCase KInsertOf(const std::string& format, int64_t size, int64_t row) {
  return {
      .name = format + "_" + std::to_string(size),
      .inputs = {Random(DataType::kFloat, {6, size}, Normal{0, 2}, 4), Ints({5}, {7, -1, 0, 11, 0}),
                 Random(DataType::kUint8, {3, 4, row}, Uniform{0, 255}, 5)},
      .attributes = {{"format", format}, {"quant_block_size", size}}};
}

// Runs of tokens of several lengths.
OpCase KInsertMany(const std::string& scale_fmt) {
  constexpr int64_t kTokens = 50;
  std::vector<int64_t> slots(kTokens);
  for (int64_t i = 0; i < kTokens; ++i) slots[i] = i == 3 || i == 9 ? -1 : (i * 11) % 52;
  slots[45] = slots[20];  // the later one wins
  return {.name = scale_fmt + "_many",
          .inputs = {Random(DataType::kBfloat16, {kTokens, 128}, Normal{0, 2}, 6),
                     Ints({kTokens}, slots),
                     Random(DataType::kUint8, {13, 4, 132}, Uniform{0, 255}, 5)},
          .attributes = {{"scale_fmt", scale_fmt}}};
}

// --- IndexerKGather ---

// Requests of 5, 0 and 9 tokens over blocks of 4; entries behind a request's end are garbage.
OpCase KGather(std::string name, int64_t width) {
  return {.name = std::move(name),
          .inputs = {Random(DataType::kUint8, {6, 4, width}, Uniform{0, 255}, 6),
                     Int32s({3, 3}, {4, 1, -1, 99, -7, 99, 0, 5, 3}), Int32s({4}, {0, 5, 5, 14})}};
}

// Two blocks of two tokens, two channels and one scale for both: bytes 1 to 24.
OpCase KGatherByHand() {
  std::vector<uint8_t> bytes(24);
  for (int i = 0; i < 24; ++i) bytes[i] = static_cast<uint8_t>(i + 1);
  const Tensor scale_bytes =
      Codes(DataType::kUint8, {12}, {17, 18, 19, 20, 21, 22, 23, 24, 5, 6, 7, 8});
  Tensor scales = Floats({4, 1}, {0, 0, 0, 0});
  std::copy_n(static_cast<const uint8_t*>(scale_bytes.data()), 12,
              static_cast<uint8_t*>(scales.mutable_data()));
  return {.name = "by_hand",
          .inputs = {Codes(DataType::kUint8, {2, 2, 6}, bytes), Int32s({1, 2}, {1, 0}),
                     Int32s({2}, {0, 3}), Ints({}, {4})},
          .attributes = {{"quant_block_size", 2}, {"fp8_storage", "uint8"}},
          .outputs = {Codes(DataType::kUint8, {4, 2}, {13, 14, 15, 16, 1, 2, 0, 0}), scales}};
}

OpCases& AddRejectedGather(OpCases& cases) {
  const OpCase good = KGatherByHand();
  OpCase no_rows = good;
  no_rows.inputs.pop_back();
  return cases
      .Rejects(With(good, 3, Ints({}, {2})),
               "input 3 \"num_rows\": expected at least 3, the last of \"cu_seq_lens\", got 2")
      .Rejects(With(good, 3, Ints({}, {-1})), "input 3 \"num_rows\": expected 0 or more, got -1")
      .Rejects(With(good, 2, Int32s({2}, {1, 3})),
               "input 2 \"cu_seq_lens\": expected 0 first, got 1")
      .Rejects(With(good, 2, Int32s({2}, {0, -1})),
               "input 2 \"cu_seq_lens\": expected 0 to 4 tokens a request")
      .Rejects(With(good, 2, Int32s({2}, {0, 5})),
               "input 2 \"cu_seq_lens\": expected 0 to 4 tokens a request")
      .Rejects(With(no_rows, 2, Int32s({2}, {0, 5})),
               "input 2 \"cu_seq_lens\": expected 0 to the 4 tokens")
      .Rejects(With(good, 2, Int32s({3}, {0, 1, 3})),
               "input 2 \"cu_seq_lens\": expected [Q + 1] with Q = 1 of \"block_table\", got [3]")
      .Rejects(With(good, 1, Int32s({1, 2}, {2, 0})),
               "input 1 \"block_table\": expected blocks in [0, 2), got 2 at [0, 0]")
      .Rejects(
          With(good, 0, Codes(DataType::kUint8, {2, 2, 7}, std::vector<uint8_t>(28))),
          "input 0 \"kv_cache\": expected [NB, BS, G * (quant_block_size + 4)] or [NB, BS, 1, G * "
          "(quant_block_size + 4)] with \"quant_block_size\" = 2, got [2, 2, 7]")
      .Rejects(WithAttribute(good, "quant_block_size", 0),
               "attribute \"quant_block_size\": expected 1 to 2147483647, got 0");
}

}  // namespace

OpCases IndexerQRopeQuantCases() {
  using enum DataType;
  OpCases cases("pagefuse.IndexerQRopeQuant");
  OpCase zeros = IndexerQ({.name = "zeros"});
  zeros.inputs[1] = As(kBfloat16, Floats({4, 3, 128}, std::vector<float>(4 * 3 * 128, -0.0f)));
  OpCase fp4_zeros = IndexerQ({.name = "mxfp4_zeros", .format = "mxfp4"});
  fp4_zeros.inputs[1] = zeros.inputs[1];
  OpCase no_tokens = IndexerQ({.name = "no_tokens"});
  no_tokens.inputs[0] = Ints({0}, {});
  no_tokens.inputs[1] = As(kBfloat16, Floats({0, 3, 128}, {}));
  no_tokens.inputs[3] = As(kBfloat16, Floats({0, 3}, {}));
  cases.Add(IndexerQByHand())
      .Add(IndexerQ({.name = "fp8"}))
      .Add(WithSpecials(IndexerQ({.name = "fp8_specials"}), 1))
      .Add(WithSpecials(IndexerQ({.name = "mxfp4_specials", .format = "mxfp4"}), 1))
      .Add(IndexerQ({.name = "fp8_small", .deviation = 1e-5}))
      .Add(IndexerQ({.name = "fp8_large", .deviation = 1e30}))
      .Add(IndexerQ(
          {.name = "fp8_types", .type = kFloat16, .table_type = kBfloat16, .weight_type = kFloat}))
      .Add(IndexerQ({.name = "fp8_all_rotated",
                     .type = kFloat,
                     .weight_type = kFloat16,
                     .heads = 5,
                     .size = 30,
                     .rotated = 30}))
      .Add(WithAttribute(IndexerQ({.name = "fp8_uint8"}), "fp8_storage", "uint8"))
      .Add(WithAttribute(WithAttribute(IndexerQ({.name = "fp8_v32"}), "interleaved", 0),
                         "rotary_offset", int64_t{0}))
      .Add(WithAttribute(IndexerQ({.name = "fp8_middle", .size = 100, .rotated = 24}),
                         "rotary_offset", 40))
      .Add(IndexerQ({.name = "mxfp4", .format = "mxfp4"}))
      .Add(IndexerQ({.name = "mxfp4_tiny", .format = "mxfp4", .deviation = 1e-38}))
      .Add(IndexerQ(
          {.name = "mxfp4_large", .format = "mxfp4", .size = 96, .rotated = 32, .deviation = 1e37}))
      .Add(WithAttribute(IndexerQ({.name = "mxfp4_half_split", .format = "mxfp4"}), "interleaved",
                         0))
      .Add(IndexerQ({.name = "none", .format = "none"}))
      .Add(
          IndexerQ({.name = "none_float", .format = "none", .type = kFloat, .weight_type = kFloat}))
      .Add(WithAttribute(IndexerQ({.name = "none_v32",
                                   .format = "none",
                                   .type = kFloat16,
                                   .table_type = kBfloat16,
                                   .size = 50,
                                   .rotated = 22}),
                         "rotary_offset", 0))
      .Add(HadamardByHand())
      .Add(Rotated(IndexerQ({.name = "fp8"})))
      .Add(Rotated(IndexerQ({.name = "fp8_float", .type = kFloat, .size = 16, .rotated = 8})))
      .Add(Rotated(IndexerQ({.name = "mxfp4", .format = "mxfp4"})))
      .Add(Rotated(IndexerQ({.name = "none", .format = "none", .type = kFloat})))
      .Add(Rotated(IndexerQ({.name = "none_bf16", .format = "none", .size = 64})))
      .Add(zeros)
      .Add(fp4_zeros)
      .Add(no_tokens)
      .Within(kFloat, {}, "the same products in the same order");
  return AddRejectedQ(cases);
}

OpCases IndexerKQuantInsertCases() {
  using enum DataType;
  const OpCase good = KInsert("ue8m0", kBfloat16, 2);
  OpCase four_dims = good;
  four_dims.inputs[2] = Random(kUint8, {3, 4, 1, 132}, Uniform{0, 255}, 7);
  OpCase packed = WithAttribute(good, "format", "mxfp4");
  packed.inputs[2] = Random(kUint8, {3, 4, 68}, Uniform{0, 255}, 8);
  packed.name += "_mxfp4";
  return OpCases("pagefuse.IndexerKQuantInsert")
      .Add(good)
      .Add(packed)
      .Add(WithSpecials(packed, 0))
      .Add(KInsert("float", kBfloat16, 2))
      .Add(WithSpecials(KInsert("float", kBfloat16, 2), 0))
      .Add(WithSpecials(KInsert("ue8m0", kBfloat16, 2), 0))
      .Add(KInsertOf("fp8", 16, 20))
      .Add(KInsertOf("fp8", 37, 41))
      .Add(KInsertOf("mxfp4", 64, 34))
      .Add(Rotated(good))
      .Add(Rotated(packed))
      .Add(Rotated(KInsertOf("fp8", 16, 20)))
      .Add(Rotated(KInsertMany("float")))
      .Add(KInsertMany("ue8m0"))
      .Add(KInsertMany("float"))
      .Add(KInsert("float", kFloat, 1e-6))
      .Add(KInsert("ue8m0", kFloat16, 300))
      .Add(KInsert("ue8m0", kBfloat16, 1e-7))
      .Add(four_dims)
      .Add(With(good, 1, Ints({0}, {})))
      .Rejects(With(good, 1, Ints({1}, {12})), "input 1 \"slot_mapping\": expected slots below 12")
      .Rejects(With(good, 1, Ints({7}, {0, 1, 2, 3, 4, 5, 6})),
               "input 1 \"slot_mapping\": expected")
      .Rejects(With(good, 0, Random(kBfloat16, {6, 64}, Normal{}, 1)),
               "input 0 \"k\": expected [T, D], D = group with group = 128, got [6, 64]")
      .Rejects(Rotated(KInsertOf("fp8", 37, 41)),
               "input 0 \"k\": expected rows of a power of two with hadamard = 1, got [6, 37]")
      .Rejects(KInsertOf("mxfp4", 48, 27), "D % unit = 0 with unit = 32, got [6, 48]")
      .Rejects(With(good, 2, Random(kUint8, {3, 4, 130}, Uniform{}, 1)),
               "input 2 \"kv_cache\": expected [NB, BS, row] or [NB, BS, 1, row] with row = 132")
      .Rejects(WithAttribute(good, "quant_block_size", 64),
               "input 0 \"k\": expected [T, D], D = group with group = 64, got [6, 128]")
      .Rejects(WithAttribute(good, "scale_fmt", "int"),
               "attribute \"scale_fmt\": expected ue8m0 or float, got \"int\"");
}

OpCases IndexerKGatherCases() {
  OpCases cases("pagefuse.IndexerKGather");
  OpCase more_rows = KGather("more_rows", 132);
  more_rows.inputs.push_back(Ints({}, {20}));
  OpCase four_dims = KGather("four_dims", 132);
  four_dims.inputs[0] = *four_dims.inputs[0].Reshaped({6, 4, 1, 132});
  OpCase nothing = KGather("nothing", 132);
  nothing.inputs[2] = Int32s({4}, {0, 0, 0, 0});
  cases.Add(KGatherByHand())
      .Add(KGather("d128", 132))
      .Add(WithAttribute(KGather("two_groups", 2 * 36), "quant_block_size", 32))
      .Add(WithAttribute(KGather("uint8", 132), "fp8_storage", "uint8"))
      .Add(more_rows)
      .Add(four_dims)
      .Add(nothing);
  return AddRejectedGather(cases);
}

}  // namespace pagefuse::pagefuse_ops
