// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "op_test.h"

namespace pagefuse::pagefuse_ops {
namespace {

// Source rows, caches full of numbers, and the optional ports of the mode.
OpCase InsertCase(const std::string& mode, DataType source, DataType cache, int64_t size) {
  const bool tensor_scale = mode == "fp8_per_tensor";
  const bool row_scales = mode == "int8_per_token_head" || mode == "fp8_per_token_head";
  const Tensor scale = tensor_scale ? Floats({1}, {0.05f}) : Tensor();
  const Tensor scales =
      row_scales ? Random(DataType::kFloat, {3, 4, 2}, Uniform{0, 1}, 3) : Tensor();
  return {.name = mode,
          .inputs = {Random(source, {6, 2, size}, Normal{0, 2}, 1),
                     Random(source, {6, 2, size}, Normal{0, 2}, 2),
                     Random(cache, {3, 4, 2, size}, Normal{0, 3}, 3),
                     Random(cache, {3, 4, 2, size}, Normal{0, 3}, 4), Ints({5}, {7, -1, 0, 11, 4}),
                     scale, scale, scales, scales},
          .attributes = {{"kv_quant_mode", mode}},
          .num_outputs = row_scales ? 4 : 2};
}

// Enough elements for the tables of codes, in rows that are no multiple of their step.
OpCase ManyTokens(std::vector<float> scales) {
  constexpr int64_t kTokens = 110;
  constexpr int64_t kSize = 83;
  std::vector<int64_t> slots(kTokens);
  for (int64_t i = 0; i < kTokens; ++i) slots[i] = i == 9 ? -1 : (i * 7) % 112;
  OpCase many = InsertCase("fp8_per_tensor", DataType::kBfloat16, DataType::kFloat8E4M3FN, kSize);
  for (int side = 0; side < 2; ++side) {
    many.inputs[side] = Random(DataType::kBfloat16, {kTokens, 2, kSize}, Normal{0, 2}, 7 + side);
    many.inputs[2 + side] =
        Random(DataType::kFloat8E4M3FN, {28, 4, 2, kSize}, Normal{0, 3}, 9 + side);
    many.inputs[5 + side] = Floats({static_cast<int64_t>(scales.size())}, scales);
  }
  many.inputs[4] = Ints({kTokens}, slots);
  many.name = absl::StrCat("fp8_per_tensor, many tokens, scales: ", scales.size());
  return many;
}

}  // namespace

OpCases PagedCacheInsertCases() {
  using enum DataType;
  OpCase past_the_end = InsertCase("none", kFloat, kFloat, 8);
  past_the_end.inputs[4] = Ints({1}, {12});
  OpCase wrong_cache = InsertCase("int8_per_token_head", kFloat, kFloat, 8);
  OpCase unknown_mode = InsertCase("none", kFloat, kFloat, 8);
  unknown_mode.attributes[0].second = std::string("int2");
  OpCase without_scale = InsertCase("fp8_per_tensor", kFloat, kFloat8E4M3FN, 8);
  without_scale.inputs[5] = Tensor();
  return OpCases("pagefuse.PagedCacheInsert")
      .Add(InsertCase("none", kFloat, kFloat, 24))
      .Add(InsertCase("none", kBfloat16, kBfloat16, 17))
      .Add(InsertCase("none", kFloat, kBfloat16, 9))
      .Add(InsertCase("fp8_per_tensor", kFloat16, kFloat8E4M3FN, 40))
      .Add(InsertCase("fp8_per_tensor", kFloat, kUint8, 16))
      .Add(ManyTokens({0.05f}))
      .Add(ManyTokens({0.005f, 1.3f}))
      .Add(InsertCase("int8_per_token_head", kBfloat16, kInt8, 40))
      .Add(InsertCase("fp8_per_token_head", kFloat, kFloat8E4M3FN, 24))
      .Rejects(past_the_end, "input 4 \"slot_mapping\": expected slots below 12")
      .Rejects(wrong_cache, "input 2 \"key_cache\": expected type int8")
      .Rejects(unknown_mode, "attribute \"kv_quant_mode\": expected one of none")
      .Rejects(without_scale,
               "input 5 \"k_scale\": is missing with kv_quant_mode = fp8_per_tensor");
}

}  // namespace pagefuse::pagefuse_ops
