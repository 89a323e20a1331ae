// SPDX-License-Identifier: Apache-2.0
// Cases of PagedAttention of com.microsoft. That it equals GroupQueryAttention over the same rows
// is tested in microsoft/paged_parity_test.cc.
#include <limits>

#include "op_test.h"

namespace pagefuse::microsoft_ops {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kSize = 16;

// Sequences of 5 + 3, 0 + 4 and 9 + 0 tokens in blocks of 4, out of order.
OpCase Case(std::string name, const AttributeList& more = {}, DataType type = DataType::kFloat) {
  OpCase made{.name = std::move(name), .num_outputs = 3};
  made.inputs.resize(17);
  made.inputs[0] = Values({7, kHeads * kSize}, 1, type);
  made.inputs[1] = Values({7, kKvHeads * kSize}, 2, type);
  made.inputs[2] = Values({7, kKvHeads * kSize}, 3, type);
  made.inputs[3] = Values({8, 4, kKvHeads, kSize}, 4, type);
  made.inputs[4] = Values({8, 4, kKvHeads, kSize}, 5, type);
  made.inputs[5] = Int32s({4}, {0, 3, 7, 7});
  made.inputs[6] = Int32s({3}, {5, 0, 9});
  made.inputs[7] = Int32s({3, 3}, {6, 1, -1, 0, -1, -1, 7, 2, 3});
  made.attributes = {{"num_heads", kHeads}, {"kv_num_heads", kKvHeads}};
  for (const auto& attribute : more) made.attributes.push_back(attribute);
  return made;
}

OpCase Rotated(std::string name, AttributeList more = {}, DataType type = DataType::kFloat) {
  more.emplace_back("do_rotary", 1);
  OpCase made = Case(std::move(name), more, type);
  made.inputs[8] = Values({16, 6}, 6, type);
  made.inputs[9] = Values({16, 6}, 7, type);
  return made;
}

// One head of 16 channels, of which the first 12 are the value.
OpCase Latent(std::string name) {
  OpCase made = Rotated(
      std::move(name),
      {{"v_head_size", 12}, {"rotary_offset", 4}, {"kv_cache_layout", "LATENT"}, {"scale", 0.3f}});
  made.inputs[1] = Values({7, kSize}, 2);
  made.inputs[2] = made.inputs[4] = Tensor();
  made.inputs[3] = Values({8, 4, 1, kSize}, 4);
  made.attributes[1] = {"kv_num_heads", 1};
  made.num_outputs = 2;
  return made;
}

OpCase Quantised(std::string name, int64_t bits, const std::string& kind) {
  OpCase made =
      Rotated(std::move(name),
              {{"k_quant_type", kind}, {"v_quant_type", kind}, {"kv_cache_bit_width", bits}});
  const Filling any = bits == 8 ? Uniform{-127, 127} : Uniform{0, 255};
  const DataType type = bits == 8 ? DataType::kInt8 : DataType::kUint8;
  const std::vector<int64_t> scales =
      kind == "PER_TENSOR" ? std::vector<int64_t>{1} : std::vector<int64_t>{kKvHeads, 1, kSize};
  const Filling scale = bits == 8 ? Uniform{0.01, 0.03} : Uniform{0.2, 0.4};
  for (int i = 0; i < 2; ++i) {
    made.inputs[3 + i] = Random(type, {8, 4, kKvHeads, bits == 8 ? kSize : kSize / 2}, any, 10 + i);
    made.inputs[14 + i] = Random(DataType::kFloat, scales, scale, 12 + i);
  }
  return made;
}

OpCase ByHand() {
  OpCase made{.name = "by_hand"};
  // One token after one in block 1; its slot there is row 1.
  made.inputs = {Floats({1, 2}, {0, 1}),
                 Floats({1, 2}, {0, 1}),
                 Floats({1, 2}, {6, 8}),
                 Floats({2, 2, 1, 2}, {9, 9, 9, 9, 1, 0, 9, 9}),
                 Floats({2, 2, 1, 2}, {9, 9, 9, 9, 2, 4, 9, 9}),
                 Int32s({2}, {0, 1}),
                 Int32s({1}, {1}),
                 Int32s({1, 1}, {1})};
  made.attributes = {{"num_heads", 1}, {"kv_num_heads", 1}, {"scale", 100.0f}};
  made.outputs = {Floats({1, 2}, {6, 8}), Floats({2, 2, 1, 2}, {9, 9, 9, 9, 1, 0, 0, 1}),
                  Floats({2, 2, 1, 2}, {9, 9, 9, 9, 2, 4, 6, 8})};
  return made;
}

OpCase EndlessWindow() {
  OpCase made = ByHand();
  made.name = "endless_window";
  made.attributes.emplace_back("local_window_size", std::numeric_limits<int64_t>::max());
  return made;
}

// Six new tokens through a ring of two blocks of 2, a window of 3: the first are overwritten.
OpCase Ring() {
  OpCase made{.name = "a_ring_shorter_than_the_prompt", .num_outputs = 3};
  made.inputs = {Values({6, 16}, 1),       Values({6, 16}, 2),       Values({6, 16}, 3),
                 Values({2, 2, 1, 16}, 4), Values({2, 2, 1, 16}, 5), Int32s({2}, {0, 6}),
                 Int32s({1}, {0}),         Int32s({1, 3}, {1, 0, 1})};
  made.attributes = {{"num_heads", 1}, {"kv_num_heads", 1}, {"local_window_size", 3}};
  return made;
}

}  // namespace

OpCases PagedAttentionCases() {
  OpCase packed = Rotated("packed");
  packed.inputs[0] = Values({7, (kHeads + 2 * kKvHeads) * kSize}, 1);
  packed.inputs[1] = packed.inputs[2] = Tensor();
  OpCase normed = Rotated("norm");
  normed.inputs[12] = Values({kSize}, 12);
  normed.inputs[13] = Values({kSize}, 13);
  OpCase sink = Case("sink", {{"softcap", 3.0f}});
  sink.inputs[11] = Values({kHeads}, 9);
  // Token 0 of the first sequence is cached already, token 1 goes elsewhere.
  OpCase slots = Case("slots");
  slots.inputs[10] = Int32s({7}, {-1, 20, 7, 0, 1, -1, 3});
  OpCase unmapped = Case("unmapped_past");
  unmapped.inputs[7] = Int32s({3, 3}, {-1, 1, -1, 0, -1, -1, 7, 2, 3});
  return OpCases("com.microsoft.PagedAttention")
      .Add(ByHand())
      .Add(EndlessWindow())
      .Add(Ring())
      .Add(Case("plain"))
      .Add(Rotated("rotated"))
      .Add(Rotated("window", {{"local_window_size", 3}}))
      .Add(Rotated("interleaved", {{"rotary_interleaved", 1}, {"rotary_offset", 2}}))
      .Add(Case("smooth", {{"smooth_softmax", 1}}))
      .Add(packed)
      .Add(normed)
      .Add(sink)
      .Add(slots)
      .Add(unmapped)
      .Add(Latent("latent"))
      .Add(Rotated("half", {}, DataType::kFloat16))
      .Add(Quantised("int8", 8, "PER_TENSOR"))
      .Add(Quantised("int8_by_channel", 8, "PER_CHANNEL"))
      .Add(Quantised("int4_by_channel", 4, "PER_CHANNEL"))
      .Within(DataType::kFloat, {.rtol = 4e-5, .atol = 1e-5}, "float sums against sums in double")
      .Within(DataType::kFloat16, {.rtol = 2e-3, .atol = 1e-3}, "float sums, rounded to half")
      .Rejects(With(Case("order"), 5, Int32s({4}, {0, 4, 3, 7})), "tokens in ascending order")
      .Rejects(With(Case("past"), 6, Int32s({3}, {10, 0, 9})), "block_table has room for 12")
      .Rejects(With(Case("block"), 7, Int32s({3, 3}, {6, 8, -1, 0, -1, -1, 7, 2, 3})),
               "block 8 of sequence 0")
      .Rejects(With(Case("unmapped"), 7, Int32s({3, 3}, {6, -1, -1, 0, -1, -1, 7, 2, 3})),
               "token 0 of sequence 0 has slot -1")
      .Rejects(With(Case("slot"), 10, Int32s({7}, {0, 1, 2, 3, 4, 5, 32})), "has slot 32")
      .Rejects(With(Rotated("cos"), 8, Values({7, 6}, 1)), "expected shape [7, 6]")
      .Rejects(With(Case("value"), 2, Tensor()), "value_cache without value")
      .Rejects(With(Case("scale"), 14, Floats({1}, {1})), "come together");
}

}  // namespace pagefuse::microsoft_ops
