// SPDX-License-Identifier: Apache-2.0
// Cases of Linear, and of GatedLinear and GroupedMatMul over bfloat16.
#include "op_test.h"
#include "weight_cases.h"

namespace pagefuse::pagefuse_ops {
namespace {

OpCase Made(std::string name, std::vector<Tensor> inputs, std::vector<int> weights,
            AttributeList attributes = {}) {
  return {.name = std::move(name),
          .inputs = std::move(inputs),
          .attributes = std::move(attributes),
          .constants = std::move(weights)};
}

Tensor Rows(std::vector<int64_t> dims) {
  return Random(DataType::kFloat, std::move(dims), Normal{0, 1}, 1);
}
Tensor Weights(std::vector<int64_t> dims, uint64_t seed = 2) {
  return Random(DataType::kBfloat16, std::move(dims), Normal{0, 1}, seed);
}

// Rows [1, 10] and [2, 20].
Tensor SmallMatrix() { return As(DataType::kBfloat16, Floats({2, 2}, {1, 10, 2, 20})); }

OpCase Product(std::string name, std::vector<int64_t> x, int64_t n, bool bias = false) {
  const int64_t k = x.back();
  OpCase made = Made(std::move(name), {Rows(std::move(x)), Weights({n, k})}, {1});
  if (bias) made.inputs.push_back(Random(DataType::kFloat, {n}, Normal{0, 1}, 3));
  return made;
}

// x [..., G, M, K] by a matrix for each of its own.
OpCase Stack(std::string name, std::vector<int64_t> x, int64_t n, bool bias = false) {
  OpCase made = Product(std::move(name), x, n, bias);
  made.inputs[1] = Weights({x[x.size() - 3], n, x.back()});
  return made;
}

constexpr char kWhy[] = "sums in float, in another order than the decomposition's";

}  // namespace

OpCases LinearCases() {
  OpCase by_hand = Made("by_hand", {Floats({2, 2}, {3, 4, 1, 0}), SmallMatrix()}, {1});
  by_hand.outputs = {Floats({2, 2}, {43, 86, 1, 2})};
  // 1 + 2^-9 is as far from 1 as from its neighbour: it is rounded to the even one.
  OpCase rounds = Made("rounds_rows", {Floats({1, 2}, {1 + 1.0f / 512, 0}), SmallMatrix()}, {1});
  rounds.outputs = {Floats({1, 2}, {1, 2})};
  OpCase adds = by_hand;
  adds.name = "adds_by_hand";
  adds.inputs.push_back(Floats({2}, {0.5f, -86}));
  adds.outputs = {Floats({2, 2}, {43.5f, 0, 1.5f, -84})};
  OpCase fed = Product("weights_that_are_fed", {3, 64}, 40);
  fed.constants.clear();
  OpCase stack_by_hand = Made(
      "stack_by_hand",
      {Floats({2, 1, 2}, {3, 4, 1, 5}), As(DataType::kBfloat16, Floats({2, 1, 2}, {1, 10, 2, 20}))},
      {1});
  stack_by_hand.outputs = {Floats({2, 1, 1}, {43, 102})};
  OpCase fed_stack = Stack("stack_that_is_fed", {3, 5, 64}, 40);
  fed_stack.constants.clear();
  OpCase repeated = Stack("repeated_matrices", {3, 5, 64}, 40);
  repeated.inputs[1] = Weights({1, 40, 64});
  OpCase flat = Stack("rows_under_a_stack", {3, 5, 64}, 40);
  flat.inputs[0] = Rows({5, 64});
  OpCase short_bias = Product("bias", {3, 64}, 40, true);
  short_bias.inputs[2] = Floats({2}, {1, 2});
  return OpCases("pagefuse.Linear")
      .Add(by_hand)
      .Add(rounds)
      .Add(adds)
      .Add(fed)
      .Add(Product("vector", {70}, 40))
      .Add(Product("one_row", {1, 64}, 48))
      .Add(Product("part_of_a_block", {2, 3, 33}, 17))
      .Add(Product("many_rows", {70, 300}, 131))
      .Add(Product("bias", {2, 5, 96}, 40, true))
      .Add(Product("no_rows", {0, 64}, 40, true))
      .Add(Product("no_terms", {3, 0}, 40, true))
      .Add(stack_by_hand)
      .Add(fed_stack)
      .Add(Stack("stack_of_blocks", {4, 1, 64}, 48))
      .Add(Stack("stack_of_parts_of_a_block", {2, 3, 4, 33}, 17, true))
      .Add(Stack("stack_under_many_rows", {2, 70, 304}, 131))
      .Add(Stack("stack_of_long_rows", {3, 2, 2056}, 9, true))
      .Add(Stack("stack_of_many_matrices", {24, 6, 64}, 24, true))
      .Add(Stack("stacks_in_turn", {3, 2, 7, 40}, 24))
      .Add(Stack("stack_without_rows", {2, 0, 64}, 40))
      .Add(Stack("stack_without_terms", {2, 3, 0}, 40))
      .Within(DataType::kFloat, {.rtol = 1e-4, .atol = 1e-4}, kWhy)
      .Rejects(short_bias, "input 2 \"bias\": expected [N] with N = 40 of \"w\", got [2]")
      .Rejects(Made("rows", {Rows({2, 31}), Weights({16, 32})}, {1}),
               "input 1 \"w\": expected [N, K] or [G, N, K] with K = 31 of \"x\", got [16, 32]")
      .Rejects(repeated,
               "input 0 \"x\": expected [..., G, M, K] with G = 1 of \"w\", got [3, 5, 64]")
      .Rejects(flat, "input 0 \"x\": expected [..., G, M, K] with G = 3 of \"w\", got [5, 64]");
}

void AddGatedBf16Cases(OpCases& cases) {
  const auto gated = [](std::string name, std::vector<int64_t> x, int64_t n,
                        const std::string& activation, float limit = 0) {
    const int64_t k = x.back();
    OpCase made =
        Made(std::move(name) + "_bf16", {Rows(std::move(x)), Weights({n, k}), Weights({n, k}, 3)},
             {1, 2}, {{"activation", activation}, {"transB", 1}});
    for (float& value : made.inputs[0].mutable_values<float>()) value *= 0.1f;
    if (limit > 0) made.attributes.emplace_back("limit", limit);
    made.within = Tolerance{.rtol = 2e-4, .atol = 2e-4};  // sums in another order
    return made;
  };
  OpCase columns = gated("columns", {3, 64}, 40, "silu");
  columns.inputs[1] = Weights({64, 40});
  columns.inputs[2] = Weights({64, 40}, 3);
  columns.attributes[1].second = int64_t{0};
  OpCase mixed = gated("mixed", {2, 64}, 40, "silu");
  mixed.inputs[1] = mixed.inputs[2] = Random(DataType::kFloat16, {40, 64}, Normal{0, 1}, 1);
  cases.Add(gated("gelu", {1, 64}, 48, "gelu"))
      .Add(gated("gelu_tanh", {2, 3, 33}, 17, "gelu_tanh"))
      .Add(gated("silu", {40, 300}, 131, "silu"))
      .Add(gated("limit", {5, 70}, 37, "silu", 0.25f))
      .Add(gated("no_rows", {0, 64}, 16, "gelu"))
      .Add(columns)
      .Rejects(mixed, "input 1 \"w_gate\": expected float or bfloat16, got float16");
}

void AddGroupedBf16Cases(OpCases& cases) {
  const auto grouped = [](std::string name, std::vector<int64_t> ids, std::vector<int64_t> dims,
                          int64_t repeat = 1) {
    const auto rows = static_cast<int64_t>(ids.size());
    OpCase made = Made(std::move(name) + "_bf16",
                       {Rows({rows / repeat, dims[2]}), Ints({rows}, ids), Weights(dims)}, {2},
                       {{"transB", 1}});
    if (repeat > 1) made.attributes.emplace_back("repeat", repeat);
    made.within = Tolerance{.rtol = 1e-4, .atol = 1e-4};  // sums in another order
    return made;
  };
  const std::vector<int64_t> ids = {2, 0, 2, 5, 0, -1, 2, 1};
  std::vector<int64_t> many;
  for (int64_t i = 0; i < 60; ++i) many.push_back(i * i % 3);
  OpCase columns = grouped("columns", ids, {6, 64, 48});
  columns.inputs[0] = Rows({8, 64});
  columns.attributes[0].second = int64_t{0};
  cases.Add(grouped("few_of_many_experts", ids, {6, 48, 64}))
      .Add(grouped("part_of_a_block", ids, {6, 17, 33}))
      .Add(grouped("large_matrices", {1, 1, 0}, {2, 259, 260}))
      .Add(grouped("many_rows", many, {3, 24, 40}))
      .Add(grouped("shared", ids, {6, 17, 33}, 4))
      .Add(grouped("no_rows", {}, {6, 17, 33}))
      .Add(columns);
}

}  // namespace pagefuse::pagefuse_ops
