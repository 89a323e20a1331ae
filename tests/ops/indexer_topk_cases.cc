// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "op_test.h"

namespace pagefuse::pagefuse_ops {
namespace {

Tensor Int32Row(const std::vector<int32_t>& values) {
  return Tensor::Of<int32_t>({static_cast<int64_t>(values.size())}, values);
}

OpCase TopKCase(std::string name, Tensor logits, const std::vector<int32_t>& begins,
                const std::vector<int32_t>& ends, int64_t topk) {
  return {.name = std::move(name),
          .inputs = {std::move(logits), Int32Row(begins), Int32Row(ends)},
          .attributes = {{"topk", topk}}};
}

// Rows of four kinds that a scan may stumble over: rising, falling, all equal, few values.
Tensor HardRows(int64_t columns) {
  std::vector<float> values;
  for (int64_t n = 0; n < columns; ++n) values.push_back(0.001f * static_cast<float>(n));
  for (int64_t n = 0; n < columns; ++n) values.push_back(-0.5f * static_cast<float>(n));
  for (int64_t n = 0; n < columns; ++n) values.push_back(n % 2 == 0 ? 0.0f : -0.0f);
  for (int64_t n = 0; n < columns; ++n) values.push_back(static_cast<float>(n * 7919 % 5));
  return Floats({4, columns}, values);
}

// Random logits of about ten different values.
Tensor FewValues(int64_t rows, int64_t columns) {
  const Tensor integers = Random(DataType::kInt32, {rows, columns}, Normal{0, 2}, 3);
  return As(DataType::kFloat, integers);
}

// Infinities and the smallest numbers; -inf inside the range comes last.
OpCase ByHand() {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  OpCase op_case = TopKCase(
      "by_hand",
      Floats({3, 6}, {0, 2, -kInf, 2, 3, 9, -0.0f, kTiny, -kTiny, 0, -1, kInf, 1, 1, 1, 1, 1, 1}),
      {1, 0, 4}, {5, 6, 4}, 5);
  op_case.outputs = {
      Tensor::Of<int32_t>({3, 5}, {3, 0, 2, 1, -1, 5, 1, 0, 3, 2, -1, -1, -1, -1, -1})};
  return op_case;
}

}  // namespace

OpCases IndexerTopKCases() {
  const OpCase good = ByHand();
  const auto with = [&](int input, Tensor tensor) {
    OpCase op_case = good;
    op_case.inputs[input] = std::move(tensor);
    return op_case;
  };
  OpCase negative = good;
  negative.attributes[0].second = int64_t{-1};
  return OpCases("pagefuse.IndexerTopK")
      .Add(good)
      .Add(TopKCase("random", Random(DataType::kFloat, {5, 300}, Normal{}, 1), {0, 7, 100, 33, 0},
                    {300, 300, 164, 50, 16}, 16))
      .Add(TopKCase("long_rows", Random(DataType::kFloat, {2, 20000}, Normal{}, 2), {0, 3},
                    {20000, 19990}, 512))
      .Add(TopKCase("many_ties", FewValues(3, 9000), {0, 1, 2}, {9000, 8999, 8000}, 1000))
      .Add(TopKCase("hard_rows", HardRows(12000), {0, 0, 0, 5}, {12000, 12000, 12000, 12000}, 300))
      .Add(TopKCase("more_than_columns", Random(DataType::kFloat, {2, 40}, Normal{}, 4), {0, 10},
                    {40, 30}, 64))
      .Add(TopKCase("none", Random(DataType::kFloat, {2, 40}, Normal{}, 4), {0, 10}, {40, 30}, 0))
      .Add(TopKCase("one_column", Floats({2, 1}, {3, -1}), {0, 0}, {1, 1}, 1))
      .Add(TopKCase("more_than_one_column", Floats({2, 1}, {3, -1}), {0, 1}, {1, 1}, 4))
      .Add(TopKCase("no_rows", Floats({0, 8}, {}), {}, {}, 4))
      .Rejects(with(1, Int32Row({1, -1, 4})), "input 1 \"ks\": expected 0 or more, got -1 at 1")
      .Rejects(with(2, Int32Row({5, 7, 4})), "input 2 \"ke\": expected 0, the range's begin, to 6")
      .Rejects(with(2, Int32Row({0, 6, 4})), "input 2 \"ke\": expected 1, the range's begin, to 6")
      .Rejects(with(2, Int32Row({5, 6})),
               "input 2 \"ke\": expected [M] with M = 3 of \"logits\", got [2]")
      .Rejects(negative, "attribute \"topk\": expected 0 to");
}

}  // namespace pagefuse::pagefuse_ops
