// SPDX-License-Identifier: Apache-2.0
// Cases of GroupedMatMul.
#include "op_test.h"
#include "weight_cases.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::pagefuse_ops {
namespace {

OpCase Case(std::string name, std::vector<int64_t> ids, std::vector<int64_t> weights,
            bool trans_b = false, DataType type = DataType::kFloat) {
  const auto rows = static_cast<int64_t>(ids.size());
  const int64_t k = weights[trans_b ? 2 : 1];
  OpCase made{.name = std::move(name)};
  made.inputs = {Random(type, {rows, k}, Normal{0, 1}, 1), Ints({rows}, ids),
                 Random(type, std::move(weights), Normal{0, 1}, 2)};
  if (trans_b) made.attributes = {{"transB", 1}};
  return made;
}

// The same ids for rows of x that are shared by `repeat` of them.
OpCase Shared(OpCase op_case, int64_t repeat) {
  const std::vector<int64_t> dims = op_case.inputs[0].dims();
  op_case.name += "_shared";
  op_case.inputs[0] =
      Random(op_case.inputs[0].dtype(), {dims[0] / repeat, dims[1]}, Normal{0, 1}, 3);
  op_case.attributes.emplace_back("repeat", repeat);
  return op_case;
}

struct NBits {
  int64_t experts, n, k, bits;
  int64_t level = 0;
};

// Rows are 16ths of integers, 127 the largest of each 32: rounded to int8 they are what they were.
OpCase Coded(std::string name, std::vector<int64_t> ids, const NBits& w) {
  constexpr int64_t kBlock = 32;
  const auto rows = static_cast<int64_t>(ids.size());
  const int64_t blocks = (w.k + kBlock - 1) / kBlock;
  std::vector<float> x(static_cast<size_t>(rows * w.k));
  for (size_t i = 0; i < x.size(); ++i) {
    const auto column = static_cast<int64_t>(i) % w.k;
    const int number = column % 32 == 5 ? 127 : static_cast<int>(i * 37 % 9) - 4;
    x[i] = static_cast<float>(number) / 16;
  }
  OpCase made{.name = std::move(name)};
  made.inputs = {Floats({rows, w.k}, x), Ints({rows}, ids),
                 Random(DataType::kUint8, {w.experts, w.n, blocks, kBlock * w.bits / 8},
                        Uniform{-0.49, 255.49}, 1),
                 Random(DataType::kFloat, {w.experts, w.n, blocks},
                        Uniform{0.01, w.bits == 4 ? 0.03 : 0.012}, 2)};
  made.attributes = {{"bits", w.bits}, {"block_size", kBlock}, {"accuracy_level", w.level}};
  made.constants = {2, 3};
  made.within = Tolerance{.rtol = 2e-4, .atol = 3e-3};  // sums of codes, to 200 and more
  return made;
}

// The first rows, each for `repeat` ids.
OpCase SharedRows(OpCase op_case, int64_t repeat) {
  const std::vector<int64_t> dims = op_case.inputs[0].dims();
  const auto x = op_case.inputs[0].values<float>().first(dims[0] / repeat * dims[1]);
  op_case.inputs[0] = Floats({dims[0] / repeat, dims[1]}, {x.begin(), x.end()});
  op_case.attributes.emplace_back("repeat", repeat);
  return op_case;
}

}  // namespace

void AddGroupedCodesCases(OpCases& cases) {
  const std::vector<int64_t> ids = {2, 0, 2, 5, 0, -1, 2};
  std::vector<int64_t> many;
  for (int64_t i = 0; i < 60; ++i) many.push_back(i * i % 3);
  // Codes 9 and 10 of expert 1 stand for 0.5 and 1, those of expert 0, 7, for -0.5.
  std::vector<float> codes(2 * 16, 0x77);
  codes[16] = 0xA9;
  OpCase by_hand{.name = "by_hand",
                 .inputs = {Floats({2, 2}, {10, 1, 4, 2}), Ints({2}, {1, 0}),
                            As(DataType::kUint8, Floats({2, 1, 1, 16}, codes)),
                            Floats({2, 1, 1}, {0.5f, 0.5f})},
                 .attributes = {{"block_size", 32}},
                 .outputs = {Floats({2, 1}, {6, -3})}};
  by_hand.constants = {2, 3};
  OpCase narrow = Coded("narrow", ids, {6, 17, 64, 4});
  narrow.inputs[1] = As(DataType::kInt32, narrow.inputs[1]);
  OpCase few_blocks = Coded("blocks", ids, {6, 17, 64, 4});
  few_blocks.inputs[3] = Floats({6, 17, 1}, std::vector<float>(6 * 17, 1));
  cases.Add(by_hand).Add(narrow);
  for (const int64_t bits : {2, 4, 8}) {
    const std::string suffix = StrCat("_int", bits);
    cases.Add(Coded("few_of_many_experts" + suffix, ids, {6, 17, 64, bits}))
        .Add(Coded("part_of_a_block" + suffix, ids, {6, 17, 48, bits}))
        .Add(Coded("large_matrices" + suffix, {1, 1, 0}, {2, 300, 256, bits}))
        .Add(Coded("rounded" + suffix, ids, {6, 350, 96, bits, 4}))
        .Add(Coded("rounded_large_matrices" + suffix, {1, 1, 0}, {2, 300, 256, bits, 4}))
        .Add(Coded("more_rows_than_stream" + suffix, many, {3, 40, 64, bits}))
        .Add(Coded("more_rounded_rows_than_stream" + suffix, many, {3, 350, 96, bits, 4}))
        .Add(Coded("no_rows" + suffix, {}, {6, 17, 64, bits}))
        .Add(SharedRows(Coded("shared" + suffix, {2, 0, 5, 2, 0, 1}, {6, 17, 64, bits}), 3))
        .Add(SharedRows(Coded("rounded_shared" + suffix, many, {3, 350, 96, bits, 4}), 4));
  }
  cases.Rejects(Coded("expert", {0, 6}, {6, 17, 64, 4}), "row 1 asks for expert 6 of 6")
      .Rejects(few_blocks, "expected [E, N, blocks]");
}

OpCases GroupedMatMulCases() {
  const std::vector<int64_t> ids = {2, 0, 2, 5, 0, -1, 2};
  std::vector<int64_t> many;
  for (int64_t i = 0; i < 60; ++i) many.push_back(i * i % 3);
  OpCase narrow = Case("narrow", {0, 1}, {3, 16, 5});
  narrow.inputs[1] = As(DataType::kInt32, narrow.inputs[1]);
  OpCases cases("pagefuse.GroupedMatMul");
  AddGroupedBf16Cases(cases);
  AddGroupedCodesCases(cases);
  return cases
      .Add("by_hand",
           {Floats({2, 2}, {1, 2, 3, 4}), Ints({2}, {1, 0}), Floats({2, 2, 1}, {1, 1, 10, 100})},
           {Floats({2, 1}, {210, 7})})
      .Add(Case("few_of_many_experts", ids, {6, 17, 33}))
      .Add(Case("transposed", ids, {6, 33, 17}, true))
      .Add(Case("large_matrices", {1, 1, 0}, {2, 260, 259}, true))
      .Add(Case("large_matrices_as_they_are", {1, 0, 1}, {2, 260, 259}))
      .Add(Case("more_rows_than_stream", many, {3, 40, 24}))
      .Add(Case("half", ids, {6, 17, 33}, true, DataType::kFloat16))
      .Add(Case("no_rows", {}, {6, 17, 33}))
      .Add("shared_by_hand",
           {Floats({1, 2}, {3, 4}), Ints({2}, {1, 0}), Floats({2, 2, 1}, {1, 1, 10, 100})},
           {Floats({2, 1}, {430, 7})}, {{"repeat", 2}})
      .Add(Shared(Case("few", {2, 0, 5, 2, 0, 1}, {6, 17, 33}), 3))
      .Add(Shared(Case("transposed", {2, 0, 5, 2, 0, 1}, {6, 33, 17}, true), 2))
      .Add(Shared(Case("large", {1, 1, 0, 1}, {2, 260, 259}, true), 4))
      .Add(Shared(Case("many", many, {3, 40, 24}), 6))
      .Add(Shared(Case("half", {2, 0, 5, 2}, {6, 17, 33}, true, DataType::kFloat16), 2))
      .Add(Shared(Case("none", {}, {6, 17, 33}), 2))
      .Rejects(Shared(Case("rows", {2, 0, 5, 2, 0}, {6, 17, 33}), 2),
               "input 1 \"expert_ids\": expected [M * repeat]")
      .Add(narrow)
      .Within(DataType::kFloat, {.rtol = 1e-4, .atol = 3e-5}, "float sums against double ones")
      .Within(DataType::kFloat16, {.rtol = 2e-3, .atol = 2e-2}, "sums in float, other orders")
      .Rejects(Case("expert", {0, 6}, {6, 17, 33}), "row 1 asks for expert 6 of 6")
      .Rejects(
          {Floats({1, 2}, {1, 2}), Ints({1}, {0}), Floats({1, 3, 1}, {1, 2, 3})},
          "input 2 \"weights\": expected [E, K, N] with K = 2 of \"x\", no \"scales\", transB = 0, got [1, 3, 1]");
}

}  // namespace pagefuse::pagefuse_ops
