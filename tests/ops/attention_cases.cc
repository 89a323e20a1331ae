// SPDX-License-Identifier: Apache-2.0
// Cases of Attention and RotaryEmbedding.
#include <limits>

#include "op_test.h"

namespace pagefuse::onnx_ops {
namespace {

Tensor Heads(std::vector<int64_t> dims, uint64_t seed) {
  return Random(DataType::kFloat, std::move(dims), Normal{0, 1}, seed);
}

// Q, K, V with 4 query heads on 2 key heads, past of 5 rows where asked, more inputs behind.
OpCase Grouped(std::string name, AttributeList attributes, std::vector<Tensor> more = {}) {
  OpCase made{.name = std::move(name),
              .inputs = {Heads({2, 4, 3, 17}, 1), Heads({2, 2, 9, 17}, 2), Heads({2, 2, 9, 70}, 3)},
              .attributes = std::move(attributes)};
  for (Tensor& tensor : more) made.inputs.push_back(std::move(tensor));
  return made;
}

// The same with as many queries as are computed in blocks, the last of them not full.
OpCase Long(std::string name, AttributeList attributes, std::vector<Tensor> more = {}) {
  OpCase made = Grouped(std::move(name), std::move(attributes), std::move(more));
  made.inputs[0] = Heads({2, 4, 139, 17}, 1);
  made.inputs[1] = Heads({2, 2, 150, 17}, 2);
  made.inputs[2] = Heads({2, 2, 150, 70}, 3);
  return made;
}

// More queries than keys: with a window the last of them see none, though it is wider than all
// keys.
OpCase FewKeys(std::string name, AttributeList attributes) {
  OpCase made = Grouped(std::move(name), std::move(attributes));
  made.inputs[0] = Heads({2, 4, 139, 17}, 1);
  return made;
}

// Every third key, and none for query 5.
Tensor LongMask(int64_t width) {
  std::vector<bool> sees;
  for (int64_t i = 0; i < 139 * width; ++i) sees.push_back(i / width != 5 && i % 3 == 0);
  return Bools({139, width}, sees);
}

// A value that only a masked key has is no number, and spoils nothing.
OpCase WithNanBehindMask() {
  OpCase made = Long("long_nan_behind_mask", {}, {LongMask(150)});
  made.inputs[2].mutable_values<float>()[70] = std::numeric_limits<float>::quiet_NaN();
  return made;
}

}  // namespace

OpCases AttentionCases() {
  const Tensor mask = Bools(
      {3, 9}, {1, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  const Tensor bias = Heads({2, 1, 3, 9}, 4);
  const Tensor past_k = Heads({2, 2, 5, 17}, 5);
  const Tensor past_v = Heads({2, 2, 5, 70}, 6);
  OpCase with_past =
      Grouped("past", {{"is_causal", 1}, {"left_window_size", 3}}, {Tensor(), past_k, past_v});
  with_past.num_outputs = 3;
  return OpCases("Attention")
      .Add("sees_the_first_key",
           {Floats({1, 1, 1, 1}, {1}), Floats({1, 1, 2, 1}, {1, 1}), Floats({1, 1, 2, 1}, {3, 7})},
           {Floats({1, 1, 1, 1}, {3})}, {{"is_causal", 1}})
      .Add("sees_nothing",
           {Floats({1, 1, 1, 1}, {1}), Floats({1, 1, 2, 1}, {1, 1}), Floats({1, 1, 2, 1}, {3, 7}),
            Bools({1, 2}, {false, false})},
           {Floats({1, 1, 1, 1}, {0})})
      .Add(Grouped("plain", {}))
      .Add(Grouped("softcap", {{"softcap", 2.0f}, {"scale", 0.3f}}))
      .Add(Grouped("bool_mask", {}, {mask}))
      .Add(Grouped("float_mask", {{"is_causal", 1}}, {bias}))
      .Add(Grouped("window", {{"left_window_size", 1}, {"right_window_size", 2}}))
      .Add(
          Grouped("lengths", {{"is_causal", 1}}, {Tensor(), Tensor(), Tensor(), Ints({2}, {2, 9})}))
      .Add(with_past)
      .Add(Long("long", {}))
      .Add(Long("long_causal_softcap", {{"is_causal", 1}, {"softcap", 2.0f}}))
      .Add(Long("long_window", {{"is_causal", 1}, {"left_window_size", 20}}))
      .Add(Long("long_left_window_alone", {{"left_window_size", 40}}))
      .Add(Long("long_window_of_all", {{"left_window_size", 160}}))
      .Add(Long("long_both_windows", {{"left_window_size", 9}, {"right_window_size", 2}}))
      .Add(Long("long_right_window", {{"right_window_size", 7}}))
      .Add(Long("long_endless_windows",
                {{"left_window_size", std::numeric_limits<int64_t>::max()},
                 {"right_window_size", std::numeric_limits<int64_t>::max()}}))
      .Add(FewKeys("few_keys_wide_window", {{"left_window_size", 40}}))
      .Add(FewKeys("few_keys_both_windows", {{"left_window_size", 12}, {"right_window_size", 3}}))
      .Add(Long("long_mask_for_all_keys", {}, {Heads({139, 1}, 4)}))
      .Add(Long("long_bool_mask", {}, {LongMask(150)}))
      .Add(Long("long_narrow_mask", {{"is_causal", 1}}, {LongMask(120)}))
      .Add(Long("long_float_mask", {{"is_causal", 1}}, {Heads({2, 1, 139, 150}, 4)}))
      .Add(Long("long_lengths", {{"is_causal", 1}},
                {Tensor(), Tensor(), Tensor(), Ints({2}, {60, 150})}))
      .Add(Long("long_past", {{"is_causal", 1}}, {Tensor(), past_k, past_v}))
      .Add(WithNanBehindMask())
      .Add({.name = "long_packed",
            .inputs = {Heads({2, 30, 8}, 1), Heads({2, 50, 4}, 2), Heads({2, 50, 6}, 3)},
            .attributes = {{"q_num_heads", 4}, {"kv_num_heads", 2}}})
      .Add({.name = "packed",
            .inputs = {Heads({2, 3, 8}, 1), Heads({2, 5, 4}, 2), Heads({2, 5, 6}, 3)},
            .attributes = {{"q_num_heads", 4}, {"kv_num_heads", 2}}})
      .Within(DataType::kFloat, {.rtol = 2e-5, .atol = 2e-6}, "float sums against sums in double")
      .Rejects(Grouped("lengths", {}, {Tensor(), Tensor(), Tensor(), Ints({2}, {2, 10})}),
               "expected 0 to 9")
      .Rejects(Grouped("mask", {}, {Bools({2, 9}, std::vector<bool>(18, true))}),
               "does not broadcast")
      .Rejects({Heads({1, 3, 1, 4}, 1), Heads({1, 2, 1, 4}, 2), Heads({1, 2, 1, 4}, 3)},
               "are not a multiple of");
}

OpCases RotaryEmbeddingCases() {
  // A quarter turn of the first pair, none of the second.
  const Tensor cosines = Floats({1, 1, 2}, {0, 1});
  const Tensor sines = Floats({1, 1, 2}, {1, 0});
  const Tensor x = Floats({1, 1, 1, 5}, {1, 2, 3, 4, 5});
  const std::pair<std::string, AttributeValue> four = {"rotary_embedding_dim", 4};
  const Tensor table = Heads({7, 4}, 3);
  return OpCases("RotaryEmbedding")
      .Add("halves", {x, cosines, sines}, {Floats({1, 1, 1, 5}, {-3, 2, 1, 4, 5})}, {four})
      .Add("neighbours", {x, cosines, sines}, {Floats({1, 1, 1, 5}, {-2, 1, 3, 4, 5})},
           {four, {"interleaved", 1}})
      .Add({.name = "packed_by_position",
            .inputs = {Heads({2, 3, 16}, 1), table, table, Ints({2, 3}, {0, 1, 2, 6, 6, 0})},
            .attributes = {{"num_heads", 2}}})
      .Rejects({Heads({1, 1, 16}, 1), table, table, Ints({1, 1}, {7})}, {{"num_heads", 2}},
               "the caches have 7 rows")
      .Rejects({Heads({1, 1, 16}, 1), cosines, sines}, "is required");
}

}  // namespace pagefuse::onnx_ops
