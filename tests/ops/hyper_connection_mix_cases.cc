// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "op_test.h"

namespace pagefuse::pagefuse_ops {
namespace {

OpCase CaseOf(const std::string& name, std::vector<int64_t> lead, int64_t streams, int64_t rounds) {
  const int64_t columns = (2 + streams) * streams;
  lead.push_back(columns);
  return {.name = name,
          .inputs = {Random(DataType::kFloat, lead, Normal{0, 2}, 1),
                     Random(DataType::kFloat, {3}, Uniform{0.5, 1.5}, 2),
                     Random(DataType::kFloat, {columns}, Normal{0, 0.3}, 3)},
          .attributes = {{"streams", streams}, {"rounds", rounds}}};
}

// One stream, sigmoid (0) = 1/2; a matrix of one element is 1 whatever it was. epsilon is 1/4:
// comb = (1 + 1/4) / (1 + 1/4 + 1/4) = 5/6.
OpCase ByHand() {
  return {
      .name = "by_hand",
      .inputs = {Floats({1, 3}, {0, 0, 7}), Floats({3}, {1, 1, 1}), Floats({3}, {0, 0, 0})},
      .attributes = {{"streams", 1}, {"rounds", 1}, {"epsilon", 0.25f}},
      .outputs = {Floats({1, 1}, {0.75f}), Floats({1, 1}, {1}), Floats({1, 1, 1}, {1.25f / 1.5f})}};
}

}  // namespace

OpCases HyperConnectionMixCases() {
  OpCase other_numbers = CaseOf("other_numbers", {5}, 3, 2);
  other_numbers.attributes.emplace_back("epsilon", 1e-2f);
  other_numbers.attributes.emplace_back("post_factor", 3.0f);
  return OpCases("pagefuse.HyperConnectionMix")
      .Add(ByHand())
      .Add(CaseOf("published", {2, 3}, 4, 20))
      .Add(CaseOf("one_round", {7}, 4, 1))
      .Add(CaseOf("odd", {1, 2, 3}, 3, 4))
      .Add(CaseOf("no_tokens", {0}, 2, 3))
      .Add(other_numbers)
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 1e-6}, "e^x, then quotients round by round")
      .Rejects({Floats({1, 7}, {0, 0, 0, 0, 0, 0, 0}), Floats({3}, {1, 1, 1}),
                Floats({8}, {0, 0, 0, 0, 0, 0, 0, 0})},
               {{"streams", 2}, {"rounds", 1}}, "input 0 \"logits\"");
}

}  // namespace pagefuse::pagefuse_ops
