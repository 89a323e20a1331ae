// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "op_test.h"

#include "pagefuse/paged_attention_instance.h"

namespace pagefuse::pagefuse_ops {
namespace {

using testing::PagedAttentionInstance;
using testing::PagedAttentionSpec;
using testing::SequenceSpec;

OpCase FromSpec(std::string name, const PagedAttentionSpec& spec) {
  const PagedAttentionInstance instance(spec);
  OpCase op_case;
  op_case.name = std::move(name);
  op_case.inputs = instance.inputs;
  while (!op_case.inputs.back().defined()) op_case.inputs.pop_back();
  for (const auto& [attribute, value] : instance.node->attributes()) {
    op_case.attributes.emplace_back(attribute, value.value);
  }
  op_case.num_outputs = spec.lse ? 2 : 1;
  return op_case;
}

// A key of one head that is all ones against a zero query: every visible key weighs the same, so
// outputs are means of values.
OpCase MeansOfValues() {
  return {.name = "zero_query_gives_means_of_values",
          .inputs = {Floats({3, 1, 2}, {0, 0, 0, 0, 0, 0}),
                     Floats({2, 2, 1, 2}, {1, 1, 1, 1, 1, 1, 1, 1}),
                     Floats({2, 2, 1, 2}, {7, 8, 9, 9, 1, 2, 3, 4}), Int32s({2}, {0, 3}),
                     Int32s({1}, {3}), Int32s({1, 2}, {1, 0})},
          .outputs = {Floats({3, 1, 2}, {1, 2, 2, 3, 11.0f / 3, 14.0f / 3})}};
}

// A value that the second token sees, and the query of the third one, are no numbers.
OpCase BrokenMeans(std::string name, const std::vector<float>& means) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  OpCase op_case = MeansOfValues();
  op_case.name = std::move(name);
  op_case.inputs[0] = Floats({3, 1, 2}, {0, 0, 0, 0, kNan, 0});
  op_case.inputs[2] = Floats({2, 2, 1, 2}, {7, 8, 9, 9, 1, 2, kNan, 4});
  op_case.outputs = {Floats({3, 1, 2}, means), Floats({1, 3}, {0, std::log(2.0f), kNan})};
  return op_case;
}

OpCases& AddBroken(OpCases& cases) {
  using enum DataType;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  // A scale divides numbers, and not what stands in place of NaN.
  OpCase scaled =
      WithAttribute(BrokenMeans("nan_value_is_not_scaled", {2, 4, 3, 6, 3, 3}), "nan_value", 3.0f);
  scaled.inputs.resize(17);
  scaled.inputs[16] = Floats({}, {0.5f});
  scaled.outputs[0] = As(kFloat8E4M3FN, scaled.outputs[0]);
  return cases.Add(BrokenMeans("nan_stays", {1, 2, kNan, 3, kNan, kNan}))
      .Add(WithAttribute(BrokenMeans("nan_value", {1, 2, -0.5f, 3, -0.5f, -0.5f}), "nan_value",
                         -0.5f))
      .Add(scaled)
      .Add(FromSpec("nan_value_bf16", {.query = kBfloat16,
                                       .cache = kBfloat16,
                                       .sequences = {{1, 300}, {1, 37}},
                                       .sink = true,
                                       .lse = true,
                                       .broken = true,
                                       .nan_value = 3.0f}))
      .Add(FromSpec("nan_value_int8", {.mode = KvQuantMode::kInt8PerTokenHead,
                                       .cache = kInt8,
                                       .sequences = {{2, 37}, {1, 18}},
                                       .broken = true,
                                       .nan_value = 2.0f}))
      .Add(FromSpec("nan_value_int4", {.query = kFloat16,
                                       .mode = KvQuantMode::kInt4PerTokenHead,
                                       .cache = kUint8,
                                       .sequences = {{1, 37}, {5, 18}},
                                       .broken = true,
                                       .nan_value = 2.0f}));
}

// A token of each sequence, over rows of a byte an element with a scale each.
PagedAttentionSpec ScaledRows(DataType query, DataType cache) {
  return {.query = query,
          .mode = cache == DataType::kInt8 ? KvQuantMode::kInt8PerTokenHead
                                           : KvQuantMode::kFp8PerTokenHead,
          .cache = cache,
          .head_size = 128,
          .sequences = {{1, 100}, {1, 40}},
          .lse = true};
}

// Of a position of the first sequence, for its first KV head: where caches and scales have it.
int64_t RowOf(const OpCase& op_case, int64_t position) {
  const auto& dims = op_case.inputs[1].dims();
  const int64_t block = op_case.inputs[5].values<int32_t>()[position / dims[1]];
  return (block * dims[1] + position % dims[1]) * dims[2];
}

constexpr int kKeyScales = 9, kValueScales = 10;
OpCase WithScale(OpCase op_case, int input, float scale) {
  op_case.inputs[input].mutable_values<float>()[RowOf(op_case, 33)] = scale;
  return op_case;
}

// As an infinite element leaves a row: the others are 0.
OpCase WithInfiniteRow(OpCase op_case) {
  const auto values = op_case.inputs[2].mutable_values<int8_t>();
  std::ranges::fill(values.subspan(RowOf(op_case, 33) * 128, 128), int8_t{0});
  return WithScale(std::move(op_case), kValueScales, std::numeric_limits<float>::infinity());
}

// Scores of a sequence's only key are infinite, of one sign for the first head and of the other for
// the next one, which shares it.
OpCase InfiniteScores() {
  PagedAttentionSpec spec = ScaledRows(DataType::kFloat, DataType::kInt8);
  spec.sequences = {{1, 1}, {1, 40}};
  spec.lse = false;
  OpCase op_case = FromSpec("scores_are_infinite", spec);
  op_case.inputs[kKeyScales].mutable_values<float>()[RowOf(op_case, 0)] =
      std::numeric_limits<float>::infinity();
  const auto query = op_case.inputs[0].mutable_values<float>();
  for (int d = 0; d < 128; ++d) query[128 + d] = -query[d];
  op_case.decomposes = false;
  return op_case;
}

// The same where later keys have by far higher scores.
OpCase BrokenScaleWithoutWeight() {
  OpCase op_case = FromSpec("value_scale_is_nan_where_its_weight_vanishes",
                            ScaledRows(DataType::kFloat, DataType::kInt8));
  const auto codes = op_case.inputs[1].mutable_values<int8_t>();
  std::ranges::fill(codes, int8_t{100});
  const auto query = op_case.inputs[0].mutable_values<float>();
  std::ranges::fill(query, 1.0f);
  const auto scales = op_case.inputs[kKeyScales].mutable_values<float>();
  for (int64_t p = 0; p < 100; ++p) scales[RowOf(op_case, p)] = 0.01f * static_cast<float>(p);
  return WithScale(std::move(op_case), kValueScales, std::numeric_limits<float>::quiet_NaN());
}

// Later keys have by far higher scores than the first one, whose value is broken.
OpCase BrokenValueWithoutWeight(std::string name, std::vector<SequenceSpec> sequences) {
  OpCase op_case = FromSpec(std::move(name), {.query = DataType::kBfloat16,
                                              .cache = DataType::kBfloat16,
                                              .head_size = 128,
                                              .sequences = std::move(sequences),
                                              .lse = true});
  const std::vector<int64_t> dims(op_case.inputs[1].dims().begin(), op_case.inputs[1].dims().end());
  std::vector<float> keys(op_case.inputs[1].size(), 0), values(keys.size(), 0.5f);
  for (int64_t p = 0; p < 100; ++p) {
    const int64_t row = RowOf(op_case, p) * 128;
    std::fill_n(keys.begin() + row, 128, static_cast<float>(p) / 4);
    values[row + p] = static_cast<float>(p);
  }
  values[RowOf(op_case, 0) * 128 + 5] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int64_t> query(op_case.inputs[0].dims().begin(),
                                   op_case.inputs[0].dims().end());
  const std::vector<float> ones(op_case.inputs[0].size(), 1);
  op_case.inputs[0] = As(DataType::kBfloat16, Floats(query, ones));
  op_case.inputs[1] = As(DataType::kBfloat16, Floats(dims, keys));
  op_case.inputs[2] = As(DataType::kBfloat16, Floats(dims, values));
  return op_case;
}

OpCases& AddBrokenScales(OpCases& cases) {
  using enum DataType;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto make = [](std::string name, DataType query, DataType cache) {
    return FromSpec(std::move(name), ScaledRows(query, cache));
  };
  const Tensor large_sinks = Floats({4}, {150, 150, 150, 150});
  const OpCase key_and_sink =
      With(make("int8_key_scale_is_nan_beside_a_sink", kBfloat16, kInt8), 11, large_sinks);
  const OpCase value_and_sink =
      With(make("fp8_value_scale_is_nan_beside_a_sink", kFloat, kFloat8E4M3FN), 11, large_sinks);
  OpCase negative = make("int8_scales_are_negative", kFloat, kInt8);
  negative = WithScale(WithScale(negative, kKeyScales, -0.02f), kValueScales, -0.05f);
  return cases.Add(WithScale(make("int8_value_scale_is_nan", kFloat, kInt8), kValueScales, kNan))
      .Add(WithScale(make("fp8_value_scale_is_nan", kBfloat16, kFloat8E4M3FN), kValueScales, kNan))
      .Add(WithScale(make("fp8_key_scale_is_nan", kFloat16, kFloat8E4M3FN), kKeyScales, kNan))
      .Add(WithScale(key_and_sink, kKeyScales, kNan))
      .Add(WithScale(value_and_sink, kValueScales, kNan))
      .Add(WithScale(make("int8_value_scale_is_infinite", kFloat, kInt8), kValueScales,
                     std::numeric_limits<float>::infinity()))
      .Add(WithInfiniteRow(make("int8_row_of_an_infinite_value", kBfloat16, kInt8)))
      .Add(negative)
      .Add(InfiniteScores())
      .Add(BrokenScaleWithoutWeight())
      .Add(BrokenValueWithoutWeight("value_is_nan_where_its_weight_vanishes", {{1, 100}, {1, 40}}))
      .Add(BrokenValueWithoutWeight("value_of_a_prompt_is_nan_where_its_weight_vanishes",
                                    {{30, 100}, {1, 40}}));
}

OpCases& AddRejected(OpCases& cases) {
  const OpCase good = MeansOfValues();
  cases
      .Rejects(With(good, 3, Int32s({2}, {1, 3})),
               "input 3 \"query_start_loc\": expected 0 first, got 1")
      .Rejects(With(good, 3, Int32s({2}, {0, 2})), "input 3 \"query_start_loc\": expected 3 last")
      .Rejects(With(good, 3, Int32s({3}, {0, 2, 3})),
               "input 3 \"query_start_loc\": expected [B + 1] with B = 1 of \"seq_lens\", got [3]")
      .Rejects(With(good, 4, Int32s({1}, {-1})), "input 4 \"seq_lens\": expected 0 or more, got -1")
      .Rejects(With(good, 4, Int32s({1}, {5})),
               "input 5 \"block_table\": expected at least 3 columns")
      .Rejects(With(good, 5, Int32s({1, 2}, {1, 2})),
               "input 5 \"block_table\": block 2 at [0, 1] is outside [0, 2)")
      .Rejects(With(good, 5, Int32s({1, 2}, {-1, 0})),
               "input 5 \"block_table\": block -1 at [0, 0]")
      .Rejects(With(good, 2, Floats({2, 2, 1, 3}, std::vector<float>(12, 0))),
               "input 2 \"value_cache\": expected the shape of \"key_cache\", [2, 2, 1, 2], got")
      .Rejects(With(good, 0, Floats({3, 1, 3}, std::vector<float>(9, 0))),
               "input 1 \"key_cache\": expected [NB, BS, Hk, row] with row = 3, got [2, 2, 1, 2]")
      .Rejects(WithAttribute(good, "sliding_window", -2),
               "attribute \"sliding_window\": expected 0 or more")
      .Rejects(WithAttribute(good, "softcap", -1.0f),
               "attribute \"softcap\": expected 0 or more, got -1")
      .Rejects(WithAttribute(good, "nan_value", 0), "attribute \"nan_value\"")
      .Rejects(WithAttribute(good, "kv_quant_mode", "int3"),
               "attribute \"kv_quant_mode\": expected one of")
      .Rejects(WithAttribute(good, "kv_quant_mode", "fp8_per_tensor"),
               "input 1 \"key_cache\": expected type")
      .Rejects(
          WithAttribute(WithAttribute(good, "sliding_window", 3), "chunk_lookback", int64_t{3}),
          "attribute \"chunk_lookback\": expected sliding_window div (chunk_lookback + 1) to "
          "be at least 1")
      .Rejects(WithAttribute(good, "output_dtype", 17), "input 16 \"output_scale\": is missing");
  OpCase sink = good;
  sink.inputs.resize(12);
  sink.inputs[11] = Floats({2}, {0, 0});
  cases.Rejects(sink, "input 11 \"head_sink\": expected [Hq] with Hq = 1 of \"query\", got [2]");
  OpCase f8 = FromSpec("", {.query = DataType::kFloat8E4M3FN,
                            .mode = KvQuantMode::kFp8PerTensor,
                            .cache = DataType::kFloat8E4M3FN});
  f8.inputs.resize(8);
  cases.Rejects(f8, "input 8 \"q_scale\": is missing");
  OpCase int8 = FromSpec("", {.mode = KvQuantMode::kInt8PerTokenHead, .cache = DataType::kInt8});
  cases.Rejects(With(int8, 9, Tensor()), "input 9 \"k_scale_cache\": is missing");
  OpCase bias = FromSpec("", {.sequences = {{3, 5}}, .qq_bias = true});
  cases.Rejects(With(bias, 13, Floats({2, 2}, {0, 0, 0, 0})),
                "input 13 \"qq_bias\": expected at least 3 rows");
  return cases;
}

}  // namespace

OpCases PagedAttentionCases() {
  using enum DataType;
  OpCases cases("pagefuse.PagedAttention");
  cases.Add(MeansOfValues())
      .Add(FromSpec(
          "mixed",
          {.head_size = 40, .sequences = {{1, 37}, {5, 18}, {0, 3}}, .window = 9, .lse = true}))
      .Add(FromSpec("float_decode", {.heads = 8,
                                     .head_size = 128,
                                     .sequences = {{1, 37}, {0, 5}, {1, 300}, {1, 1}},
                                     .window = 200,
                                     .softcap = 5,
                                     .sink = true,
                                     .lse = true}))
      .Add(FromSpec(
          "bf16",
          {.query = kBfloat16, .cache = kBfloat16, .sequences = {{1, 37}, {5, 18}}, .sink = true}))
      .Add(FromSpec("fp8", {.query = kFloat16,
                            .mode = KvQuantMode::kFp8PerTensor,
                            .cache = kUint8,
                            .sequences = {{1, 37}, {5, 18}}}))
      .Add(FromSpec("int8", {.mode = KvQuantMode::kInt8PerTokenHead,
                             .cache = kInt8,
                             .sequences = {{1, 37}, {5, 18}},
                             .softcap = 5}))
      .Add(FromSpec("int4", {.mode = KvQuantMode::kInt4PerTokenHead,
                             .cache = kUint8,
                             .sequences = {{1, 37}, {5, 18}}}))
      .Within(kFloat, {.rtol = 2e-5, .atol = 1e-5}, "sums of products that cancel")
      .Within(kFloat16, {.rtol = 2e-3, .atol = 1e-3},
              "the kernel does not round dequantised elements to the type of query")
      .Within(kBfloat16, {.rtol = 1e-2, .atol = 6e-3},
              "the kernel does not round dequantised elements to the type of query");
  return AddRejected(AddBrokenScales(AddBroken(cases)));
}

}  // namespace pagefuse::pagefuse_ops
