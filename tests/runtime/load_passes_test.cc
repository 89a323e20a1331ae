// SPDX-License-Identifier: Apache-2.0
// Graphs that run as they came: large copies are taken away when they are loaded, nothing else.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

constexpr int64_t kExperts = 4, kK = 32, kN = 64;
constexpr int64_t kMatrixBytes = kK * kN * 4;

std::vector<float> RandomFloats(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> digits(-8, 8);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(digits(random)) / 8;
  return values;
}

// Rows sorted by expert, those of expert e from offsets[e] to offsets[e + 1]: a slice of rows by a
// slice of the weights for every expert, as exports of grouped products have it.
std::string UnrolledExperts() {
  std::string constants = StrCat("float[4, 32, 64] w = {",
                                 absl::StrJoin(RandomFloats(kExperts * kK * kN, 1), ", "), "}");
  for (int64_t e = 0; e <= kExperts + 1; ++e)
    StrAppend(&constants, ", int64[1] c", e, " = {", e, "}");
  std::string nodes;
  std::vector<std::string> products;
  for (int64_t e = 0; e < kExperts; ++e) {
    StrAppend(&nodes, "  begin", e, " = Slice (offsets, c", e, ", c", e + 1, ", c0)\n");
    StrAppend(&nodes, "  end", e, " = Slice (offsets, c", e + 1, ", c", e + 2, ", c0)\n");
    StrAppend(&nodes, "  rows", e, " = Slice (x, begin", e, ", end", e, ", c0)\n");
    StrAppend(&nodes, "  slice", e, " = Slice (w, c", e, ", c", e + 1, ", c0)\n");
    StrAppend(&nodes, "  matrix", e, " = Squeeze (slice", e, ", c0)\n");
    StrAppend(&nodes, "  product", e, " = MatMul (rows", e, ", matrix", e, ")\n");
    products.push_back(StrCat("product", e));
  }
  return StrCat("<ir_version: 10, opset_import: [\"\" : 18]>\n",
                "experts (float[T, 32] x, int64[5] offsets) => (float[S, 64] y) <", constants,
                "> {\n", nodes, "  y = Concat <axis = 0> (", absl::StrJoin(products, ", "),
                ")\n}\n");
}

std::unique_ptr<Session> MakeSession(const std::string& text, bool load_passes) {
  return Must(
      Session::Create(Must(ParseModel(text)), {.optimise = false, .load_passes = load_passes}));
}

TEST(LoadPasses, MatricesOfUnrolledExpertsAreNotCopied) {
  const auto as_is = MakeSession(UnrolledExperts(), false);
  const auto loaded = MakeSession(UnrolledExperts(), true);
  ASSERT_TRUE(as_is != nullptr && loaded != nullptr);
  // Some experts have no rows.
  for (const std::vector<int64_t>& offsets :
       {std::vector<int64_t>{0, 1, 1, 3, 4}, {0, 0, 0, 0, 0}, {0, 0, 5, 5, 5}}) {
    const int64_t rows = offsets.back();
    const std::map<std::string, Tensor> feeds = {
        {"x", Tensor::Of<float>({rows, kK}, RandomFloats(rows * kK, 2))},
        {"offsets", Tensor::Of<int64_t>({kExperts + 1}, offsets)}};
    const auto expected = Must(as_is->Run(feeds));
    const auto got = Must(loaded->Run(feeds));
    EXPECT_TRUE(got[0].IdenticalTo(expected[0]));
  }
  EXPECT_GE(as_is->stats().arena_bytes, kMatrixBytes);
  EXPECT_LT(loaded->stats().arena_bytes, kMatrixBytes);
  EXPECT_EQ(loaded->stats().weight_bytes / kMatrixBytes, kExperts);
}

TEST(LoadPasses, MatricesGatheredForTokensAreNotCopied) {
  const std::string text =
      StrCat("<ir_version: 10, opset_import: [\"\" : 18]>\n",
             "experts (float[T, 32, 1] x, int64[T, 1] ids) => (float[T, 64, 1] y) <",
             "float[4, 64, 32] w = {", absl::StrJoin(RandomFloats(kExperts * kK * kN, 3), ", "),
             "}> {\n  matrices = GatherND (w, ids)\n  y = MatMul (matrices, x)\n}\n");
  const auto as_is = MakeSession(text, false);
  const auto loaded = MakeSession(text, true);
  ASSERT_TRUE(as_is != nullptr && loaded != nullptr);
  constexpr int64_t kTokens = 20;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kTokens; ++i) ids.push_back(i * 7 % kExperts);
  const std::map<std::string, Tensor> feeds = {
      {"x", Tensor::Of<float>({kTokens, kK, 1}, RandomFloats(kTokens * kK, 4))},
      {"ids", Tensor::Of<int64_t>({kTokens, 1}, ids)}};
  const auto expected = Must(as_is->Run(feeds));
  const auto got = Must(loaded->Run(feeds));
  // Products of eighths are exact in any order.
  EXPECT_THAT(got[0].values<float>(), testing::ElementsAreArray(expected[0].values<float>()));
  EXPECT_GE(as_is->stats().arena_bytes, kTokens * kMatrixBytes);
  EXPECT_LT(loaded->stats().arena_bytes, kMatrixBytes);
}

// A product's output may be read as a view while it is a graph output.
TEST(LoadPasses, ViewsOfOutputsShareTheirMemory) {
  const auto session = MakeSession(
      "<ir_version: 10, opset_import: [\"\" : 18]>\n"
      "g (float[T] x) => (float[T] y, float[T, 1] z) <int64[1] axis = {1}> {\n"
      "  y = Neg (x)\n  column = Unsqueeze (y, axis)\n  z = Neg (column)\n}\n",
      true);
  ASSERT_NE(session, nullptr);
  const auto outputs = Must(session->Run({{"x", Tensor::Of<float>({3}, {1, 2, 3})}}));
  EXPECT_THAT(outputs[0].values<float>(), testing::ElementsAre(-1, -2, -3));
  EXPECT_THAT(outputs[1].values<float>(), testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(session->stats().arena_bytes, 0);
  EXPECT_EQ(session->stats().output_bytes, 2 * 3 * 4);
}

}  // namespace
}  // namespace pagefuse
