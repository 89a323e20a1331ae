// SPDX-License-Identifier: Apache-2.0
// Cases of MultiHeadAttention.
#include <cmath>
#include <limits>

#include "op_test.h"

namespace pagefuse::microsoft_ops {
namespace {

// Two heads of 8 and 6 channels; 3 queries, 5 keys.
OpCase Case(std::string name, AttributeList more = {}, DataType type = DataType::kFloat) {
  OpCase made{.name = std::move(name)};
  made.inputs = {Values({2, 3, 16}, 1, type), Values({2, 5, 16}, 2, type),
                 Values({2, 5, 12}, 3, type)};
  made.inputs.resize(8);
  made.attributes = {{"num_heads", 2}};
  for (auto& attribute : more) made.attributes.push_back(std::move(attribute));
  made.num_outputs = 3;
  return made;
}

// As many queries as are computed in blocks, and some more.
OpCase Blocks(std::string name, AttributeList more = {}) {
  OpCase made = Case(std::move(name), std::move(more));
  made.inputs[0] = Values({2, 75, 16}, 1);
  made.inputs[1] = Values({2, 90, 16}, 2);
  made.inputs[2] = Values({2, 90, 12}, 3);
  return made;
}

// A value that is not finite, in a row that only the later queries of a block see.
OpCase WithNan(OpCase made) {
  Tensor& values = made.inputs[2];
  values.mutable_values<float>()[50 * values.dims()[2] + 3] =
      std::numeric_limits<float>::quiet_NaN();
  made.name += "_nan";
  return made;
}

// Without present keys and values, rows are read where they lie.
OpCase InPlace(OpCase made) {
  made.num_outputs = 1;
  made.name += "_alone";
  return made;
}

}  // namespace

OpCases MultiHeadAttentionCases() {
  OpCase heads = Case("keys_by_head");
  heads.inputs[1] = Values({2, 2, 5, 8}, 2);
  heads.inputs[2] = Values({2, 2, 5, 6}, 3);
  OpCase packed_kv = Case("keys_and_values_in_one");
  packed_kv.inputs[1] = Values({2, 5, 2, 2, 8}, 2);
  packed_kv.inputs[2] = Tensor();
  OpCase packed = Case("all_in_one", {{"unidirectional", 1}});
  packed.inputs[0] = Values({2, 3, 2, 3, 8}, 2);
  packed.inputs[1] = packed.inputs[2] = Tensor();
  OpCase past = Case("past", {{"unidirectional", 1}, {"scale", 0.7f}});
  past.inputs[6] = Values({2, 2, 4, 8}, 4);
  past.inputs[7] = Values({2, 2, 4, 6}, 5);
  OpCase both = With(Case("bias_and_mask"), 5, Values({1, 2, 3, 5}, 6));
  both.inputs[4] = Int32s({2, 5}, {1, 1, 1, 0, 0, 1, 0, 1, 1, 1});
  const OpCase by_hand{
      .name = "by_hand",
      .inputs = {Floats({1, 1, 1}, {1}), Floats({1, 2, 1}, {0, 0}), Floats({1, 2, 1}, {2, 4})},
      .attributes = {{"num_heads", 1}},
      .outputs = {Floats({1, 1, 1}, {3})}};
  // Queries of 1 channel over keys that are 0, so that all keys seen weigh the same.
  const Tensor queries = Floats({1, 2, 1}, {1, 1}), keys = Floats({1, 2, 1}, {0, 0});
  const auto even = [&](std::string name, std::vector<float> y, AttributeList more = {}) {
    OpCase made{.name = std::move(name),
                .inputs = {queries, keys, Floats({1, 2, 1}, {0, 6})},
                .attributes = {{"num_heads", 1}},
                .outputs = {Floats({1, 2, 1}, y)}};
    made.inputs.resize(8);
    for (auto& attribute : more) made.attributes.push_back(std::move(attribute));
    return made;
  };
  OpCase even_past = even("even_causal_past", {3, 4}, {{"unidirectional", 1}});
  even_past.inputs[6] = Floats({1, 1, 1, 1}, {0});
  even_past.inputs[7] = Floats({1, 1, 1, 1}, {6});
  even_past.outputs.push_back(Floats({1, 1, 3, 1}, {0, 0, 0}));
  even_past.outputs.push_back(Floats({1, 1, 3, 1}, {6, 0, 6}));
  OpCase even_packed = even("even_in_one", {3, 3});
  even_packed.inputs = {Floats({1, 2, 1, 3, 1}, {1, 0, 2, 1, 0, 4})};
  const float third = -std::log(3.0f);
  return OpCases("com.microsoft.MultiHeadAttention")
      .Add(by_hand)
      .Add(even("even", {3, 3}))
      .Add(even("even_causal", {0, 3}, {{"unidirectional", 1}}))
      .Add(even_past)
      .Add(even_packed)
      .Add(With(even("even_with_a_bias", {4, 4}), 3, Floats({3}, {0, 0, 1})))
      .Add(With(even("even_length", {0, 0}), 4, Int32s({1}, {1})))
      .Add(With(even("filtered_to_a_third", {1.5f, 1.5f}, {{"mask_filter_value", third}}), 4,
                Int32s({1, 2}, {1, 0})))
      .Add(With(even("biased_to_a_third", {4.5f, 3}), 5, Floats({1, 1, 2, 2}, {third, 0, 0, 0})))
      .Add(Case("plain"))
      .Add(Blocks("blocks"))
      .Add(InPlace(Blocks("blocks")))
      .Add(InPlace(Case("plain")))
      .Add(InPlace(packed))
      .Add(InPlace(packed_kv))
      .Add(Blocks("causal_blocks", {{"unidirectional", 1}}))
      .Add(WithNan(Blocks("causal_blocks", {{"unidirectional", 1}})))
      .Add(With(Blocks("biased_blocks"), 5, Values({1, 2, 75, 90}, 6)))
      .Add(With(Case("projection_bias"), 3, Values({44}, 7)))
      .Add(With(Case("lengths"), 4, Int32s({2}, {2, 5})))
      .Add(With(Case("mask_by_query"), 4,
                Int32s({2, 3, 5}, {1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 0,
                                   0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1})))
      .Add(With(Case("attention_bias"), 5, Values({2, 1, 3, 5}, 6)))
      .Add(both)
      .Add(heads)
      .Add(packed_kv)
      .Add(packed)
      .Add(past)
      .Add(With(Case("half", {}, DataType::kFloat16), 3, Values({44}, 7, DataType::kFloat16)))
      .Within(DataType::kFloat, {.rtol = 4e-5, .atol = 1e-5}, "float sums against sums in double")
      .Rejects(With(Case("lengths"), 4, Int32s({2}, {2, 6})), "expected 0 to 5 keys, got 6")
      .Rejects(With(Case("value"), 2, Tensor()), "do not go together")
      .Rejects(With(Case("bias"), 3, Values({43}, 7)), "expected shape [44]")
      .Rejects(With(Case("mask"), 4, Int32s({2, 4}, std::vector<float>(8, 1))),
               "expected shape [2, 5]");
}

}  // namespace pagefuse::microsoft_ops
