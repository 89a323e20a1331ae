// SPDX-License-Identifier: Apache-2.0
// PagedAttention on random batches: the vector kernel against the reference on every SIMD target,
// the reference against the decomposition, and what a batch must not change.
#include <cmath>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"
#include "must.h"
#include "paged_attention_instance.h"
#include "simd_targets.h"

namespace pagefuse::testing {
namespace {

struct RandomCase {
  std::string name;
  PagedAttentionSpec spec;
};

// Decode, prefill and nothing; whole and partial blocks; one token; more queries than keys; no key.
std::vector<SequenceSpec> MixedBatch() {
  return {{1, 300}, {7, 90}, {0, 20}, {1, 1}, {33, 33}, {3, 1}, {1, 0}};
}

// Head sizes, groups, masks and biases that take different ways through the kernels.
std::vector<RandomCase> StructureCases() {
  const std::vector<SequenceSpec> mixed = MixedBatch();
  return {
      {"small_head", {.heads = 2, .kv_heads = 1, .head_size = 32, .sequences = mixed, .lse = true}},
      {"head_80_group_6", {.heads = 6, .kv_heads = 1, .head_size = 80, .sequences = mixed}},
      {"odd_head_72", {.heads = 3, .kv_heads = 3, .head_size = 72, .sequences = mixed}},
      {"tiny_head_5", {.heads = 2, .kv_heads = 2, .head_size = 5, .sequences = mixed}},
      {"group_7", {.heads = 7, .kv_heads = 1, .head_size = 96, .sequences = mixed}},
      {"group_5_of_2", {.heads = 10, .kv_heads = 2, .head_size = 192, .sequences = mixed}},
      {"gemma",
       {.heads = 4,
        .kv_heads = 1,
        .head_size = 256,
        .sequences = {{1, 1100}, {60, 700}},
        .window = 512}},
      {"block_1", {.block_size = 1, .sequences = mixed}},
      {"block_40", {.block_size = 40, .sequences = mixed, .window = 9}},
      {"window_1", {.sequences = mixed, .window = 1}},
      {"huge_window", {.sequences = mixed, .window = std::numeric_limits<int64_t>::max()}},
      {"chunks", {.sequences = mixed, .window = 48, .lookback = 2}},
      {"not_causal", {.sequences = mixed, .causal = false}},
      {"not_causal_window", {.sequences = mixed, .causal = false, .window = 11}},
      {"not_causal_chunks", {.sequences = mixed, .causal = false, .window = 32, .lookback = 1}},
      {"flags", {.sequences = mixed, .window = 17, .causal_flags = true, .lse = true}},
      {"softcap_sink", {.sequences = mixed, .softcap = 3, .sink = true, .lse = true}},
      {"alibi_sink", {.sequences = mixed, .sink = true, .alibi = true, .lse = true}},
      {"alibi_sqrt", {.sequences = mixed, .alibi = true, .alibi_sqrt = true}},
      {"qq_bias", {.sequences = mixed, .qq_bias = true}},
      {"ranges",
       {.sequences = mixed,
        .window = 12,
        .ranges = {{1, 70, 88}, {4, 3, 30}, {4, 8, 8}, {0, 250, 320}}}},
      {"ranges_clamped",
       {.sequences = mixed, .window = 12, .clamp = true, .ranges = {{1, 60, 88}, {4, 3, 30}}}},
      {"long", {.heads = 8, .sequences = {{1, 5000}, {2, 3000}}}},
      {"broken", {.sequences = mixed, .lse = true, .broken = true}},
      {"broken_prefill", {.sequences = {{9, 40}}, .softcap = 3, .broken = true, .nan_value = 7}},
  };
}

// Types of queries and caches.
std::vector<RandomCase> FormatCases() {
  using enum DataType;
  using enum KvQuantMode;
  const std::vector<SequenceSpec> mixed = MixedBatch();
  std::vector<RandomCase> cases = {
      {"output_f8",
       {.query = kFloat16, .cache = kFloat16, .sequences = mixed, .output_scale = true}},
      {"f8_query",
       {.query = kFloat8E4M3FN, .mode = kFp8PerTensor, .cache = kUint8, .sequences = mixed}},
      {"f8_cache_unscaled", {.query = kBfloat16, .cache = kFloat8E4M3FN, .sequences = mixed}},
      {"f32_query_bf16_cache", {.cache = kBfloat16, .sequences = mixed}},
  };
  for (RandomCase& replaced : std::vector<RandomCase>(cases)) {
    replaced.name += "_nan_value";
    replaced.spec.broken = true;
    replaced.spec.nan_value = 3;
    cases.push_back(std::move(replaced));
  }
  for (DataType query : {kFloat, kFloat16, kBfloat16}) {
    const std::string type(DataTypeName(query));
    cases.push_back({type, {.query = query, .cache = query, .sequences = mixed}});
    cases.push_back(
        {"fp8_" + type,
         {.query = query, .mode = kFp8PerTensor, .cache = kFloat8E4M3FN, .sequences = mixed}});
    cases.push_back({"int8_" + type,
                     {.query = query,
                      .mode = kInt8PerTokenHead,
                      .cache = kInt8,
                      .head_size = 80,
                      .sequences = mixed}});
    cases.push_back({"fp8pth_" + type,
                     {.query = query,
                      .mode = kFp8PerTokenHead,
                      .cache = kUint8,
                      .sequences = mixed,
                      .window = 30}});
    cases.push_back({"int4_" + type,
                     {.query = query,
                      .mode = kInt4PerTokenHead,
                      .cache = kUint8,
                      .sequences = mixed,
                      .sink = true}});
  }
  return cases;
}

std::vector<RandomCase> RandomCases() {
  std::vector<RandomCase> cases = StructureCases();
  for (RandomCase& format_case : FormatCases()) cases.push_back(std::move(format_case));
  return cases;
}

struct Tolerance {
  double rtol, atol;
};

// The kernel keeps values in float where the definition rounds them to the type of query.
Tolerance ToleranceOf(const PagedAttentionSpec& spec) {
  if (spec.output_scale) return {0.13, 0.02};  // one code of e4m3
  switch (spec.query) {
    case DataType::kFloat:
      return {2e-5, 6e-6};
    case DataType::kFloat8E4M3FN:
      return {1e-4, 1e-4};  // values are up to a hundred times larger
    case DataType::kFloat16:
      return {2e-3, 1e-3};
    default:
      return {1e-2, 6e-3};
  }
}

class RandomBatch : public ::testing::TestWithParam<RandomCase> {};

TEST_P(RandomBatch, VectorKernelGivesWhatTheReferenceGives) {
  const PagedAttentionInstance instance(GetParam().spec);
  const Tolerance tolerance = ToleranceOf(GetParam().spec);
  const auto want = Must(instance.Run("reference"));
  ForEachSimdTarget([&] {
    const auto got = Must(instance.Run("hwy"));
    EXPECT_LE(WorstError(got[0], want[0], tolerance.rtol, tolerance.atol), 1);
    if (got.size() > 1) {
      EXPECT_LE(WorstError(got[1], want[1], 1e-5, 2e-5), 1);
    }
  });
}

TEST_P(RandomBatch, ReferenceGivesWhatTheDecompositionGives) {
  const PagedAttentionInstance instance(GetParam().spec);
  const Tolerance tolerance = ToleranceOf(GetParam().spec);
  const auto want = Must(instance.Run("decomposition"));
  const auto got = Must(instance.Run("reference"));
  EXPECT_LE(WorstError(got[0], want[0], tolerance.rtol, tolerance.atol), 1);
  if (got.size() > 1) {
    EXPECT_LE(WorstError(got[1], want[1], 1e-5, 2e-5), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(PagedAttention, RandomBatch, ::testing::ValuesIn(RandomCases()),
                         [](const auto& info) { return info.param.name; });
}  // namespace
}  // namespace pagefuse::testing
