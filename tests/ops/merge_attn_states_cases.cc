// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "op_test.h"

namespace pagefuse::pagefuse_ops {
namespace {

OpCase MergeCase(const std::string& name, DataType type, int64_t size, int64_t context) {
  return {.name = name,
          .inputs = {Random(type, {5, 3, size}, Normal{}, 1),
                     Random(DataType::kFloat, {3, 5}, Normal{0, 3}, 2),
                     Random(type, {5, 3, size}, Normal{}, 3),
                     Random(DataType::kFloat, {3, 5}, Normal{0, 3}, 4)},
          .attributes = {{"prefill_tokens_with_context", context}},
          .num_outputs = 2};
}

}  // namespace

OpCases MergeAttnStatesCases() {
  using enum DataType;
  OpCase to_float8 = MergeCase("to_float8", kBfloat16, 24, 3);
  to_float8.inputs.push_back(Floats({1}, {0.25f}));
  OpCase bad_scale = to_float8;
  bad_scale.inputs[4] = Floats({}, {0});
  OpCase transposed = MergeCase("transposed_lse", kFloat, 8, -1);
  transposed.inputs[1] = Floats({5, 3}, std::vector<float>(15));
  // Two keys with logits 0 and log 3, one in each part: weights 1/4 and 3/4, lse log 4.
  const OpCase by_hand = {.name = "by_hand",
                          .inputs = {Floats({1, 1, 2}, {4, -8}), Floats({1, 1}, {0}),
                                     Floats({1, 1, 2}, {8, 4}), Floats({1, 1}, {std::log(3.0f)})},
                          .outputs = {Floats({1, 1, 2}, {7, 1}), Floats({1, 1}, {std::log(4.0f)})}};
  // Beside a part without keys.
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const OpCase broken = {
      .name = "lse_is_nan",
      .inputs = {Floats({2, 1, 2}, {0, 0, nan, nan}), Floats({1, 2}, {-infinity, nan}),
                 Floats({2, 1, 2}, {nan, nan, 0, 0}), Floats({1, 2}, {nan, -infinity})},
      .outputs = {Floats({2, 1, 2}, {nan, nan, nan, nan}), Floats({1, 2}, {nan, nan})}};
  return OpCases("pagefuse.MergeAttnStates")
      .Add(by_hand)
      .Add(broken)
      .Add(MergeCase("float", kFloat, 17, -1))
      .Add(MergeCase("half_partial", kFloat16, 40, 2))
      .Add(MergeCase("bfloat16_none_merged", kBfloat16, 8, 0))
      .Add(to_float8)
      .Rejects(transposed,
               "input 1 \"prefix_lse\": expected [H, T] with H = 3 of \"prefix_output\", T = 5 of")
      .Rejects(bad_scale, "input 4 \"output_scale\": expected a finite positive scale, got 0")
      .Rejects(
          MergeCase("too_many", kFloat, 8, 6),
          "input 0 \"prefix_output\": expected [T, H, D], prefill_tokens_with_context <= T with "
          "\"prefill_tokens_with_context\" = 6, got [5, ");
}

}  // namespace pagefuse::pagefuse_ops
