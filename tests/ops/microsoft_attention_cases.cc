// SPDX-License-Identifier: Apache-2.0
// Cases of Attention and EmbedLayerNormalization of com.microsoft.
#include <cmath>
#include <random>

#include "op_test.h"

namespace pagefuse::microsoft_ops {
namespace {

// Zeros and ones; every query sees key 0.
Tensor Bits(std::vector<int64_t> dims, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values;
  const int64_t columns = dims.back();
  for (int64_t i = 0; i < ElementCount(dims); ++i) {
    values.push_back(i % columns == 0 || random() % 2 == 0 ? 1.0f : 0.0f);
  }
  return Int32s(std::move(dims), values);
}

// Two sequences of 3 tokens, two heads of 4 channels.
OpCase Case(std::string name, AttributeList more = {}, DataType type = DataType::kFloat) {
  OpCase made{.name = std::move(name)};
  made.inputs = {Values({2, 3, 6}, 1, type), Values({6, 24}, 2, type), Values({24}, 3, type)};
  made.inputs.resize(6);
  made.attributes = {{"num_heads", 2}};
  for (auto& attribute : more) made.attributes.push_back(std::move(attribute));
  made.num_outputs = 2;
  return made;
}

OpCase WithPast(std::string name, AttributeList more = {}) {
  return With(Case(std::move(name), std::move(more)), 4, Values({2, 2, 2, 5, 4}, 4));
}

constexpr const char* kSums = "float sums against sums in double";

}  // namespace

OpCases AttentionCases() {
  const AttributeList causal = {{"unidirectional", 1}};
  // One channel; the query is 0, so that both keys weigh the same.
  const OpCase by_hand{
      .name = "by_hand",
      .inputs = {Floats({1, 2, 1}, {2, 4}), Floats({1, 3}, {0, 1, 1})},
      .attributes = {{"num_heads", 1}},
      .outputs = {Floats({1, 2, 1}, {3, 3}), Floats({2, 1, 1, 2, 1}, {2, 4, 2, 4})}};
  const AttributeList rotary = {{"unidirectional", 1}, {"do_rotary", 1}};
  // Token 0 stays, token 1 turns by one radian: the query (1, 0) and keys of both tokens (1, 0).
  const float c = std::cos(1.0f), s = std::sin(1.0f);
  const float other = 1 / (1 + std::exp((1 - c) / std::sqrt(2.0f)));  // by a key one place away
  const OpCase rotated_by_hand{.name = "rotated_by_hand",
                               .inputs = {Floats({1, 2, 2}, {1, 0, 1, 2}),
                                          Floats({2, 6}, {1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0})},
                               .attributes = {{"num_heads", 1}, {"do_rotary", 1}},
                               .outputs = {Floats({1, 2, 2}, {2 * other, 0, 2 * (1 - other), 0}),
                                           Floats({2, 1, 1, 2, 2}, {1, 0, c, s, 0, 0, 2, 0})}};
  OpCase alone = Case("alone", causal);
  alone.num_outputs = 1;
  OpCase sizes =
      Case("value_of_another_size", {{"qkv_hidden_sizes", std::vector<int64_t>{8, 8, 6}}});
  sizes.inputs[1] = Values({6, 22}, 2);
  sizes.inputs[2] = Values({22}, 3);
  sizes.num_outputs = 1;
  OpCase sizes_with_present = sizes;
  sizes_with_present.num_outputs = 2;
  return OpCases("com.microsoft.Attention")
      .Add(by_hand)
      .Add(Case("plain"))
      .Add(Case("causal", causal))
      .Add(alone)
      .Add(sizes)
      .Add(With(Case("no_bias"), 2, Tensor()))
      .Add(Case("scale", {{"scale", 0.3f}}))
      .Add(WithPast("past", causal))
      .Add(WithPast("past_of_both_directions"))
      .Add(With(Case("lengths"), 3, Int32s({2}, {3, 1})))
      .Add(With(WithPast("lengths_with_a_past", causal), 3, Int32s({2}, {8, 6})))
      .Add(With(Case("ends_and_begins"), 3, Int32s({4}, {3, 2, 1, 0})))
      .Add(With(Case("keys_seen", causal), 3, Int32s({2, 3}, {1, 1, 1, 0, 1, 1})))
      .Add(With(Case("keys_seen_by_query"), 3,
                Int32s({2, 3, 3}, {1, 0, 0, 1, 1, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1, 1, 0, 1})))
      .Add(With(Case("another_filter", {{"mask_filter_value", -2.0f}}), 3,
                Int32s({2, 3}, {1, 0, 1, 0, 1, 1})))
      .Add(With(Case("keys_seen_by_head"), 3,
                Int32s({2, 1, 3, 3}, {1, 0, 0, 1, 1, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1, 1, 0, 1})))
      .Add(With(Case("keys_seen_of_one"), 3, Int32s({1, 1, 3, 3}, {1, 1, 0, 0, 1, 1, 1, 0, 1})))
      .Add(With(WithPast("keys_seen_by_head_with_a_past"), 3, Bits({2, 1, 3, 8}, 11)))
      .Add(With(WithPast("places", causal), 3, Bits({2, 1, 10, 10}, 12)))
      .Add(With(WithPast("just_these_places"), 3, Bits({2, 1, 8, 8}, 13)))
      .Add(rotated_by_hand)
      .Add(Case("rotary", rotary))
      .Add(With(Case("rotary_without_bias", rotary), 2, Tensor()))
      .Add(WithPast("rotary_with_a_past", rotary))
      .Add(With(
          WithPast("rotary_in_part_and_places", {{"do_rotary", 1}, {"rotary_embedding_dim", 2}}), 3,
          Bits({2, 1, 10, 10}, 12)))
      .Add(With(Case("score_bias"), 5, Values({1, 2, 3, 3}, 5)))
      .Add(With(With(Case("score_bias_and_lengths", causal), 3, Int32s({2}, {2, 3})), 5,
                Values({2, 1, 3, 3}, 5)))
      .Add(Case("half", causal, DataType::kFloat16))
      .Within(DataType::kFloat, {.rtol = 4e-5, .atol = 2e-5}, kSums)
      .Rejects(Case("heads", {{"num_heads", 5}}), "expected 5 heads of one size")
      .Rejects(Case("rotary", {{"do_rotary", 1}, {"rotary_embedding_dim", 6}}),
               "expected an even number up to the 4 channels of a head, got 6")
      .Rejects(Case("rotary", {{"do_rotary", 1}, {"rotary_embedding_dim", 3}}),
               "expected an even number up to the 4 channels of a head, got 3")
      .Rejects(Case("shared", {{"past_present_share_buffer", 1}}), "expected 0, got 1")
      .Rejects(With(Case("past_length"), 6, Int32s({1}, {0})), "expected none")
      .Rejects(With(Case("bias"), 2, Values({23}, 3)), "expected shape [24]")
      .Rejects(With(Case("mask"), 3, Int32s({3}, {1, 1, 1})), "expected [B] or [2 B]")
      .Rejects(With(Case("mask_rank"), 3, Int32s({2, 1, 1, 3, 3}, std::vector<float>(18, 1))),
               "expected [B], [2 B], [B, T], [B, S, T], [B, 1, S, T] or [B, 1, max, max]")
      .Rejects(With(WithPast("too_few_places"), 3, Bits({2, 1, 7, 7}, 12)),
               "expected [2, 1, 3, 8], or [B, 1, max, max] of at least 8 places, got [2, 1, 7, 7]")
      .Rejects(With(Case("lengths"), 3, Int32s({2}, {3, 4})), "expected 0 to 3 keys, got 4")
      .Rejects(With(Case("past"), 4, Values({2, 2, 2, 5, 3}, 4)), "expected shape")
      .Rejects(sizes_with_present, "expected keys and values of one size in a cache");
}

OpCases EmbedLayerNormalizationCases() {
  const Tensor ids = Int32s({2, 3}, {4, 0, 1, 3, 3, 2}),
               segments = Int32s({2, 3}, {0, 0, 1, 1, 1, 1});
  const Tensor words = Values({5, 8}, 1), places = Values({7, 8}, 2), kinds = Values({2, 8}, 3);
  const Tensor gamma = Values({8}, 4), beta = Values({8}, 5);
  const auto made = [&](std::string name, int outputs) {
    return OpCase{.name = std::move(name),
                  .inputs = {ids, segments, words, places, kinds, gamma, beta},
                  .attributes = {{"epsilon", 1e-5f}},
                  .num_outputs = outputs};
  };
  const OpCase without = With(With(made("no_segments", 3), 1, Tensor()), 4, Tensor());
  return OpCases("com.microsoft.EmbedLayerNormalization")
      .Add({.name = "by_hand",  // 1 + 0 and 1 + 2: their mean 2, their variance 1
            .inputs = {Int32s({1, 1}, {0}), Tensor(), Floats({1, 2}, {1, 1}),
                       Floats({1, 2}, {0, 2}), Tensor(), Floats({2}, {1, 2}), Floats({2}, {0, 5})},
            .attributes = {{"epsilon", 0.0f}},
            .outputs = {Floats({1, 1, 2}, {-1, 7}), Int32s({1}, {0}), Floats({1, 1, 2}, {1, 3})}})
      .Add(made("segments", 3))
      .Add(made("alone", 1))
      .Add(without)
      .Add(With(made("mask", 3), 7, Int32s({2, 3}, {1, 1, 0, 1, 1, 1})))
      .Add(With(without, 8, Int32s({2, 3}, {6, 5, 4, 0, 1, 2})))
      .Add(With(made("positions_of_all", 1), 8, Int32s({1, 3}, {3, 4, 5})))
      .Within(DataType::kFloat, {.rtol = 4e-5, .atol = 4e-6}, kSums)
      .Rejects(With(made("segment_table", 1), 4, Tensor()), "come together")
      .Rejects(With(made("word", 1), 0, Int32s({2, 3}, {5, 0, 0, 0, 0, 0})),
               "index 5 is out of range")
      .Rejects(With(made("places", 1), 3, Values({2, 8}, 2)),
               "expected a row for each of 3 places");
}

}  // namespace pagefuse::microsoft_ops
