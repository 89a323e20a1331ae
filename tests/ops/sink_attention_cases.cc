// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>
#include <vector>

#include "op_test.h"

namespace pagefuse::pagefuse_ops {
namespace {

struct Shapes {
  std::string name;
  int64_t batch = 2, heads = 4, groups = 4, queries = 5, keys = 7, size = 8, value_size = 8;
  std::vector<int64_t> mask = {};  // empty: of all scores
};

OpCase CaseOf(const Shapes& s) {
  std::vector<int64_t> mask = s.mask;
  if (mask.empty()) mask = {s.batch, s.heads, s.queries, s.keys};
  return {
      .name = s.name,
      .inputs = {Random(DataType::kFloat, {s.batch, s.heads, s.queries, s.size}, Normal{}, 1),
                 Random(DataType::kFloat, {s.batch, s.groups, s.keys, s.size}, Normal{}, 2),
                 Random(DataType::kFloat, {s.batch, s.groups, s.keys, s.value_size}, Normal{}, 3),
                 Random(DataType::kFloat, mask, Normal{0, 2}, 4),
                 Random(DataType::kFloat, {s.heads}, Normal{}, 5)},
      .attributes = {{"scale", 0.3f}}};
}

// Scores 0, of which one is hidden, beside a sink of 0: half of the other's value.
OpCase ByHand() {
  const float hidden = -std::numeric_limits<float>::infinity();
  return {.name = "by_hand",
          .inputs = {Floats({1, 1, 1, 1}, {0}), Floats({1, 1, 2, 1}, {3, 4}),
                     Floats({1, 1, 2, 2}, {2, 6, 8, 8}), Floats({1, 1, 1, 2}, {0, hidden}),
                     Floats({1}, {0})},
          .attributes = {{"scale", 1.0f}},
          .outputs = {Floats({1, 1, 1, 2}, {1, 3})}};
}

// All scores of a query are no numbers.
OpCase BrokenQuery(const Shapes& s) {
  OpCase op_case = CaseOf(s);
  op_case.inputs[0].mutable_values<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  return op_case;
}

}  // namespace

OpCases SinkAttentionCases() {
  OpCase long_mask = CaseOf({.name = "mask", .mask = {1, 1, 5, 6}});
  return OpCases("pagefuse.SinkAttention")
      .Add(ByHand())
      .Add(CaseOf({.name = "heads"}))
      .Add(CaseOf({.name = "one_shared_head", .groups = 1, .mask = {2, 1, 5, 7}}))
      .Add(CaseOf({.name = "groups", .groups = 2, .value_size = 3, .mask = {1, 1, 5, 7}}))
      .Add(CaseOf({.name = "mask_of_keys", .mask = {1, 4, 1, 7}}))
      .Add(BrokenQuery({.name = "nan_query"}))
      .Add(BrokenQuery({.name = "nan_query_of_one", .batch = 1, .queries = 1, .keys = 700}))
      .Add(CaseOf({.name = "no_queries", .queries = 0}))
      .Add(CaseOf({.name = "no_keys", .keys = 0}))
      .Add(CaseOf({.name = "wide",
                   .batch = 1,
                   .queries = 33,
                   .keys = 130,
                   .size = 64,
                   .value_size = 64,
                   .mask = {1, 1, 33, 130}}))
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 1e-5}, "sums in another order, after e^x")
      .Rejects(long_mask, "input 3 \"mask\": expected 1 or 7 along axis 3")
      .Rejects(CaseOf({.name = "groups_that_do_not_divide", .groups = 3}), "input 1 \"key\"");
}

}  // namespace pagefuse::pagefuse_ops
