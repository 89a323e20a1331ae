// Sums, quotients and remainders of indices in one form.
#include "pagefuse/passes/words/index_form.h"

#include "gtest/gtest.h"

namespace pagefuse {
namespace {

IndexForm Axis(std::string key, const Dim& extent) {
  return IndexForm::Of(MakeAxis(std::move(key), extent));
}

TEST(IndexForm, SumsAreEqualInAnyOrder) {
  const IndexForm a = Axis("a", 4);
  const IndexForm b = Axis("b", 3);

  EXPECT_EQ((a.Times(2) + b).Key(), (b + a + a).Key());
  EXPECT_EQ((a - a).number(), 0);
}

TEST(IndexForm, DigitsDivideExactly) {
  const IndexForm high = Axis("high", 5);
  const IndexForm low = Axis("low", 4);

  const auto [quotient, rest] = DivMod(high.Times(4) + low, 4);

  EXPECT_EQ(quotient.Key(), "high");
  EXPECT_EQ(rest.Key(), "low");
}

TEST(IndexForm, WhatIsLeftOverIsTakenOffOfAQuotient) {
  const IndexForm x = Axis("x", Dim::Unknown());
  const auto [whole, rest] = DivMod(x, 4);

  EXPECT_EQ(DivMod(x - rest, 4).first.Key(), whole.Key());
  EXPECT_EQ(DivMod(x - rest, 4).second.number(), 0);
  // Of another quotient nothing is known.
  EXPECT_NE(DivMod(x - rest, 8).first.Key(), DivMod(x, 8).first.Key());
}

TEST(IndexForm, DigitsOfSymbolicLengthDivideExactly) {
  const Dim size = Dim::Symbol("S");
  const IndexForm high = Axis("high", 5);
  const IndexForm low = Axis("low", size);

  const auto [quotient, rest] = DivMod(high.Times(size) + low, size);

  EXPECT_EQ(quotient.Key(), "high");
  EXPECT_EQ(rest.Key(), "low");
}

TEST(IndexForm, QuotientAndRemainderJoinAgain) {
  const IndexForm n = Axis("n", 12);
  const auto [quotient, rest] = DivMod(n, 4);

  EXPECT_EQ((quotient.Times(4) + rest).Key(), "n");
  EXPECT_EQ((n - quotient.Times(4)).Key(), rest.Key());
}

TEST(IndexForm, AnotherFactorThanTheDivisorDoesNotJoin) {
  const IndexForm n = Axis("n", 12);
  const auto [quotient, rest] = DivMod(n, 4);

  EXPECT_NE((quotient.Times(8) + rest).Key(), "n");
}

TEST(IndexForm, StepsThatDivideTheDivisorAreTakenOut) {
  const IndexForm m = Axis("m", 4);
  const IndexForm h = Axis("h", 4);

  const auto [quotient, rest] = DivMod(m.Times(4) + h, 8);

  EXPECT_EQ(quotient.Key(), DivMod(m, 2).first.Key());
  EXPECT_EQ(rest.Key(), (DivMod(m, 2).second.Times(4) + h).Key());
}

TEST(IndexForm, WhatMayBeNegativeKeepsItsLimit) {
  const IndexForm n = Axis("n", 12);

  EXPECT_EQ(MaxOf(n, IndexForm(0)).Key(), "n");
  EXPECT_NE(MaxOf(n - IndexForm(1), IndexForm(0)).Key(), (n - IndexForm(1)).Key());
}

TEST(IndexForm, BoundsFollowFromExtents) {
  const IndexForm n = Axis("n", Dim::Symbol("N"));

  EXPECT_TRUE(n.ProvablyIn(0, Dim::Symbol("N")));
  EXPECT_TRUE((n + IndexForm(1)).ProvablyIn(1, Dim::Symbol("N") + Dim(1)));
  EXPECT_FALSE((n + IndexForm(1)).ProvablyIn(0, Dim::Symbol("N")));
}

}  // namespace
}  // namespace pagefuse
