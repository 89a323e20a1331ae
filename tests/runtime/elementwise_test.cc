// SPDX-License-Identifier: Apache-2.0
// Chains of elementwise ops that sessions make when they load a graph: the same numbers as node by
// node, bit by bit, in the memory of an input where that is free.
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "must.h"
#include "written_out_gelu.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

using testing::HasSubstr;

const std::string kMlp = StrCat(R"(
  <ir_version: 10, opset_import: ["" : 20]>
  mlp (float[T, 8] h, float[8, 700] m, float[T, 700] up) => (float[T, 700] z)
  <float three = {3}, float a = {0.044715}, float b = {0.7978846}, float one = {1}, float half = {0.5}>
  {
    x = MatMul (h, m))",
                                kWrittenOutGelu, "z = Softmax (y) }");

std::unique_ptr<Session> MakeSession(const std::string& text, SessionOptions options) {
  Model model = Must(ParseModel(text));
  options.optimise = false;
  return Must(Session::Create(std::move(model), options));
}

Tensor Waves(std::vector<int64_t> dims, float step) {
  std::vector<float> values(static_cast<size_t>(*ElementCount(dims)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(step * static_cast<float>(i));
  return Tensor::Of<float>(std::move(dims), values);
}

std::map<std::string, Tensor> MlpFeeds(int64_t tokens) {
  return {{"h", Waves({tokens, 8}, 0.7f)},
          {"m", Waves({8, 700}, 1.3f)},
          {"up", Waves({tokens, 700}, 0.1f)}};
}

TEST(Elementwise, ChainsGiveWhatTheirNodesGive) {
  const auto fused = MakeSession(kMlp, {});
  const auto as_is = MakeSession(kMlp, {.load_passes = false});
  ASSERT_TRUE(fused != nullptr && as_is != nullptr);
  EXPECT_EQ(as_is->stats().nodes, 11);
  EXPECT_EQ(fused->stats().nodes, 3);
  EXPECT_THAT(fused->KernelReport(), HasSubstr("(pagefuse.Elementwise): tiles"));
  for (const int64_t tokens : {0, 1, 5, 64, 3}) {
    const auto got = Must(fused->Run(MlpFeeds(tokens)));
    const auto want = Must(as_is->Run(MlpFeeds(tokens)));
    EXPECT_TRUE(got[0].IdenticalTo(want[0])) << tokens << " tokens";
  }
}

TEST(Elementwise, ResultsTakeTheMemoryOfAnInput) {
  const auto session = MakeSession(kMlp, {});
  ASSERT_NE(session, nullptr);
  constexpr int64_t kTokens = 64;
  ASSERT_TRUE(session->Run(MlpFeeds(kTokens)).ok());
  EXPECT_LT(session->stats().arena_bytes, 2 * kTokens * 700 * 4);
}

TEST(Elementwise, KernelsThatAreAskedForRunInside) {
  SessionOptions reference;
  for (const char* op : {"Pow", "Mul", "Add", "Tanh"}) reference.force_kernel[op] = "reference";
  const auto fused = MakeSession(kMlp, reference);
  reference.load_passes = false;
  const auto as_is = MakeSession(kMlp, reference);
  ASSERT_TRUE(fused != nullptr && as_is != nullptr);
  const auto got = Must(fused->Run(MlpFeeds(9)));
  const auto want = Must(as_is->Run(MlpFeeds(9)));
  EXPECT_TRUE(got[0].IdenticalTo(want[0]));
}

TEST(Elementwise, ChainsWithoutTilesRunTheirGraphs) {
  const auto session = MakeSession(R"(
    <ir_version: 10, opset_import: ["" : 20, "pagefuse" : 1]>
    g (int64[N] x, int64[N] d) => (int64[N] y) {
      y = pagefuse.Elementwise <body = chain (a, b) => (c) { q = Div (a, b)  c = Neg (q) }> (x, d)
    })",
                                   {});
  ASSERT_NE(session, nullptr);
  EXPECT_THAT(session->KernelReport(), HasSubstr("checks its integers as a whole"));
  const auto y = Must(session->Run(
      {{"x", Tensor::Of<int64_t>({2}, {7, 9})}, {"d", Tensor::Of<int64_t>({2}, {2, 3})}}));
  EXPECT_THAT(y[0].values<int64_t>(), testing::ElementsAre(-3, -3));
  const auto bad = session->Run(
      {{"x", Tensor::Of<int64_t>({2}, {7, 9})}, {"d", Tensor::Of<int64_t>({2}, {2, 0})}});
  EXPECT_THAT(std::string(bad.status().message()),
              HasSubstr("element 1 is 0, an integer divisor must not be"));
}

TEST(Elementwise, SizesInsideBelongToTheGraphAround) {
  const auto session = MakeSession(R"(
    <ir_version: 10, opset_import: ["" : 20, "pagefuse" : 1]>
    g (float[N, K] x, float[M, K] z) => (float[P, K] y) {
      y = pagefuse.Elementwise <body = chain (a, b) => (c) { q = Exp (a)  c = Add (q, b) }> (x, z)
    })",
                                   {});
  ASSERT_NE(session, nullptr);
  const auto y = Must(session->Run({{"x", Waves({1, 3}, 1)}, {"z", Waves({4, 3}, 1)}}));
  EXPECT_THAT(y[0].dims(), testing::ElementsAre(4, 3));
  EXPECT_FALSE(session->Run({{"x", Waves({2, 3}, 1)}, {"z", Waves({4, 3}, 1)}}).ok());
}

}  // namespace
}  // namespace pagefuse
