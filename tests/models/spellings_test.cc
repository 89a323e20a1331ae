// Exports under other spellings end in the ops that the exports end in (export_sweep looks at more of
// them).
#include "graph_mutations.h"
#include "gtest/gtest.h"
#include "paths.h"
#include "tests/models/fused_ops.h"
#include "tests/models/model_data.h"

#include "pagefuse/ir/onnx_io.h"
#include "pagefuse/ops/infer.h"

namespace pagefuse {
namespace {

std::string PathOf(const std::string& name) {
  if (name.find('/') != std::string::npos) return SourcePath(name);
  return name.starts_with("opset") ? Gpt2Path(name + ".onnx") : ModelDir(name) + "/model.onnx";
}

class Spellings : public ::testing::TestWithParam<const char*> {};

TEST_P(Spellings, EndInTheSameOps) {
  const std::string name = GetParam();
  auto plain = LoadModel(PathOf(name));
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE(InferShapes(*plain).ok());
  const auto expected = FusedOps(*plain);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_FALSE(expected->empty());
  int written = 0;
  for (const pagefuse::testing::Mutation& mutation : pagefuse::testing::Spellings()) {
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

INSTANTIATE_TEST_SUITE_P(Exports, Spellings,
                         ::testing::Values("gemma3_A18", "gemma3_B18", "gemma3_A23",
                                           "gemma3_D_fp32", "gemma3_D_int4", "gemma3_D_kvint8",
                                           "gemma3_D_windowed", "gemma3_recall", "deepseek_v3_A18",
                                           "deepseek_v3_B18", "opset9_product_none",
                                           "opset9_modern_separate_mask",
                                           "opset9_where_stacked_mask",
                                           "tests/data/decoders/multi_head_attention.onnxtxt",
                                           "tests/data/decoders/sinks.onnxtxt",
                                           "tests/data/decoders/shared_keys_and_values.onnxtxt"));

}  // namespace
}  // namespace pagefuse
