// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/token_rows.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "simd_targets.h"

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {
namespace {

std::string Text(const TokenRows& rows) {
  std::string text;
  for (const TokenRows::Run& run : rows.runs) {
    text += std::to_string(run.begin) + "-" + std::to_string(run.end) + (run.read ? "r " : "w ");
  }
  return text;
}

TEST(TokenRows, AreReadWhereASequenceHasMoreThanOne) {
  const auto of = [](std::vector<int32_t> starts) {
    return Text(TokenRows::Of(starts.data(), static_cast<int64_t>(starts.size()) - 1));
  };
  EXPECT_EQ(of({0}), "");
  EXPECT_EQ(of({0, 1}), "0-1w ");
  EXPECT_EQ(of({0, 1, 2, 3}), "0-3w ");
  EXPECT_EQ(of({0, 1, 2, 7, 9}), "0-2w 2-9r ");
  EXPECT_EQ(of({0, 5, 6, 6, 7, 9}), "0-5r 5-7w 7-9r ");  // one has none
  for (const auto& bad : {std::vector<int32_t>{0, 1000, 4, 5}, {2, 3, 5}, {-1, 4, 5}, {0, -3, 5}}) {
    EXPECT_EQ(of(bad), "");
  }
}

TEST(TokenRows, AreTheRowsOfAPagedGraphsStep) {
  Graph graph;
  const Dim tokens = Dim::Symbol("num_tokens");
  const auto are_tokens = [&](Shape shape) {
    Value* x = graph.AddInput(graph.UniqueName("x"), DataType::kFloat, std::move(shape));
    Node* node = graph.AddNode("", "Identity", {x}, std::vector<Value*>{});
    return RowsAreTokens({.node = node}, 0);
  };
  EXPECT_TRUE(are_tokens(Shape{tokens, Dim(64)}));
  EXPECT_TRUE(are_tokens(Shape{Dim(1), tokens, Dim(64)}));
  EXPECT_FALSE(are_tokens(Shape{Dim(2), tokens, Dim(64)}));
  EXPECT_FALSE(are_tokens(Shape{tokens, Dim(1), Dim(64)}));
  EXPECT_FALSE(are_tokens(Shape{Dim::Symbol("num_logits"), Dim(64)}));
  EXPECT_FALSE(are_tokens(Shape{tokens}));
  Value* unknown = graph.AddInput("unknown", DataType::kFloat, std::nullopt);
  EXPECT_FALSE(
      RowsAreTokens({.node = graph.AddNode("", "Identity", {unknown}, std::vector<Value*>{})}, 0));
}

// The calls of a product over rows 0 to 4, 10 numbers each.
std::string CallsOf(const TokenRows* tokens, bool rows_are_tokens) {
  std::vector<float> x(50), y(20);
  KernelArgs args;
  args.tokens = tokens;
  std::string calls;
  ByTokenRows(args, rows_are_tokens, {x.data(), 5, 10}, {y.data(), 4},
              [&](const RowsView& in, const OutputView& out, bool read) {
                EXPECT_EQ((in.data - x.data()) / 10, (out.data - y.data()) / 4);
                calls += std::to_string((in.data - x.data()) / 10) + "+" + std::to_string(in.m) +
                         (read ? "r " : "w ");
              });
  return calls;
}

TEST(TokenRows, HaveProductsOfTheirOwnWhereTheMachineIsFasterSo) {
  const int32_t starts[] = {0, 1, 2, 5}, fewer[] = {0, 1, 2, 4};
  const TokenRows tokens = TokenRows::Of(starts, 3), others = TokenRows::Of(fewer, 3);
  EXPECT_EQ(CallsOf(nullptr, true), "0+5w ");
  testing::ForEachBf16Unit([&] {
    EXPECT_EQ(CallsOf(&tokens, true), ReadsCodesAsBf16() ? "0+2w 2+3r " : "0+5w ");
    EXPECT_EQ(CallsOf(&tokens, false), "0+5w ");
    EXPECT_EQ(CallsOf(&others, true), "0+5w ");
  });
}

}  // namespace
}  // namespace pagefuse
