// SPDX-License-Identifier: Apache-2.0
// Cases of SplitLinear.
#include <numeric>

#include "op_test.h"

namespace pagefuse::pagefuse_ops {
namespace {

using Sizes = std::vector<int64_t>;

OpCase Made(std::string name, std::vector<Tensor> inputs, const Sizes& parts) {
  return {.name = std::move(name),
          .inputs = std::move(inputs),
          .attributes = {{"parts", parts}},
          .constants = {1, 3},
          .num_outputs = static_cast<int>(parts.size())};
}

int64_t Total(const Sizes& parts) {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0});
}

OpCase Bf16(std::string name, const Sizes& x, const Sizes& parts, bool bias = false) {
  const int64_t n = Total(parts);
  OpCase made = Made(std::move(name),
                     {Random(DataType::kFloat, x, Normal{0, 1}, 1),
                      Random(DataType::kBfloat16, {n, x.back()}, Normal{0, 1}, 2)},
                     parts);
  if (bias) made.inputs.push_back(Values({n}, 3));
  return made;
}

// Activations that are 16ths of integers, 127 the largest of each 32: as int8 they are what they were.
OpCase Codes(std::string name, int64_t m, int64_t bits, int64_t level, const Sizes& parts) {
  constexpr int64_t kK = 96, kBlock = 32, kBlocks = kK / kBlock;
  const int64_t n = Total(parts);
  std::vector<float> x(static_cast<size_t>(m * kK));
  for (size_t i = 0; i < x.size(); ++i) {
    const int number = i % 32 == 5 ? 127 : static_cast<int>(i * 37 % 9) - 4;
    x[i] = static_cast<float>(number) / 16;
  }
  const Tensor codes = Random(DataType::kUint8, {n, kBlocks, kBlock * bits / 8},
                              Uniform{-0.49, 255.49}, static_cast<uint64_t>(m));
  const Tensor scales = Random(DataType::kFloat, {n, kBlocks}, Uniform{0.01, 0.03}, 2);
  OpCase made = Made(std::move(name), {Floats({m, kK}, x), codes, Values({n}, 3), scales}, parts);
  made.attributes.emplace_back("bits", bits);
  made.attributes.emplace_back("block_size", kBlock);
  made.attributes.emplace_back("accuracy_level", level);
  made.within = Tolerance{.rtol = 2e-4, .atol = 3e-3};  // sums of codes, to 200 and more
  return made;
}

// Rows [1, 10], [2, 20] and [3, 30], of which the first is one layer and the others are another.
OpCase ByHand() {
  const Tensor w = As(DataType::kBfloat16, Floats({3, 2}, {1, 10, 2, 20, 3, 30}));
  OpCase made =
      Made("by_hand", {Floats({2, 2}, {3, 4, 1, 0}), w, Floats({3}, {0.5f, 0, -1})}, {1, 2});
  made.outputs = {Floats({2, 1}, {43.5f, 1.5f}), Floats({2, 2}, {86, 128, 2, 2})};
  return made;
}

void AddCodes(OpCases& cases) {
  for (const int64_t bits : {2, 4, 8}) {
    for (const int64_t m : {1, 40}) {
      for (const int64_t level : {0, 4}) cases.Add(Codes("codes", m, bits, level, {256, 48, 48}));
    }
  }
  // Both sides are rounded to bfloat16 where the machine has a unit for it.
  OpCase rounded = Codes("codes_as_bf16", 20, 4, 3, {256, 48, 48});
  rounded.within = Tolerance{.rtol = 2e-2, .atol = 2};
  cases.Add(rounded)
      .Add(Codes("no_rows_by_codes", 0, 4, 4, {256, 96}))
      .Add(Codes("codes_cut_inside_of_blocks", 20, 4, 4, {250, 9, 93}));
}

}  // namespace

OpCases SplitLinearCases() {
  OpCase fed = Bf16("weights_that_are_fed", {3, 64}, {32, 16});
  fed.constants.clear();
  OpCase flat = Codes("flat_scales", 2, 4, 4, {256, 96});
  flat.inputs[3] = *flat.inputs[3].Reshaped({352 * 3});
  OpCase sizes = Bf16("sizes", {2, 64}, {32, 16});
  sizes.attributes[0].second = Sizes{32, 15};
  OpCase outputs = Bf16("outputs", {2, 64}, {32, 16});
  outputs.attributes[0].second = Sizes{48};
  OpCase unread = Bf16("parts_that_nobody_reads", {20, 64}, {32, 16, 48});
  unread.num_outputs = 1;
  OpCase many = Bf16("many", {2, 64}, {16, 16, 16, 16});
  many.attributes[0].second = Sizes{16, 16, 16, 8, 8};
  OpCase none = Bf16("none", {2, 64}, {32, 16});
  none.attributes[0].second = Sizes{48, 0};
  OpCase odd = Codes("odd", 1, 4, 4, {256, 96});
  odd.attributes[2].second = int64_t{24};
  odd.inputs[1] = Random(DataType::kUint8, {352, 4, 12}, Uniform{0, 255}, 1);
  odd.inputs[3] = Random(DataType::kFloat, {352, 4}, Uniform{0, 1}, 1);
  OpCases cases("pagefuse.SplitLinear");
  cases.Add(ByHand())
      .Add(fed)
      .Add(flat)
      .Add(unread)
      .Add(Bf16("one_part", {1, 64}, {48}))
      .Add(Bf16("vector", {70}, {32, 8}))
      .Add(Bf16("one_row", {1, 64}, {64, 16, 16}, true))
      .Add(Bf16("few_rows", {2, 8, 33}, {16, 16, 16, 17}))
      .Add(Bf16("many_rows", {70, 300}, {96, 32, 35}, true))
      .Add(Bf16("cut_inside_of_blocks", {40, 64}, {20, 9, 30}, true))
      .Add(Bf16("no_rows", {0, 64}, {32, 16}, true))
      .Within(DataType::kFloat, {.rtol = 1e-4, .atol = 1e-4},
              "sums in float, in another order than the decomposition's");
  AddCodes(cases);
  return cases.Rejects(sizes, "attribute \"parts\": add up to 47, expected N = 48")
      .Rejects(outputs, "attribute \"parts\": has 1 sizes for 2 of 4 outputs")
      .Rejects(many, "attribute \"parts\": has 5 sizes for 4 of 4 outputs")
      .Rejects(none, "attribute \"parts\": expected positive sizes, got 0")
      .Rejects(odd, "attribute \"block_size\": expected a power of two from 16 on, got 24");
}

}  // namespace pagefuse::pagefuse_ops
