// SPDX-License-Identifier: Apache-2.0
// Sums, quotients and remainders of indices in one form.
#include "pagefuse/passes/analysis/indexing/index_expr.h"

#include "gtest/gtest.h"

namespace pagefuse {
namespace {

IndexExpr Axis(std::string key, const Dim& extent) {
  return IndexExpr::Of(MakeAxis(std::move(key), extent));
}

TEST(IndexExpr, SumsAreEqualInAnyOrder) {
  const IndexExpr a = Axis("a", 4);
  const IndexExpr b = Axis("b", 3);

  EXPECT_EQ((a.Times(2) + b).Key(), (b + a + a).Key());
  EXPECT_EQ((a - a).number(), 0);
}

TEST(IndexExpr, DigitsDivideExactly) {
  const IndexExpr high = Axis("high", 5);
  const IndexExpr low = Axis("low", 4);

  const auto [quotient, rest] = DivMod(high.Times(4) + low, 4);

  EXPECT_EQ(quotient.Key(), "high");
  EXPECT_EQ(rest.Key(), "low");
}

TEST(IndexExpr, WhatIsLeftOverIsTakenOffOfAQuotient) {
  const IndexExpr x = Axis("x", Dim::Unknown());
  const auto [whole, rest] = DivMod(x, 4);

  EXPECT_EQ(DivMod(x - rest, 4).first.Key(), whole.Key());
  EXPECT_EQ(DivMod(x - rest, 4).second.number(), 0);
  // Of another quotient nothing is known.
  EXPECT_NE(DivMod(x - rest, 8).first.Key(), DivMod(x, 8).first.Key());
}

TEST(IndexExpr, DigitsOfSymbolicLengthDivideExactly) {
  const Dim size = Dim::Symbol("S");
  const IndexExpr high = Axis("high", 5);
  const IndexExpr low = Axis("low", size);

  const auto [quotient, rest] = DivMod(high.Times(size) + low, size);

  EXPECT_EQ(quotient.Key(), "high");
  EXPECT_EQ(rest.Key(), "low");
}

TEST(IndexExpr, QuotientAndRemainderJoinAgain) {
  const IndexExpr n = Axis("n", 12);
  const auto [quotient, rest] = DivMod(n, 4);

  EXPECT_EQ((quotient.Times(4) + rest).Key(), "n");
  EXPECT_EQ((n - quotient.Times(4)).Key(), rest.Key());
}

TEST(IndexExpr, AnotherFactorThanTheDivisorDoesNotJoin) {
  const IndexExpr n = Axis("n", 12);
  const auto [quotient, rest] = DivMod(n, 4);

  EXPECT_NE((quotient.Times(8) + rest).Key(), "n");
}

TEST(IndexExpr, StepsThatDivideTheDivisorAreTakenOut) {
  const IndexExpr m = Axis("m", 4);
  const IndexExpr h = Axis("h", 4);

  const auto [quotient, rest] = DivMod(m.Times(4) + h, 8);

  EXPECT_EQ(quotient.Key(), DivMod(m, 2).first.Key());
  EXPECT_EQ(rest.Key(), (DivMod(m, 2).second.Times(4) + h).Key());
}

TEST(IndexExpr, WhatMayBeNegativeKeepsItsLimit) {
  const IndexExpr n = Axis("n", 12);

  EXPECT_EQ(MaxOf(n, IndexExpr(0)).Key(), "n");
  EXPECT_NE(MaxOf(n - IndexExpr(1), IndexExpr(0)).Key(), (n - IndexExpr(1)).Key());
}

TEST(IndexExpr, BoundsFollowFromExtents) {
  const IndexExpr n = Axis("n", Dim::Symbol("N"));

  EXPECT_TRUE(n.ProvablyIn(0, Dim::Symbol("N")));
  EXPECT_TRUE((n + IndexExpr(1)).ProvablyIn(1, Dim::Symbol("N") + Dim(1)));
  EXPECT_FALSE((n + IndexExpr(1)).ProvablyIn(0, Dim::Symbol("N")));
}

}  // namespace
}  // namespace pagefuse
