// SPDX-License-Identifier: Apache-2.0
// Modes of ops that no golden case has fuse back too: a call's decomposition becomes the call.
#include "fusion_case.h"
#include "gtest/gtest.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

// One call: inputs of the graph, and the node.
struct Mode {
  const char* name;
  const char* inputs;
  const char* call;
};
void PrintTo(const Mode& mode, std::ostream* os) { *os << mode.name; }

constexpr char kPagedLogits[] =
    "uint8[7, 16, 1, 132] kv_cache, float[T, 4] weights, int32[3] context_lens, "
    "int32[3, 4] block_tables, int32[4] query_start_loc";

constexpr Mode kModes[] = {
    {"PagedLogitsOfPackedRows", "float8e4m3fn[T, 4, 128] q, $logits",
     "y = pagefuse.PagedMqaLogits (q, kv_cache, weights, context_lens, block_tables, , "
     "query_start_loc)"},
    {"PagedLogitsOfNumbersAgainstCodes", "bfloat16[T, 4, 128] q, $logits",
     "y = pagefuse.PagedMqaLogits (q, kv_cache, weights, context_lens, block_tables, , "
     "query_start_loc)"},
    {"PagedLogitsOfAKeyForFourTokens", "float[T, 4, 128] q, $logits",
     "y = pagefuse.PagedMqaLogits <ratio = 4> (q, kv_cache, weights, context_lens, block_tables, , "
     "query_start_loc)"},
    {"PagedLogitsOfNumbers",
     "float16[T, 4, 64] q, bfloat16[7, 16, 64] kv_cache, float[T, 4] weights, "
     "int32[3] context_lens, int32[3, 4] block_tables, int32[4] query_start_loc",
     "y = pagefuse.PagedMqaLogits <format = \"bf16\"> (q, kv_cache, weights, context_lens, "
     "block_tables, , query_start_loc)"},
    {"PagedLogitsBySequence",
     "uint8[B, 2, 4, 128] q, uint8[7, 16, 132] kv_cache, float[\"2*B\", 4] weights, "
     "int32[B] context_lens, int32[B, 4] block_tables",
     "y = pagefuse.PagedMqaLogits (q, kv_cache, weights, context_lens, block_tables)"},
    {"PagedLogitsBySequenceOfAKeyForFourTokens",
     "float8e4m3fn[3, 2, 4, 128] q, uint8[7, 16, 132] kv_cache, float[6, 4] weights, "
     "int32[3] context_lens, int32[3, 4] block_tables",
     "y = pagefuse.PagedMqaLogits <ratio = 4> (q, kv_cache, weights, context_lens, block_tables)"},
    {"LatentRowsWithLengths",
     "bfloat16[T, 2, 48] q, bfloat16[5, 4, 48] kv_cache, int32[T, 6] indices, int32[T] lens",
     "y = pagefuse.SparseMlaAttention <scale = 0.5, head_dim_v = 32> (q, kv_cache, indices, lens)"},
    {"LatentRowsOfTwoCachesWithASink",
     "float[T, 2, 48] q, float[5, 4, 48] kv_cache, int32[T, 6] indices, float[2] sink, "
     "float[7, 48] extra, int32[T, 3] extra_indices, int32[T] extra_lens",
     "y = pagefuse.SparseMlaAttention <scale = 0.5, head_dim_v = 48> (q, kv_cache, indices, , sink, "
     "extra, extra_indices, extra_lens)"},
    {"Fp8LatentRowsOfTwoCaches",
     "float16[T, 2, 576] q, uint8[5, 4, 656] kv_cache, int32[T, 6] indices, int32[T] lens, "
     "uint8[20, 656] extra, int32[T, 3] extra_indices",
     "y = pagefuse.SparseMlaAttention <format = \"fp8_ds_mla\", scale = 0.5> (q, kv_cache, indices, "
     "lens, , extra, extra_indices)"},
    {"Ue8m0LatentRowsWithoutLengths",
     "bfloat16[T, 2, 512] q, uint8[5, 4672] kv_cache, int32[T, 6] indices",
     "y = pagefuse.SparseMlaAttention <format = \"fp8_ue8m0\", scale = 0.5, block_size = 8> (q, "
     "kv_cache, indices)"},
    {"DenseLatentRows",
     "bfloat16[T, 2, 48] q, bfloat16[5, 4, 48] kv_cache, int32[B, 3] block_table, "
     "int32[B] seq_lens, int32[S] query_start_loc",
     "y = pagefuse.SparseMlaAttention <scale = 0.5, head_dim_v = 32> (q, kv_cache, , , , , , , "
     "block_table, seq_lens, query_start_loc)"},
    {"DenseLatentRowsOfWholeSequencesWithASink",
     "bfloat16[T, 2, 48] q, bfloat16[5, 4, 48] kv_cache, float[2] sink, int32[B, 3] block_table, "
     "int32[B] seq_lens, int32[S] query_start_loc",
     "y = pagefuse.SparseMlaAttention <scale = 0.5, head_dim_v = 48, is_causal = 0> (q, kv_cache, "
     ", , sink, , , , block_table, seq_lens, query_start_loc)"},
    {"DenseFp8LatentRows",
     "float16[T, 2, 576] q, uint8[5, 4, 656] kv_cache, int32[B, 3] block_table, "
     "int32[B] seq_lens, int32[S] query_start_loc",
     "y = pagefuse.SparseMlaAttention <format = \"fp8_ds_mla\", scale = 0.5> (q, kv_cache, , , , "
     ", , , block_table, seq_lens, query_start_loc)"},
    {"DenseUe8m0LatentRows",
     "bfloat16[T, 2, 512] q, uint8[5, 4672] kv_cache, int32[B, 3] block_table, "
     "int32[B] seq_lens, int32[S] query_start_loc",
     "y = pagefuse.SparseMlaAttention <format = \"fp8_ue8m0\", scale = 0.5, block_size = 8> (q, "
     "kv_cache, , , , , , , block_table, seq_lens, query_start_loc)"},
    {"TurboQuantWithWindowAndSoftCap",
     "float[T, 4, 64] query, uint8[4, 16, 2, 100] kv_cache, int32[B, M] block_table, "
     "int32[B] seq_lens, int32[S] query_start_loc",
     "y = pagefuse.TurboQuantAttention <key_bits = 8, value_bits = 4, sliding_window = 7, "
     "softcap = 20.0> (query, kv_cache, block_table, seq_lens, query_start_loc)"},
    {"TurboQuantWithSinks",
     "float[T, 4, 64] query, uint8[4, 16, 2, 100] kv_cache, int32[T, M] block_table, "
     "int32[T] seq_lens, float[4] sink",
     "y = pagefuse.TurboQuantAttention <key_bits = 8, value_bits = 4> (query, kv_cache, "
     "block_table, seq_lens, , , , sink)"},
};

class FuseModes : public ::testing::TestWithParam<Mode> {};

TEST_P(FuseModes, GivesTheCall) {
  std::string inputs = GetParam().inputs;
  if (const size_t at = inputs.find("$logits"); at != std::string::npos) {
    inputs.replace(at, std::string_view("$logits").size(), kPagedLogits);
  }
  const std::string text = StrCat("<ir_version: 10, opset_import: [\"\" : 26, \"pagefuse\" : 1]>\n",
                                  "g (", inputs, ") => (y) {\n  ", GetParam().call, "\n}\n");
  const auto one = ParseDecompositionCase(GetParam().name, text);
  ASSERT_TRUE(one.ok()) << one.status();
  const auto outcome = RunFusion(*one, one->plain);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  std::string misses;
  for (const MissedMatch& miss : outcome->misses) {
    if (miss.rule.starts_with("fuse-"))
      StrAppend(&misses, miss.rule, " at ", miss.at, ": ", miss.condition, "\n");
  }
  EXPECT_TRUE(outcome->fusion.ok()) << outcome->fusion << "\n" << misses;
}

INSTANTIATE_TEST_SUITE_P(Calls, FuseModes, ::testing::ValuesIn(kModes),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pagefuse
