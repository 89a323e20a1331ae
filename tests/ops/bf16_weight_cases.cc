// Cases of the ops over matrices of bfloat16 in blocks: MatMulBf16, GatedLinearBf16,
// GroupedMatMulBf16, GatherBf16.
#include "op_test.h"

namespace pagefuse::pagefuse_ops {
namespace {

struct Sizes {
  int64_t k, n;
};

constexpr int64_t kRows = 32, kColumns = 16;

// [ceil(N / 16), ceil(K / 32), 16, 16, 2] behind `outer` and, of gate and up, with 2 behind the first.
std::vector<int64_t> Dims(const Sizes& s, std::vector<int64_t> outer = {}, bool gated = false) {
  outer.push_back((s.n + kColumns - 1) / kColumns);
  if (gated) outer.push_back(2);
  outer.insert(outer.end(), {(s.k + kRows - 1) / kRows, kRows / 2, kColumns, 2});
  return outer;
}

OpCase Made(std::string name, const Sizes& s, std::vector<Tensor> inputs, int weight) {
  return {.name = std::move(name),
          .inputs = std::move(inputs),
          .attributes = {{"K", s.k}, {"N", s.n}},
          .constants = {weight}};
}

Tensor Rows(std::vector<int64_t> dims) {
  return Random(DataType::kFloat, std::move(dims), Normal{0, 1}, 1);
}
Tensor Blocks(std::vector<int64_t> dims) {
  return Random(DataType::kBfloat16, std::move(dims), Normal{0, 1}, 2);
}

// A matrix [2, 2], [[1, 2], [10, 20]]: a pair of rows lies together.
Tensor SmallMatrix() {
  std::vector<float> words(kRows * kColumns, 0);
  words[0] = 1;
  words[1] = 10;
  words[2] = 2;
  words[3] = 20;
  return As(DataType::kBfloat16, Floats({1, 1, kRows / 2, kColumns, 2}, words));
}

OpCase Product(std::string name, std::vector<int64_t> x, int64_t n, bool bias = false) {
  const Sizes s{x.back(), n};
  OpCase made = Made(std::move(name), s, {Rows(std::move(x)), Blocks(Dims(s))}, 1);
  if (bias) made.inputs.push_back(Random(DataType::kFloat, {n}, Normal{0, 1}, 3));
  return made;
}

constexpr char kWhy[] = "sums in float, in another order than the decomposition's";

}  // namespace

OpCases MatMulBf16Cases() {
  OpCase by_hand = Made("by_hand", {2, 2}, {Floats({2, 2}, {3, 4, 1, 0}), SmallMatrix()}, 1);
  by_hand.outputs = {Floats({2, 2}, {43, 86, 1, 2})};
  // 1 + 2^-9 is as far from 1 as from its neighbour: it is rounded to the even one.
  OpCase rounds =
      Made("rounds_rows", {2, 2}, {Floats({1, 2}, {1 + 1.0f / 512, 0}), SmallMatrix()}, 1);
  rounds.outputs = {Floats({1, 2}, {1, 2})};
  OpCase adds = by_hand;
  adds.name = "adds_by_hand";
  adds.inputs.push_back(Floats({2}, {0.5f, -86}));
  adds.outputs = {Floats({2, 2}, {43.5f, 0, 1.5f, -84})};
  OpCase short_blocks = Product("blocks", {3, 64}, 40);
  short_blocks.inputs[1] = Blocks(Dims({64, 24}));
  OpCase short_bias = Product("bias", {3, 64}, 40, true);
  short_bias.inputs[2] = Floats({2}, {1, 2});
  OpCase no_rows = Product("size", {3, 64}, 40);
  no_rows.attributes[0].second = int64_t{0};
  return OpCases("pagefuse.MatMulBf16")
      .Add(by_hand)
      .Add(rounds)
      .Add(adds)
      .Add(Product("vector", {70}, 40))
      .Add(Product("one_row", {1, 64}, 48))
      .Add(Product("part_of_a_block", {2, 3, 33}, 17))
      .Add(Product("many_rows", {70, 300}, 131))
      .Add(Product("bias", {2, 5, 96}, 40, true))
      .Add(Product("no_rows", {0, 64}, 40, true))
      .Within(DataType::kFloat, {.rtol = 1e-4, .atol = 1e-4}, kWhy)
      .Rejects(short_blocks,
               "input 1 \"w\": expected shape [3, 2, 16, 16, 2], got [2, 2, 16, 16, 2]")
      .Rejects(short_bias, "input 2 \"bias\": expected [N] with \"N\" = 40, got [2]")
      .Rejects(no_rows, "attribute \"K\": expected")
      .Rejects(Made("rows", {32, 16}, {Rows({2, 31}), Blocks(Dims({32, 16}))}, 1),
               "input 0 \"x\": expected [..., K] with \"K\" = 32, got [2, 31]");
}

OpCases GatedLinearBf16Cases() {
  const auto gated = [](std::string name, std::vector<int64_t> x, int64_t n,
                        const std::string& activation, float limit = 0) {
    const Sizes s{x.back(), n};
    OpCase made = Made(std::move(name), s, {Rows(std::move(x)), Blocks(Dims(s, {}, true))}, 1);
    for (float& value : made.inputs[0].mutable_values<float>()) value *= 0.1f;
    made.attributes.emplace_back("activation", activation);
    if (limit > 0) made.attributes.emplace_back("limit", limit);
    return made;
  };
  OpCase wrong = gated("blocks", {2, 64}, 40, "silu");
  wrong.inputs[1] = Blocks(Dims({64, 40}));
  return OpCases("pagefuse.GatedLinearBf16")
      .Add(gated("gelu", {1, 64}, 48, "gelu"))
      .Add(gated("gelu_tanh", {2, 3, 33}, 17, "gelu_tanh"))
      .Add(gated("silu", {40, 300}, 131, "silu"))
      .Add(gated("limit", {5, 70}, 37, "silu", 0.25f))
      .Add(gated("no_rows", {0, 64}, 16, "gelu"))
      .Within(DataType::kFloat, {.rtol = 2e-4, .atol = 2e-4}, kWhy)
      .Rejects(
          wrong,
          "input 1 \"w\": expected [column_blocks, 2, row_blocks, 16, 16, 2], got [3, 2, 16, 16, 2]");
}

OpCases GroupedMatMulBf16Cases() {
  const auto grouped = [](std::string name, std::vector<int64_t> ids, int64_t experts,
                          const Sizes& s, int64_t repeat = 1) {
    const auto rows = static_cast<int64_t>(ids.size());
    OpCase made =
        Made(std::move(name), s,
             {Rows({rows / repeat, s.k}), Ints({rows}, ids), Blocks(Dims(s, {experts}))}, 2);
    if (repeat > 1) made.attributes.emplace_back("repeat", repeat);
    return made;
  };
  const std::vector<int64_t> ids = {2, 0, 2, 5, 0, -1, 2, 1};
  std::vector<int64_t> many;
  for (int64_t i = 0; i < 60; ++i) many.push_back(i * i % 3);
  OpCase narrow = grouped("narrow", {0, 1}, 3, {16, 5});
  narrow.inputs[1] = As(DataType::kInt32, narrow.inputs[1]);
  return OpCases("pagefuse.GroupedMatMulBf16")
      .Add(grouped("few_of_many_experts", ids, 6, {64, 48}))
      .Add(grouped("part_of_a_block", ids, 6, {33, 17}))
      .Add(grouped("large_matrices", {1, 1, 0}, 2, {260, 259}))
      .Add(grouped("many_rows", many, 3, {40, 24}))
      .Add(grouped("shared", ids, 6, {33, 17}, 4))
      .Add(grouped("no_rows", {}, 6, {33, 17}))
      .Add(narrow)
      .Within(DataType::kFloat, {.rtol = 1e-4, .atol = 1e-4}, kWhy)
      .Rejects(grouped("expert", {0, 6}, 6, {33, 17}), "row 1 asks for expert 6 of 6");
}

OpCases GatherBf16Cases() {
  OpCase by_hand = Made("by_hand", {2, 2}, {SmallMatrix(), Ints({3}, {1, 0, -1})}, 0);
  by_hand.outputs = {Floats({3, 2}, {2, 20, 1, 10, 2, 20})};
  const auto table = [](std::string name, const Sizes& s, Tensor ids) {
    return Made(std::move(name), s, {Blocks(Dims(s)), std::move(ids)}, 0);
  };
  return OpCases("pagefuse.GatherBf16")
      .Add(by_hand)
      .Add(table("rows", {64, 48}, Ints({2, 2}, {47, 0, 16, 15})))
      .Add(table("part_of_a_block", {33, 17}, Int32s({2}, {16, -17})))
      .Add(table("one", {40, 20}, Ints({}, {3})))
      .Add(table("none", {40, 20}, Ints({0}, {})))
      .Rejects(table("past_the_end", {40, 20}, Ints({2}, {0, 20})),
               "index 20 is out of range for 20 rows");
}

}  // namespace pagefuse::pagefuse_ops
