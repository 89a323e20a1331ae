// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "op_test.h"

#include "pagefuse/sparse_mla_instance.h"

namespace pagefuse::pagefuse_ops {
namespace {

using testing::SparseMlaCase;
using testing::SparseMlaSpec;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows (1, 0, 5), (0, 1, 7), (2, 2, 9); values are their first two elements.
Tensor ThreeRows() { return Floats({1, 3, 3}, {1, 0, 5, 0, 1, 7, 2, 2, 9}); }

// Scores of the query (0, 0, 0) are 0: outputs are means of values, lse the log of their number.
OpCase ListedMeans() {
  return {.name = "means_of_listed_values",
          .inputs = {Floats({3, 1, 3}, std::vector<float>(9, 0)), ThreeRows(),
                     Int32s({3, 3}, {0, -1, 1, 2, 2, 0, -1, -7, -1})},
          .attributes = {{"scale", 1.0f}, {"head_dim_v", 2}},
          .outputs = {Floats({3, 1, 2}, {0.5f, 0.5f, 5.0f / 3, 4.0f / 3, 0, 0}),
                      Floats({3, 1}, {std::log(2.0f), std::log(3.0f), kInfinity})}};
}

// The same with a sink of log 2 as heavy as two rows, and without the last entry of each list.
OpCase SinkAndLengths() {
  OpCase c = ListedMeans();
  c.name = "sink_takes_its_part";
  c.inputs.push_back(Int32s({3}, {2, 2, 2}));
  c.inputs.push_back(Floats({1}, {std::log(2.0f)}));
  c.outputs = {Floats({3, 1, 2}, {1.0f / 3, 0, 1, 1, 0, 0}),
               Floats({3, 1}, {0, std::log(2.0f), kInfinity})};
  return c;
}

// Two tokens of a sequence of three rows in two blocks, and one that has no row.
OpCase DenseMeans() {
  return {.name = "means_of_rows_up_to_the_own",
          .inputs = {Floats({3, 1, 3}, std::vector<float>(9, 0)),
                     Floats({2, 2, 3}, {2, 2, 9, 8, 8, 8, 1, 0, 5, 0, 1, 7}), Tensor(), Tensor(),
                     Tensor(), Tensor(), Tensor(), Tensor(), Int32s({2, 2}, {1, 0, -1, -1}),
                     Int32s({2}, {3, 0}), Int32s({3}, {0, 2, 3})},
          .attributes = {{"scale", 1.0f}, {"head_dim_v", 2}},
          .outputs = {Floats({3, 1, 2}, {0.5f, 0.5f, 1, 1, 0, 0}),
                      Floats({3, 1}, {std::log(2.0f), std::log(3.0f), kInfinity})}};
}

// All rows of a sequence but the first have -inf where queries have 1: they have no weight, and times
// that it is no number.
OpCase InfiniteRows(std::string name, SparseMlaSpec spec) {
  constexpr int64_t kFirst = 64;
  spec.sequences = {{1, 300}, {1, 20}};
  OpCase op_case = SparseMlaCase(std::move(name), spec);
  const bool coded = spec.format == "fp8_ue8m0";
  const int64_t element = coded ? 448 : 3;  // a bfloat16 behind the codes
  Tensor queries = As(DataType::kFloat, op_case.inputs[0]);
  const auto q = queries.mutable_values<float>();
  for (size_t at = element; at < q.size(); at += queries.dims()[2]) q[at] = 1;
  op_case.inputs[0] = As(spec.query, queries);
  Tensor& cache = op_case.inputs[1];
  for (int64_t p = kFirst; p < spec.sequences[0].length; ++p) {
    const int64_t block = op_case.inputs[8].values<int32_t>()[p / spec.block_size];
    const int64_t slot = p % spec.block_size;
    if (coded) {
      const int64_t at = block * cache.dims()[1] + slot * 576 + element;
      cache.mutable_values<uint8_t>()[at] = 0x80;
      cache.mutable_values<uint8_t>()[at + 1] = 0xFF;
    } else {
      const int64_t row = block * spec.block_size + slot;
      cache.mutable_values<float>()[row * spec.head_size + element] = -kInfinity;
    }
  }
  return op_case;
}

OpCases& AddBroken(OpCases& cases) {
  // All scores are no numbers.
  OpCase query =
      SparseMlaCase("nan_query", {.query = DataType::kFloat, .sequences = {{1, 300}, {1, 20}}});
  query.inputs[0].mutable_values<float>()[7] = std::numeric_limits<float>::quiet_NaN();
  OpCase bf16 =
      SparseMlaCase("nan_query_ue8m0", {.format = "fp8_ue8m0", .columns = 100, .sink = true});
  Tensor queries = As(DataType::kFloat, bf16.inputs[0]);
  queries.mutable_values<float>()[7] = std::numeric_limits<float>::quiet_NaN();
  bf16.inputs[0] = As(DataType::kBfloat16, queries);
  const SparseMlaSpec coded = {.format = "fp8_ue8m0", .sink = true};
  const OpCase infinite = InfiniteRows("infinite_rows_ue8m0", coded);
  OpCase sinks = With(infinite, 4, Floats({4}, {150, 150, 150, 150}));
  sinks.name = "infinite_rows_beside_large_sinks";
  return cases
      .Add(InfiniteRows("infinite_rows", {.query = DataType::kFloat, .cache = DataType::kFloat}))
      .Add(infinite)
      .Add(query)
      .Add(bf16)
      .Add(sinks);
}

OpCases& AddRejectedPorts(OpCases& cases) {
  const OpCase good = ListedMeans();
  const OpCase dense = DenseMeans();
  const Tensor lens = Int32s({3}, {1, 1, 1});
  return cases
      .Rejects(With(good, 2, Tensor()), "input 8 \"block_table\": is missing without \"indices\"")
      .Rejects(With(good, 8, Int32s({1, 1}, {0})), "input 8 \"block_table\": is not expected")
      .Rejects(With(dense, 3, lens), "input 3 \"topk_lens\": is not expected without")
      .Rejects(With(dense, 9, Tensor()), "input 9 \"seq_lens\": is missing")
      .Rejects(With(good, 5, ThreeRows()), "input 6 \"extra_indices\": is missing")
      .Rejects(With(good, 6, Int32s({3, 1}, {0, 0, 0})), "input 5 \"extra_kv_cache\": is missing")
      .Rejects(With(good, 7, lens), "input 7 \"extra_topk_lens\": is not expected without")
      .Rejects(
          With(good, 1, Floats({3, 4}, std::vector<float>(12, 0))),
          "input 1 \"kv_cache\": expected [NB, ..., D] with D = 3 of \"q\", format = bf16, got")
      .Rejects(
          With(good, 1, As(DataType::kUint8, ThreeRows())),
          "input 1 \"kv_cache\": expected type float, float16, bfloat16 with format = bf16, got")
      .Rejects(With(good, 2, Int32s({2, 3}, std::vector<int64_t>(6, 0))),
               "input 2 \"indices\": expected [T, K] with T = 3 of \"q\", got [2, 3]")
      .Rejects(With(good, 4, Floats({2}, {0, 0})),
               "input 4 \"attn_sink\": expected [H] with H = 1 of \"q\", got [2]")
      .Rejects(WithAttribute(good, "head_dim_v", 4),
               "input 0 \"q\": expected [T, H, D], head_dim_v <= D with \"head_dim_v\" = 4, got")
      .Rejects(WithAttribute(good, "head_dim_v", 0),
               "attribute \"head_dim_v\": expected at least 1, got 0")
      .Rejects(WithAttribute(good, "format", "fp4"),
               "attribute \"format\": expected bf16, fp8_ds_mla or fp8_ue8m0, got \"fp4\"")
      .Rejects(WithAttribute(good, "format", "fp8_ds_mla"),
               "input 1 \"kv_cache\": expected type uint8 with format = fp8_ds_mla, got float");
}

OpCases& AddRejectedValues(OpCases& cases) {
  const OpCase good = ListedMeans();
  const OpCase dense = DenseMeans();
  const OpCase ue8m0 = SparseMlaCase("", {.format = "fp8_ue8m0", .extra_columns = 3});
  return cases
      .Rejects(With(good, 2, Int32s({3, 3}, {0, 1, 2, 0, 1, 3, 0, 0, 0})),
               "input 2 \"indices\": row 3 at [1, 2] is outside [0, 3)")
      .Rejects(With(good, 3, Int32s({3}, {1, 4, 1})),
               "input 3 \"topk_lens\": expected 0 to 3, got 4 at 1")
      .Rejects(With(good, 3, Int32s({3}, {1, 1, -1})),
               "input 3 \"topk_lens\": expected 0 to 3, got -1 at 2")
      .Rejects(With(ue8m0, 6, Int32s({3, 1}, {0, 112, 0})),
               "input 6 \"extra_indices\": row 112 at [1, 0] is outside [0, 112)")
      .Rejects(WithAttribute(ue8m0, "block_size", 17),
               "input 1 \"kv_cache\": expected [NB, S], S >= block_size * row_bytes with "
               "\"block_size\" = 17, row_bytes = 584")
      .Rejects(
          WithAttribute(ue8m0, "extra_block_size", int64_t{1} << 56),
          "input 5 \"extra_kv_cache\": expected [NB', S'], S' >= extra_block_size * row_bytes with")
      .Rejects(With(dense, 10, Int32s({3}, {0, 2, 2})),
               "input 10 \"query_start_loc\": expected 3 last")
      .Rejects(With(dense, 9, Int32s({2}, {5, 0})),
               "input 8 \"block_table\": expected at least 3 columns for the 5 tokens")
      .Rejects(With(dense, 9, Int32s({2}, {3, -1})), "input 9 \"seq_lens\": expected 0 or more")
      .Rejects(With(dense, 8, Int32s({2, 2}, {1, 2, 0, 0})),
               "input 8 \"block_table\": block 2 at [0, 1] is outside [0, 2)");
}

}  // namespace

OpCases SparseMlaAttentionCases() {
  using enum DataType;
  OpCases cases("pagefuse.SparseMlaAttention");
  cases.Add(ListedMeans())
      .Add(SinkAndLengths())
      .Add(DenseMeans())
      .Add(SparseMlaCase("float", {.query = kFloat, .cache = kFloat, .lens = true, .sink = true}))
      .Add(SparseMlaCase("float_q_bf16_cache", {.query = kFloat, .heads = 13, .extra_columns = 9}))
      .Add(SparseMlaCase("half_q", {.query = kFloat16, .head_size = 64, .columns = 70}))
      .Add(SparseMlaCase("half_cache", {.query = kFloat16, .cache = kFloat16, .lens = true}))
      .Add(SparseMlaCase("bf16", {.heads = 20, .columns = 70, .sink = true}))
      .Add(SparseMlaCase("no_columns", {.columns = 0, .sink = true}))
      .Add(SparseMlaCase("no_tokens", {.tokens = 0}))
      .Add(SparseMlaCase("no_heads", {.heads = 0}))
      .Add(SparseMlaCase("no_lse", {.lse = false}))
      .Add(SparseMlaCase("ds_mla", {.format = "fp8_ds_mla", .heads = 3}))
      .Add(SparseMlaCase("ds_mla_float_q",
                         {.format = "fp8_ds_mla", .query = kFloat, .extra_columns = 5}))
      .Add(SparseMlaCase("ue8m0",
                         {.format = "fp8_ue8m0", .extra_columns = 20, .lens = true, .sink = true}))
      // Groups and coded parts that end within a vector.
      .Add(SparseMlaCase("ue8m0_small", {.format = "fp8_ue8m0",
                                         .query = kFloat,
                                         .head_size = 32,
                                         .value_size = 32,
                                         .group = 8,
                                         .rope_size = 8,
                                         .extra_columns = 9,
                                         .sink = true}))
      .Add(SparseMlaCase("ue8m0_by_24", {.format = "fp8_ue8m0",
                                         .heads = 20,
                                         .head_size = 78,
                                         .value_size = 70,
                                         .group = 24,
                                         .rope_size = 6,
                                         .lens = true}))
      .Add(SparseMlaCase("ds_mla_small", {.format = "fp8_ds_mla",
                                          .query = kFloat,
                                          .head_size = 40,
                                          .value_size = 32,
                                          .group = 32,
                                          .rope_size = 8}))
      .Add(SparseMlaCase("ds_mla_by_8", {.format = "fp8_ds_mla",
                                         .heads = 17,
                                         .head_size = 31,
                                         .value_size = 24,
                                         .group = 8,
                                         .rope_size = 7,
                                         .sequences = {{3, 18}, {1, 40}}}))
      .Add(SparseMlaCase("ds_mla_coded_alone", {.format = "fp8_ds_mla",
                                                .query = kFloat16,
                                                .head_size = 48,
                                                .value_size = 48,
                                                .group = 16,
                                                .rope_size = 0}))
      .Add(SparseMlaCase("ue8m0_half", {.format = "fp8_ue8m0", .query = kFloat16}))
      .Add(SparseMlaCase("dense", {.sequences = {{1, 37}, {9, 20}, {0, 5}, {2, 1}, {1, 0}}}))
      .Add(SparseMlaCase(
          "dense_all",
          {.query = kFloat, .sink = true, .sequences = {{5, 20}, {1, 3}}, .causal = false}))
      .Add(SparseMlaCase("dense_ds_mla", {.format = "fp8_ds_mla", .sequences = {{3, 18}}}))
      .Add(SparseMlaCase("dense_ue8m0",
                         {.format = "fp8_ue8m0", .sink = true, .sequences = {{2, 19}, {4, 4}}}))
      .Within(kFloat, {.rtol = 2e-5, .atol = 2e-5}, "sums of products that cancel")
      .Within(kFloat16, {.rtol = 1.0 / 256, .atol = testing::kSparseMlaLargest / 512},
              "weights are rounded to bfloat16 before the product with values")
      .Within(kBfloat16, {.rtol = 1.0 / 256, .atol = testing::kSparseMlaLargest / 512},
              "weights are rounded to bfloat16 before the product with values");
  AddBroken(cases);
  AddRejectedPorts(cases);
  AddRejectedValues(cases);
  return cases;
}

}  // namespace pagefuse::pagefuse_ops
