// Cases of GroupedMatMul.
#include "op_test.h"

namespace pagefuse::pagefuse_ops {
namespace {

OpCase Case(std::string name, std::vector<int64_t> ids, std::vector<int64_t> weights,
            bool trans_b = false, DataType type = DataType::kFloat) {
  const auto rows = static_cast<int64_t>(ids.size());
  const int64_t k = weights[trans_b ? 2 : 1];
  OpCase made{.name = std::move(name)};
  made.inputs = {Random(type, {rows, k}, Normal{0, 1}, 1), Ints({rows}, ids),
                 Random(type, std::move(weights), Normal{0, 1}, 2)};
  if (trans_b) made.attributes = {{"transB", int64_t{1}}};
  return made;
}

}  // namespace

OpCases GroupedMatMulCases() {
  const std::vector<int64_t> ids = {2, 0, 2, 5, 0, -1, 2};
  std::vector<int64_t> many;
  for (int64_t i = 0; i < 60; ++i) many.push_back(i * i % 3);
  OpCase narrow = Case("narrow", {0, 1}, {3, 16, 5});
  narrow.inputs[1] = As(DataType::kInt32, narrow.inputs[1]);
  return OpCases("pagefuse.GroupedMatMul")
      .Add({.name = "by_hand",
            .inputs = {Floats({2, 2}, {1, 2, 3, 4}), Ints({2}, {1, 0}),
                       Floats({2, 2, 1}, {1, 1, 10, 100})},
            .outputs = {Floats({2, 1}, {210, 7})}})
      .Add(Case("few_of_many_experts", ids, {6, 17, 33}))
      .Add(Case("transposed", ids, {6, 33, 17}, true))
      .Add(Case("large_matrices", {1, 1, 0}, {2, 260, 259}, true))
      .Add(Case("large_matrices_as_they_are", {1, 0, 1}, {2, 260, 259}))
      .Add(Case("more_rows_than_stream", many, {3, 40, 24}))
      .Add(Case("half", ids, {6, 17, 33}, true, DataType::kFloat16))
      .Add(Case("no_rows", {}, {6, 17, 33}))
      .Add(narrow)
      .Within(DataType::kFloat, {.rtol = 1e-4, .atol = 3e-5}, "float sums against double ones")
      .Within(DataType::kFloat16, {.rtol = 2e-3, .atol = 2e-2}, "sums in float, other orders")
      .Rejects(Case("expert", {0, 6}, {6, 17, 33}), "row 1 asks for expert 6 of 6")
      .Rejects(
          {.inputs = {Floats({1, 2}, {1, 2}), Ints({1}, {0}), Floats({1, 3, 1}, {1, 2, 3})}},
          "input 2 \"weights\": expected [E, K, N] with K = 2 of \"x\", transB = 0, got [1, 3, 1]");
}

}  // namespace pagefuse::pagefuse_ops
