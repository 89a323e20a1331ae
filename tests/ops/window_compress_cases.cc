// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "op_test.h"

namespace pagefuse::pagefuse_ops {
namespace {

struct Windows {
  std::string name;
  int64_t ratio = 4;
  int64_t overlap = 1;
  int64_t batch = 2;
  int64_t length = 19;
  int64_t size = 5;
};

OpCase CaseOf(const Windows& c) {
  const int64_t width = (1 + c.overlap) * c.size;
  return {.name = c.name,
          .inputs = {Random(DataType::kFloat, {c.batch, c.length, width}, Normal{}, 1),
                     Random(DataType::kFloat, {c.batch, c.length, width}, Normal{0, 2}, 2),
                     Random(DataType::kFloat, {c.ratio, width}, Normal{}, 3)},
          .attributes = {{"ratio", c.ratio}, {"overlap", c.overlap}}};
}

// Scores log 1 and log 3 weigh 4 and 8 to 7; the third row fills no window.
OpCase ByHand() {
  const float log3 = 1.0986123f;
  return {.name = "by_hand",
          .inputs = {Floats({1, 3, 1}, {4, 8, 100}), Floats({1, 3, 1}, {0, 0, 0}),
                     Floats({2, 1}, {0, log3})},
          .attributes = {{"ratio", 2}},
          .outputs = {Floats({1, 1, 1}, {7})}};
}

// Of the first window only the second columns count: 30; of the second window also the first ones
// of the row before: (10 + 40) / 2.
OpCase OverlapByHand() {
  return {.name = "overlap_by_hand",
          .inputs = {Floats({1, 2, 2}, {10, 30, 20, 40}), Floats({1, 2, 2}, {0, 0, 0, 0}),
                     Floats({1, 2}, {0, 0})},
          .attributes = {{"ratio", 1}, {"overlap", 1}},
          .outputs = {Floats({1, 2, 1}, {30, 25})}};
}

}  // namespace

OpCases WindowCompressCases() {
  OpCase short_bias = CaseOf({.name = "bias"});
  short_bias.inputs[2] = Random(DataType::kFloat, {3, 10}, Normal{}, 3);
  return OpCases("pagefuse.WindowCompress")
      .Add(ByHand())
      .Add(OverlapByHand())
      .Add(CaseOf({.name = "overlap"}))
      .Add(CaseOf({.name = "apart", .ratio = 8, .overlap = 0, .size = 7}))
      .Add(CaseOf({.name = "odd_ratio", .ratio = 3, .size = 1}))
      .Add(CaseOf({.name = "no_window", .length = 3}))
      .Add(CaseOf({.name = "no_tokens", .overlap = 0, .length = 0}))
      .Add(CaseOf({.name = "no_sequences", .batch = 0}))
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 1e-6}, "sums in another order, after e^x")
      .Rejects(short_bias, "input 2 \"bias\"")
      .Rejects({Floats({1, 2, 3}, {1, 2, 3, 4, 5, 6}), Floats({1, 2, 3}, {1, 2, 3, 4, 5, 6}),
                Floats({1, 3}, {1, 2, 3})},
               {{"ratio", 1}, {"overlap", 1}}, "input 0 \"kv\"");
}

}  // namespace pagefuse::pagefuse_ops
