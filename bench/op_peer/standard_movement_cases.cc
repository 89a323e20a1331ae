// Single nodes of domain ai.onnx that move elements: joins, cuts, copies, gathers and scatters.
#include "standard_cases.h"

namespace pagefuse {
namespace {

using enum DataType;

constexpr int64_t kTokens = 512, kHidden = 1152, kWide = 2304;

void Narrow(OpCall& call) { call.Normal(kFloat, {kTokens, kHidden}); }
void Heads(OpCall& call) { call.Normal(kFloat, {1, kTokens, 16, 72}); }
void Longs(OpCall& call, const std::vector<int64_t>& values) {
  call.Longs(values);
  call.Constant();
}

void AddTransposes(StandardCases& cases) {
  const auto add = [&](const char* name, const char* size, std::vector<int64_t> dims,
                       std::vector<int64_t> perm) {
    cases.Add(name, size, "Transpose", [dims, perm](OpCall& call) {
      call.Normal(kFloat, dims);
      call.Attribute("perm", perm);
    });
  };
  add("Transpose_heads", "512 x 16 x 72", {1, kTokens, 16, 72}, {0, 2, 1, 3});
  add("Transpose_keys", "512 x 16 x 72", {1, kTokens, 16, 72}, {0, 2, 3, 1});
  add("Transpose_matrix", "2304 x 1152", {kWide, kHidden}, {1, 0});
  add("Transpose_channels_last", "256 x 64 x 64", {1, 256, 64, 64}, {0, 2, 3, 1});
  cases.Add("DepthToSpace", "256 x 64 x 64", "DepthToSpace", [](OpCall& call) {
    call.Normal(kFloat, {1, 256, 64, 64});
    call.Attribute("blocksize", int64_t{2});
  });
}

void AddParts(StandardCases& cases) {
  cases.Add("Concat_cache", "4 x 4096 x 256 and 1", "Concat", [](OpCall& call) {
    call.Normal(kFloat, {1, 4, 4096, 256});
    call.Normal(kFloat, {1, 4, 1, 256});
    call.Attribute("axis", int64_t{2});
  });
  cases.Add("Concat_rotary", "8 x 512 x 128 twice", "Concat", [](OpCall& call) {
    for (int i = 0; i < 2; ++i) call.Normal(kFloat, {1, 8, kTokens, 128});
    call.Attribute("axis", int64_t{-1});
  });
  cases.Add("Split_qkv", "512 x 3456", "Split", [](OpCall& call) {
    call.Normal(kFloat, {1, kTokens, 3 * kHidden});
    Longs(call, {kHidden, kHidden, kHidden});
    call.Attribute("axis", int64_t{-1});
    call.set_num_outputs(3);
  });
  cases.Add("Slice_last", "8 x 512 x 256", "Slice", [](OpCall& call) {
    call.Normal(kFloat, {1, 8, kTokens, 256});
    Longs(call, {0});
    Longs(call, {128});
    Longs(call, {3});
  });
  cases.Add("Slice_steps", "512 x 2304, every second", "Slice", [](OpCall& call) {
    call.Normal(kFloat, {kTokens, kWide});
    Longs(call, {0});
    Longs(call, {kWide});
    Longs(call, {1});
    Longs(call, {2});
  });
  cases.Add("Pad", "3 x 896 x 896", "Pad", [](OpCall& call) {
    call.Normal(kFloat, {1, 3, 896, 896});
    Longs(call, {0, 0, 3, 3, 0, 0, 3, 3});
  });
  cases.Add("Expand_heads", "4 x 1 x 512 x 256 to 4 x 2", "Expand", [](OpCall& call) {
    call.Normal(kFloat, {1, 4, 1, kTokens, 256});
    Longs(call, {1, 4, 2, kTokens, 256});
  });
  cases.Add("Expand_column", "512 x 1 to 512 x 2304", "Expand", [](OpCall& call) {
    call.Normal(kFloat, {kTokens, 1});
    Longs(call, {kTokens, kWide});
  });
  cases.Add("Tile", "512 x 1152, 2 times", "Tile", [](OpCall& call) {
    Narrow(call);
    Longs(call, {1, 2});
  });
  cases.Add("Trilu", "2048 x 2048", "Trilu", [](OpCall& call) {
    call.Normal(kFloat, {2048, 2048});
  });
  cases.Add("OneHot", "512 of 1152", "OneHot", [](OpCall& call) {
    call.Uniform(kInt64, {kTokens}, 0, kHidden);
    *call.Input<int64_t>(kInt64, {}) = kHidden;
    call.Floats({2}, {0, 1});
  });
}

void AddIndexed(StandardCases& cases) {
  for (const int64_t tokens : {int64_t{1}, kTokens}) {
    const std::string rows = std::to_string(tokens);
    cases.Add("Gather_rows_" + rows, rows + " of 32768 x 1152", "Gather", [tokens](OpCall& call) {
      call.Normal(kFloat, {32768, kHidden});
      call.Uniform(kInt64, {1, tokens}, 0, 32768);
    });
  }
  cases.Add("Gather_columns", "128 of 512 x 1152", "Gather", [](OpCall& call) {
    Narrow(call);
    call.Uniform(kInt64, {128}, 0, kHidden);
    call.Attribute("axis", int64_t{1});
  });
  cases.Add("GatherElements", "512 x 64 of 512 x 1152", "GatherElements", [](OpCall& call) {
    Narrow(call);
    call.Uniform(kInt64, {kTokens, 64}, 0, kHidden);
    call.Attribute("axis", int64_t{1});
  });
  cases.Add("GatherND", "512 rows of 32 x 32 x 1152", "GatherND", [](OpCall& call) {
    call.Normal(kFloat, {32, 32, kHidden});
    call.Uniform(kInt64, {kTokens, 2}, 0, 32);
  });
  cases.Add("ScatterElements", "512 x 64 into 512 x 1152", "ScatterElements", [](OpCall& call) {
    Narrow(call);
    call.Uniform(kInt64, {kTokens, 64}, 0, kHidden);
    call.Normal(kFloat, {kTokens, 64});
    call.Attribute("axis", int64_t{1});
  });
  cases.Add("ScatterND_rows", "256 rows into 2048 x 1152", "ScatterND", [](OpCall& call) {
    call.Normal(kFloat, {2048, kHidden});
    call.Uniform(kInt64, {256, 1}, 0, 2048);
    call.Normal(kFloat, {256, kHidden});
  });
  cases.Add("NonZero", "512 x 512", "NonZero", [](OpCall& call) {
    call.Uniform(kBool, {kTokens, kTokens}, 0, 2);
  });
  cases.Add("GatherBlockQuantized", "512 of 32768 x 1152", "com.microsoft.GatherBlockQuantized",
            [](OpCall& call) {
              call.Bytes({32768, kHidden / 2}, 0x5A);
              call.Uniform(kInt64, {1, kTokens}, 0, 32768);
              call.Normal(kFloat, {32768, kHidden / 32});
              call.Attribute("block_size", int64_t{32});
              call.Attribute("bits", int64_t{4});
            });
}

void AddRotary(StandardCases& cases) {
  cases.Add("RotaryEmbedding", "512 x 16 x 72", "RotaryEmbedding", [](OpCall& call) {
    call.Normal(kFloat, {1, 16, kTokens, 72});
    for (int i = 0; i < 2; ++i) call.Normal(kFloat, {4096, 36});
    call.Uniform(kInt64, {1, kTokens}, 0, 4096);
  });
  cases.Add("Einsum_scores", "16 x 512 x 72", "Einsum", [](OpCall& call) {
    Heads(call);
    Heads(call);
    call.Attribute("equation", std::string("bqhd,bkhd->bhqk"));
  });
}

}  // namespace

void AddMovementCases(StandardCases& cases) {
  AddTransposes(cases);
  AddParts(cases);
  AddIndexed(cases);
  AddRotary(cases);
}

}  // namespace pagefuse
