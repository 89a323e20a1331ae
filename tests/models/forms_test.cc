// SPDX-License-Identifier: Apache-2.0
// Exports under other forms end in the ops that the exports end in (export_sweep looks at more of
// them).
#include <algorithm>
#include <string_view>

#include "graph_mutations.h"
#include "gtest/gtest.h"
#include "paths.h"
#include "tests/models/fused_ops.h"
#include "tests/models/model_data.h"

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {
namespace {

std::string PathOf(const std::string& name) {
  if (name.find('/') != std::string::npos) return SourcePath(name);
  return name.starts_with("opset") ? Gpt2Path(name + ".onnx") : ModelDir(name) + "/model.onnx";
}

class Variants : public ::testing::TestWithParam<const char*> {};

TEST_P(Variants, EndInTheSameOps) {
  const std::string name = GetParam();
  auto plain = LoadModel(PathOf(name));
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE(InferShapes(*plain).ok());
  const auto expected = FusedOps(*plain);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_FALSE(expected->empty());
  int written = 0;
  for (const pagefuse::testing::Mutation& mutation : pagefuse::testing::Variants()) {
    SCOPED_TRACE(mutation.name);
    Model mutated = plain->Clone();
    pagefuse::testing::Random random(7);
    const auto count = Mutate(mutated, mutation, 0.5, random);
    ASSERT_TRUE(count.ok()) << count.status();
    if (*count == 0) continue;
    ++written;
    const auto found = FusedOps(mutated);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, *expected);
  }
  EXPECT_GE(written, 10);
}

INSTANTIATE_TEST_SUITE_P(Exports, Variants,
                         ::testing::Values("gemma3_A18", "gemma3_B18", "gemma3_A23",
                                           "gemma3_D_fp32", "gemma3_D_int4", "gemma3_D_kvint8",
                                           "gemma3_D_windowed", "gemma3_recall", "deepseek_v3_A18",
                                           "deepseek_v3_B18", "opset9_product_none",
                                           "opset9_modern_separate_mask",
                                           "opset9_where_stacked_mask",
                                           "tests/data/decoders/multi_head_attention.onnxtxt",
                                           "tests/data/decoders/sinks.onnxtxt",
                                           "tests/data/decoders/shared_keys_and_values.onnxtxt"));

// Those of idioms and forms by which places, masks and layouts are computed otherwise.
constexpr std::string_view kPlaces[] = {"commute",
                                        "comparison as not",
                                        "turn comparison",
                                        "places in int32",
                                        "div as shift",
                                        "div as floor",
                                        "any mod as sub",
                                        "comparison of integers otherwise",
                                        "and otherwise",
                                        "elementwise transposed",
                                        "reduce transposed",
                                        "expand otherwise",
                                        "strides as product",
                                        "scale before product",
                                        "clip as where",
                                        "split as slices",
                                        "div as mul",
                                        "gather as elements"};

class Places : public ::testing::TestWithParam<const char*> {};

TEST_P(Places, EndInTheSameOpsAndPages) {
  auto plain = LoadModel(PathOf(GetParam()));
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE(InferShapes(*plain).ok());
  const auto expected = EndOf(*plain);
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(expected->why_not_paged, "");
  int written = 0;
  for (const auto mutations : {pagefuse::testing::Variants(), pagefuse::testing::Idioms()}) {
    for (const pagefuse::testing::Mutation& mutation : mutations) {
      if (std::ranges::find(kPlaces, mutation.name) == std::end(kPlaces)) continue;
      SCOPED_TRACE(mutation.name);
      Model mutated = plain->Clone();
      pagefuse::testing::Random random(0);
      const auto count = Mutate(mutated, mutation, 0.5, random);
      ASSERT_TRUE(count.ok()) << count.status();
      if (*count == 0) continue;
      ++written;
      const auto found = EndOf(mutated);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(found->why_not_paged, "");
      EXPECT_EQ(found->ops, expected->ops);
    }
  }
  EXPECT_GE(written, 4);
}

INSTANTIATE_TEST_SUITE_P(Exports, Places,
                         ::testing::Values("deepseek_v4p_A18", "deepseek_v3p_B18",
                                           "deepseek_v32_B18", "gemma3_recall", "gemma3_D_paged"));

}  // namespace
}  // namespace pagefuse
