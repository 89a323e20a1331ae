// SPDX-License-Identifier: Apache-2.0
// Cases of AddNorm.
#include "op_test.h"

namespace pagefuse::pagefuse_ops {
namespace {

std::vector<std::vector<int64_t>> ShapesOf(const std::vector<int64_t>& rows) {
  const std::vector<int64_t> weight = {rows.back()};
  return {rows, rows, weight, weight};
}

// The mean squares are 1 and 4, and nothing is added to them: 2 * 1 and 6 * -1 are added.
OpCase ByHand() {
  return {.name = "by_hand",
          .inputs = {Floats({1, 2}, {1, -1}), Floats({1, 2}, {0, 8}), Floats({2}, {2, 6}),
                     Floats({2}, {3, 5})},
          .attributes = {{"x_epsilon", 0.0f}, {"epsilon", 0.0f}},
          .outputs = {Floats({1, 2}, {2, 2}), Floats({1, 2}, {3, 5})}};
}

// Each norm has its own: 8 + 1 is 3 squared, and 3 + 13 is 4 squared.
OpCase TwoEpsilons() {
  const float part = 2.8284271f;  // squared, 8
  return {.name = "two_epsilons",
          .inputs = {Floats({2}, {part, part}), Floats({2}, {0, 0}),
                     Floats({2}, {3 * 1.7320508f / part, 3 * 1.7320508f / part}),
                     Floats({2}, {4 / 1.7320508f, 4 / 1.7320508f})},
          .attributes = {{"x_epsilon", 1.0f}, {"epsilon", 13.0f}},
          .outputs = {Floats({2}, {1.7320508f, 1.7320508f}), Floats({2}, {1, 1})}};
}

}  // namespace

OpCases AddNormCases() {
  const Tensor row = Floats({1, 2}, {1, 2}), weight = Floats({2}, {1, 1});
  return OpCases("pagefuse.AddNorm")
      .Add(ByHand())
      .Add(TwoEpsilons())
      .ShapeSets({ShapesOf({1, 1}), ShapesOf({3, 8}), ShapesOf({2, 3, 37}), ShapesOf({5, 128}),
                  ShapesOf({40}), ShapesOf({2, 1152}), ShapesOf({1, 9000}), ShapesOf({0, 8})})
      .Within(DataType::kFloat, {.rtol = 2e-5, .atol = 4e-6}, "squares are summed in float")
      .Within(DataType::kFloat16, {.rtol = 4e-3, .atol = 2e-3},
              "a branch or sum on the border of two numbers of the type moves by one of them")
      .Within(DataType::kBfloat16, {.rtol = 3e-2, .atol = 2e-2}, "as of float16")
      .Rejects({row, Floats({2, 2}, {1, 2, 3, 4}), weight, weight}, "input 1 \"residual\"")
      .Rejects({row, row, Floats({1}, {1}), weight}, "input 2 \"x_weight\"")
      .Rejects({row, row, weight, Floats({3}, {1, 1, 1})}, "input 3 \"weight\"");
}

}  // namespace pagefuse::pagefuse_ops
