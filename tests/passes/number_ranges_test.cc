// SPDX-License-Identifier: Apache-2.0
// Which integers come out exact, and which numbers values hold.
#include "pagefuse/passes/analysis/functions/number_ranges.h"

#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/infer/exact_integers.h"

namespace pagefuse {
namespace {

TEST(ExactIntegers, AreThoseUpToTheFirstThatIsNone) {
  EXPECT_TRUE(HoldsExactly(DataType::kBool, 0, 1));
  EXPECT_FALSE(HoldsExactly(DataType::kBool, 0, 2));
  EXPECT_TRUE(HoldsExactly(DataType::kUint8, 0, 255));
  EXPECT_FALSE(HoldsExactly(DataType::kUint8, -1, 3));
  EXPECT_TRUE(HoldsExactly(DataType::kInt8, -128, 127));
  EXPECT_FALSE(HoldsExactly(DataType::kInt8, -128, 128));
  EXPECT_TRUE(HoldsExactly(DataType::kFloat16, -2048, 2048));
  EXPECT_FALSE(HoldsExactly(DataType::kFloat16, 0, 2049));
  EXPECT_TRUE(HoldsExactly(DataType::kBfloat16, 0, 256));
  EXPECT_FALSE(HoldsExactly(DataType::kBfloat16, 0, 257));
  EXPECT_TRUE(HoldsExactly(DataType::kFloat, 0, 1 << 24));
  EXPECT_FALSE(HoldsExactly(DataType::kFloat, 0, (1 << 24) + 1));
  EXPECT_FALSE(HoldsExactly(DataType::kString, 0, 0));
}

TEST(ExactIntegers, SizesAreThoseOfASequence) {
  const Dim past = Dim::Symbol("past"), fresh = Dim::Symbol("seq");
  const Dim last = past + fresh - Dim(1);
  EXPECT_TRUE(HoldsExactly(DataType::kInt32, 0, last));
  EXPECT_TRUE(HoldsExactly(DataType::kFloat, 0, last));
  EXPECT_FALSE(HoldsExactly(DataType::kFloat16, 0, last));
  EXPECT_FALSE(HoldsExactly(DataType::kInt32, 0, last + Dim(2147483644)));
  EXPECT_FALSE(HoldsExactly(DataType::kUint32, Dim(0) - last, last));
  EXPECT_FALSE(HoldsExactly(DataType::kInt64, Dim::Unknown(), last));
  // As many windows as there are begin at places of tokens.
  const Dim windows = fresh.FloorDiv(3);
  EXPECT_TRUE(HoldsExactly(DataType::kFloat, 0, (windows - Dim(1)) * Dim(3)));
  EXPECT_FALSE(HoldsExactly(DataType::kFloat, 0, fresh * Dim(3)));
}

// The range of y.
NumberRange RangeOf(std::string_view lines) {
  Model model = Must(ParseModel(StrCat(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T, 4] x, float16[T, 4] half, bool[T, 4] flag) => (y)
    <float zero = {0}, float one = {1}, float many = {400}, float small = {0.001}, float[4] weight = {1, -2, 0.5, 3},
     float broken = {nan}, float endless = {-inf}, int64[1] last = {-1}> {
      )",
                                       lines, "\n}")));
  SymbolicContents contents;
  Must(InferShapes(model, &contents));
  return NumberRanges(contents).Of(model.graph->FindValue("y"));
}

TEST(NumberRanges, ConstantsAreWhatTheyHold) {
  const NumberRange range = RangeOf("y = Identity (weight)");
  EXPECT_EQ(range.least, -2);
  EXPECT_EQ(range.most, 3);
  EXPECT_TRUE(range.finite());
  EXPECT_TRUE(RangeOf("y = Identity (broken)").nan);
  EXPECT_FALSE(RangeOf("y = Identity (endless)").finite());
}

TEST(NumberRanges, NormsAreBoundedAndFinite) {
  const NumberRange range = RangeOf("y = RMSNormalization <axis = -1> (x, weight)");
  EXPECT_TRUE(range.finite());
  EXPECT_EQ(range.magnitude(), 6);
  EXPECT_TRUE(RangeOf("far = Mul (x, many)  e = Exp (far)"
                      " y = RMSNormalization <axis = -1> (e, weight)")
                  .nan);
}

TEST(NumberRanges, InfinityTimesZeroIsNone) {
  EXPECT_FALSE(RangeOf("far = Mul (x, many)  y = Exp (far)").finite());
  EXPECT_FALSE(RangeOf("far = Mul (x, many)  y = Exp (far)").nan);
  EXPECT_TRUE(RangeOf("far = Mul (x, many)  e = Exp (far)  c = Cast <to = 1> (flag)"
                      " y = Mul (e, c)")
                  .nan);
  EXPECT_TRUE(RangeOf("c = Cast <to = 1> (flag)  y = Mul (x, c)").finite());
}

TEST(NumberRanges, QuotientsByZeroAreNone) {
  EXPECT_TRUE(RangeOf("c = Cast <to = 1> (flag)  y = Div (x, c)").nan);
  EXPECT_TRUE(RangeOf("c = Cast <to = 1> (flag)  d = Add (c, one)  y = Div (x, d)").finite());
  EXPECT_FALSE(RangeOf("c = Cast <to = 1> (flag)  d = Div (x, c)  n = IsNaN (d)"
                       " y = Where (n, zero, d)")
                   .nan);
}

TEST(NumberRanges, SignsAreKnownOfSquaresAndRoots) {
  EXPECT_TRUE(
      RangeOf("s = Mul (x, x)  m = ReduceMean (s, last)  y = Add (m, small)").never_negative());
  EXPECT_FALSE(RangeOf("y = Add (x, small)").never_negative());
  EXPECT_TRUE(RangeOf("y = Sqrt (x)").nan);
}

// What lies behind a bound is as far from 0 as that, whatever it is usually.
TEST(NumberRanges, EstimatesLieWithinBounds) {
  EXPECT_GE(RangeOf("y = Max (x, many)").typical, 400);
  EXPECT_GE(RangeOf("low = Neg (many)  y = Min (x, low)").typical, 400);
  EXPECT_GE(RangeOf("y = Clip (x, many)").typical, 400);
  EXPECT_LE(RangeOf("y = Clip (x, zero, small)").typical, 0.001F);
}

TEST(NumberRanges, HalfTypesOverflowWhereNumbersAreLarge) {
  EXPECT_TRUE(RangeOf("y = Add (half, half)").finite());
  EXPECT_FALSE(RangeOf("c = Cast <to = 10> (many)  a = Mul (half, c)  y = Mul (a, c)").finite());
}

TEST(NumberRanges, WhatHidesScoresLiesBelowThem) {
  const NumberRange number = NumberRange::Between(-100, 100, 1);
  EXPECT_EQ(HidingNumber(ScoresOf(number, number, {.count = 64, .scale = 0.125})), -1e4);
  EXPECT_LT(HidingNumber(ScoresOf(number, number, {.count = 64, .scale = 3000})), -1e6);
  // Under a soft cap nothing is larger than that.
  EXPECT_EQ(HidingNumber(ScoresOf(number, number, {.count = 64, .scale = 3000, .softcap = 50})),
            -1e4);
}

// As experts are weighed.
constexpr const char* kShares = R"(
  p = Softmax <axis = -1> (x)
  two = Constant <value_ints: ints = [2]> ()
  top, places = TopK <largest = LARGEST> (p, two)
  whole = ReduceSum (top, last)
  y = Div (top, whole))";

std::string Shares(const char* largest) {
  std::string lines = kShares;
  return lines.replace(lines.find("LARGEST"), 7, largest);
}

TEST(NumberRanges, SharesOfTheLargestProbabilitiesAreFinite) {
  const NumberRange shares = RangeOf(Shares("1"));
  EXPECT_TRUE(shares.finite());
  EXPECT_TRUE(shares.never_negative());
  EXPECT_LE(shares.most, 1);
}

TEST(NumberRanges, SharesOfTheSmallestProbabilitiesMayBeOfNothing) {
  EXPECT_FALSE(RangeOf(Shares("0")).finite());
}

}  // namespace
}  // namespace pagefuse
