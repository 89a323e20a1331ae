// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "op_test.h"

#include "pagefuse/paged_attention_instance.h"

namespace pagefuse::pagefuse_ops {
namespace {

using testing::PagedAttentionInstance;
using testing::PagedAttentionSpec;

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
  return AddRejected(AddBroken(cases));
}

}  // namespace pagefuse::pagefuse_ops
