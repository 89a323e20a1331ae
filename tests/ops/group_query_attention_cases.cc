// SPDX-License-Identifier: Apache-2.0
// Cases of GroupQueryAttention.
#include <limits>

#include "op_test.h"

namespace pagefuse::microsoft_ops {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kSize = 16;

struct Step {
  int64_t length = 3;                 // new tokens
  int64_t past = 0;                   // rows of the past, 0: none is given
  std::vector<int32_t> lengths = {};  // tokens of each sequence
  DataType type = DataType::kFloat;
};

// Two sequences; inputs 7 on are to be set by the case.
OpCase Case(std::string name, const Step& step, const AttributeList& more = {}) {
  OpCase made{.name = std::move(name), .num_outputs = 3};
  const auto batch = static_cast<int64_t>(step.lengths.size());
  std::vector<int32_t> seqlens;
  int32_t longest = 0;
  for (const int32_t length : step.lengths) {
    seqlens.push_back(length - 1);
    longest = std::max(longest, length);
  }
  made.inputs.resize(16);
  made.inputs[0] = Values({batch, step.length, kHeads * kSize}, 1, step.type);
  made.inputs[1] = Values({batch, step.length, kKvHeads * kSize}, 2, step.type);
  made.inputs[2] = Values({batch, step.length, kKvHeads * kSize}, 3, step.type);
  if (step.past > 0) {
    made.inputs[3] = Values({batch, kKvHeads, step.past, kSize}, 4, step.type);
    made.inputs[4] = Values({batch, kKvHeads, step.past, kSize}, 5, step.type);
  }
  made.inputs[5] = Int32s({batch}, seqlens);
  made.inputs[6] = Int32s({}, {longest});
  made.attributes = {{"num_heads", kHeads}, {"kv_num_heads", kKvHeads}};
  for (const auto& attribute : more) made.attributes.push_back(attribute);
  return made;
}

OpCase Rotated(std::string name, const Step& step, AttributeList more = {}, int64_t half = 8) {
  more.emplace_back("do_rotary", 1);
  OpCase made = Case(std::move(name), step, more);
  made.inputs[7] = Values({32, half}, 6, step.type);
  made.inputs[8] = Values({32, half}, 7, step.type);
  return made;
}

// A past of 8-bit (4-bit) codes.
OpCase Quantised(std::string name, int64_t bits, const std::string& kind) {
  OpCase made =
      Rotated(std::move(name), {.length = 1, .past = 5, .lengths = {4, 6}},
              {{"k_quant_type", kind}, {"v_quant_type", kind}, {"kv_cache_bit_width", bits}});
  const Filling any = bits == 8 ? Uniform{-127, 127} : Uniform{0, 255};
  const DataType type = bits == 8 ? DataType::kInt8 : DataType::kUint8;
  const int64_t stored = bits == 8 ? kSize : kSize / 2;
  const std::vector<int64_t> scales =
      kind == "PER_TENSOR" ? std::vector<int64_t>{1} : std::vector<int64_t>{kKvHeads, 1, kSize};
  const Filling scale = bits == 8 ? Uniform{0.01, 0.03} : Uniform{0.2, 0.4};
  for (int i = 0; i < 2; ++i) {
    made.inputs[3 + i] = Random(type, {2, kKvHeads, 5, stored}, any, 10 + i);
    made.inputs[12 + i] = Random(DataType::kFloat, scales, scale, 12 + i);
  }
  return made;
}

// One head of two channels, so that a hand can follow.
OpCase ByHand() {
  OpCase made{.name = "by_hand"};
  made.inputs = {Floats({1, 2, 2}, {1, 0, 0, 1}),
                 Floats({1, 2, 2}, {1, 0, 0, 1}),
                 Floats({1, 2, 2}, {2, 4, 6, 8}),
                 Tensor(),
                 Tensor(),
                 Int32s({1}, {1}),
                 Int32s({}, {2})};
  made.attributes = {{"num_heads", 1}, {"kv_num_heads", 1}, {"scale", 100.0f}};
  // Token 0 sees itself; token 1 scores 0 and 100.
  made.outputs = {Floats({1, 2, 2}, {2, 4, 6, 8}), Floats({1, 1, 2, 2}, {1, 0, 0, 1}),
                  Floats({1, 1, 2, 2}, {2, 4, 6, 8})};
  return made;
}

OpCase EndlessWindow() {
  OpCase made = ByHand();
  made.name = "endless_window";
  made.attributes.emplace_back("local_window_size", std::numeric_limits<int64_t>::max());
  return made;
}

OpCase WindowOfNone() {
  OpCase made = ByHand();
  made.name = "window_of_none";
  made.attributes.emplace_back("local_window_size", int64_t{0});
  made.outputs[0] = Floats({1, 2, 2}, {0, 0, 0, 0});
  return made;
}

OpCase HalfToSink() {
  OpCase made = ByHand();
  made.name = "half_goes_to_the_sink";
  made.inputs[0] = Floats({1, 2, 2}, {0, 0, 0, 0});
  made.inputs.resize(12);
  made.inputs[11] = Floats({1}, {0});
  made.outputs[0] = Floats({1, 2, 2}, {1, 2, 8.0f / 3, 4});
  return made;
}

OpCases& AddVariants(OpCases& cases) {
  OpCase packed = Rotated("packed", {.length = 3, .lengths = {3, 3}});
  packed.inputs[0] = Values({2, 3, (kHeads + 2 * kKvHeads) * kSize}, 1);
  packed.inputs[1] = packed.inputs[2] = Tensor();
  OpCase positions = Rotated("positions", {.length = 2, .past = 4, .lengths = {6, 6}});
  positions.inputs[9] = Ints({2, 2}, {7, 9, 0, 31});
  OpCase biased = Case("bias", {.length = 2, .past = 4, .lengths = {6, 5}}, {{"softcap", 3.0f}});
  biased.inputs[10] = Values({1, kHeads, 2, 6}, 8);
  OpCase blocks = Case("blocks", {.length = 70, .past = 20, .lengths = {90, 71}},
                       {{"softcap", 3.0f}, {"local_window_size", 17}});
  blocks.inputs[11] = Values({kHeads}, 9);
  cases.Add(blocks);
  OpCase sink = Case("sink", {.length = 1, .past = 4, .lengths = {5, 2}});
  sink.inputs[11] = Values({kHeads}, 9);
  OpCase normed = Rotated("norm", {.length = 3, .lengths = {3, 2}});
  normed.inputs[14] = Values({kSize}, 14);
  normed.inputs[15] = Values({kSize}, 15);
  OpCase shared = Case("past_alone", {.length = 2, .past = 6, .lengths = {6, 4}});
  shared.inputs[1] = Values({2, 0, kKvHeads * kSize}, 2);
  shared.inputs[2] = shared.inputs[1];
  OpCase windowed = Rotated("windowed_bias", {.length = 2, .past = 5, .lengths = {9, 9}},
                            {{"sliding_window_cache", 1}, {"local_window_size", 4}});
  windowed.inputs[10] = Values({2, 1, 2, 9}, 8);
  return cases.Add(packed).Add(positions).Add(biased).Add(sink).Add(normed).Add(shared).Add(
      windowed);
}

OpCase Wrong(std::string name, int input, Tensor tensor) {
  OpCase made = Rotated(std::move(name), {.length = 1, .past = 4, .lengths = {5, 3}});
  made.inputs[input] = std::move(tensor);
  return made;
}

}  // namespace

OpCases GroupQueryAttentionCases() {
  const AttributeList windowed = {{"sliding_window_cache", 1}, {"local_window_size", 4}};
  OpCases cases("com.microsoft.GroupQueryAttention");
  OpCase bytes = Wrong("bytes", 3, Random(DataType::kInt8, {2, kKvHeads, 4, kSize}, Normal{}, 1));
  bytes.inputs[4] = bytes.inputs[3];
  cases.Add(ByHand())
      .Add(EndlessWindow())
      .Add(WindowOfNone())
      .Add(HalfToSink())
      .Add(Case("prompt", {.length = 3, .lengths = {3, 3}}))
      .Add(Rotated("padded_prompt", {.length = 5, .past = 2, .lengths = {5, 2}}))
      .Add(Rotated("decode", {.length = 1, .past = 6, .lengths = {7, 3}}))
      .Add(Rotated("decode_in_a_long_cache", {.length = 1, .past = 12, .lengths = {7, 3}}))
      .Add(Rotated("chunk", {.length = 3, .past = 6, .lengths = {8, 4}},
                   {{"rotary_interleaved", 1}}))
      .Add(Rotated("window", {.length = 3, .past = 6, .lengths = {9, 9}},
                   {{"local_window_size", 2}}, 4))
      .Add(Case("smooth", {.length = 2, .past = 6, .lengths = {8, 8}}, {{"smooth_softmax", 1}}))
      .Add(Case("both_ways", {.length = 3, .lengths = {3, 3}}, {{"causal", 0}}))
      .Add(Rotated("windowed_prompt", {.length = 9, .past = 4, .lengths = {9, 5}}, windowed))
      .Add(Rotated("windowed_decode", {.length = 1, .past = 4, .lengths = {11, 3}}, windowed))
      .Add(Rotated("windowed_with_slack", {.length = 2, .past = 6, .lengths = {11, 5}}, windowed))
      .Add(Rotated("half", {.length = 2, .past = 6, .lengths = {8, 8}, .type = DataType::kFloat16}))
      .Add(Quantised("int8", 8, "PER_TENSOR"))
      .Add(Quantised("int8_by_channel", 8, "PER_CHANNEL"))
      .Add(Quantised("int4", 4, "PER_TENSOR"))
      .Add(Quantised("int4_by_channel", 4, "PER_CHANNEL"));
  AddVariants(cases);
  return cases
      .Within(DataType::kFloat, {.rtol = 4e-5, .atol = 1e-5}, "float sums against sums in double")
      .Within(DataType::kFloat16, {.rtol = 2e-3, .atol = 1e-3}, "float sums, rounded to half")
      .Rejects(Wrong("seqlens", 5, Int32s({2}, {4, 5})), "expected 0 to 4 for sequence 1, got 5")
      .Rejects(Wrong("past", 3, Values({2, kKvHeads, 3, kSize}, 1)), "as many rows as past_key")
      .Rejects(Wrong("cos", 7, Values({4, 8}, 1)), "expected shape [4, 8]")
      .Rejects(bytes, "does not fit the quantisation")
      .Rejects(Wrong("sink", 11, Values({3}, 1)), "expected shape [4]")
      .Rejects(Case("rows", {.length = 1, .past = 2, .lengths = {5, 3}}),
               "has 4 tokens before the new ones")
      .Rejects(Case("rotary", {.length = 1, .past = 4, .lengths = {5, 3}}, {{"do_rotary", 1}}),
               "needs cos_cache and sin_cache");
}

}  // namespace pagefuse::microsoft_ops
