// SPDX-License-Identifier: Apache-2.0
// Single nodes of domain ai.onnx that move elements: joins, cuts, copies, gathers and scatters.
#include <utility>

#include "standard_cases.h"

namespace pagefuse {
namespace {

using enum DataType;

constexpr int64_t kTokens = 512, kHidden = 1152, kWide = 2304;

const Part kNarrow = Normal(kFloat, {kTokens, kHidden});
Part Fixed(std::vector<int64_t> values) { return Const(Longs(std::move(values))); }

void AddTransposes(StandardCases& cases) {
  const auto add = [&](const char* name, const char* size, Dims dims, std::vector<int64_t> perm) {
    cases.Add(name, size, "Transpose", {Normal(kFloat, std::move(dims)), Attr("perm", perm)});
  };
  add("Transpose_heads", "512 x 16 x 72", {1, kTokens, 16, 72}, {0, 2, 1, 3});
  add("Transpose_keys", "512 x 16 x 72", {1, kTokens, 16, 72}, {0, 2, 3, 1});
  add("Transpose_matrix", "2304 x 1152", {kWide, kHidden}, {1, 0});
  add("Transpose_channels_last", "256 x 64 x 64", {1, 256, 64, 64}, {0, 2, 3, 1});
  cases.Add("DepthToSpace", "256 x 64 x 64", "DepthToSpace",
            {Normal(kFloat, {1, 256, 64, 64}), Attr("blocksize", 2)});
}

void AddParts(StandardCases& cases) {
  cases.Add("Concat_cache", "4 x 4096 x 256 and 1", "Concat",
            {Normal(kFloat, {1, 4, 4096, 256}), Normal(kFloat, {1, 4, 1, 256}), Attr("axis", 2)});
  const Part half = Normal(kFloat, {1, 8, kTokens, 128});
  cases.Add("Concat_rotary", "8 x 512 x 128 twice", "Concat", {half, half, Attr("axis", -1)});
  cases.Add("Split_qkv", "512 x 3456", "Split",
            {Normal(kFloat, {1, kTokens, 3 * kHidden}), Fixed({kHidden, kHidden, kHidden}),
             Attr("axis", -1), Outputs(3)});
  cases.Add("Slice_last", "8 x 512 x 256", "Slice",
            {Normal(kFloat, {1, 8, kTokens, 256}), Fixed({0}), Fixed({128}), Fixed({3})});
  cases.Add("Slice_steps", "512 x 2304, every second", "Slice",
            {Normal(kFloat, {kTokens, kWide}), Fixed({0}), Fixed({kWide}), Fixed({1}), Fixed({2})});
  cases.Add("Pad", "3 x 896 x 896", "Pad",
            {Normal(kFloat, {1, 3, 896, 896}), Fixed({0, 0, 3, 3, 0, 0, 3, 3})});
  cases.Add("Expand_heads", "4 x 1 x 512 x 256 to 4 x 2", "Expand",
            {Normal(kFloat, {1, 4, 1, kTokens, 256}), Fixed({1, 4, 2, kTokens, 256})});
  cases.Add("Expand_column", "512 x 1 to 512 x 2304", "Expand",
            {Normal(kFloat, {kTokens, 1}), Fixed({kTokens, kWide})});
  cases.Add("Tile", "512 x 1152, 2 times", "Tile", {kNarrow, Fixed({1, 2})});
  cases.Add("Trilu", "2048 x 2048", "Trilu", {Normal(kFloat, {2048, 2048})});
  cases.Add("OneHot", "512 of 1152", "OneHot",
            {Uniform(kInt64, {kTokens}, 0, kHidden), Scalar(kHidden), Floats({2}, {0, 1})});
}

void AddIndexed(StandardCases& cases) {
  for (const int64_t tokens : {int64_t{1}, kTokens}) {
    const std::string rows = std::to_string(tokens);
    cases.Add("Gather_rows_" + rows, rows + " of 32768 x 1152", "Gather",
              {Normal(kFloat, {32768, kHidden}), Uniform(kInt64, {1, tokens}, 0, 32768)});
  }
  const Part columns = Uniform(kInt64, {kTokens, 64}, 0, kHidden);
  cases.Add("Gather_columns", "128 of 512 x 1152", "Gather",
            {kNarrow, Uniform(kInt64, {128}, 0, kHidden), Attr("axis", 1)});
  cases.Add("GatherElements", "512 x 64 of 512 x 1152", "GatherElements",
            {kNarrow, columns, Attr("axis", 1)});
  cases.Add("GatherND", "512 rows of 32 x 32 x 1152", "GatherND",
            {Normal(kFloat, {32, 32, kHidden}), Uniform(kInt64, {kTokens, 2}, 0, 32)});
  cases.Add("ScatterElements", "512 x 64 into 512 x 1152", "ScatterElements",
            {kNarrow, columns, Normal(kFloat, {kTokens, 64}), Attr("axis", 1)});
  cases.Add("ScatterND_rows", "256 rows into 2048 x 1152", "ScatterND",
            {Normal(kFloat, {2048, kHidden}), Uniform(kInt64, {256, 1}, 0, 2048),
             Normal(kFloat, {256, kHidden})});
  cases.Add("NonZero", "512 x 512", "NonZero", {Uniform(kBool, {kTokens, kTokens}, 0, 2)});
  cases.Add("GatherBlockQuantized", "512 of 32768 x 1152", "com.microsoft.GatherBlockQuantized",
            {Bytes({32768, kHidden / 2}, 0x5A), Uniform(kInt64, {1, kTokens}, 0, 32768),
             Normal(kFloat, {32768, kHidden / 32}), Attr("block_size", 32), Attr("bits", 4)});
}

void AddRotary(StandardCases& cases) {
  const Part positions = Uniform(kInt64, {1, kTokens}, 0, 4096);
  const Part table = Normal(kFloat, {4096, 36});
  cases.Add("RotaryEmbedding", "512 x 16 x 72", "RotaryEmbedding",
            {Normal(kFloat, {1, 16, kTokens, 72}), table, table, positions});
  const Part heads = Normal(kFloat, {1, kTokens, 16, 72});
  cases.Add("Einsum_scores", "16 x 512 x 72", "Einsum",
            {heads, heads, Attr("equation", "bqhd,bkhd->bhqk")});
}

}  // namespace

void AddMovementCases(StandardCases& cases) {
  AddTransposes(cases);
  AddParts(cases);
  AddIndexed(cases);
  AddRotary(cases);
}

}  // namespace pagefuse
