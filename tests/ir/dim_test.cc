// SPDX-License-Identifier: Apache-2.0
// Dims and shapes: canonical form, text, substitution, and what happens at the ends of int64.
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ir/tensor/dim_expression.h"
#include "pagefuse/ir/tensor/shape.h"

namespace pagefuse {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

const Dim kA = Dim::Symbol("a");
const Dim kB = Dim::Symbol("b");

TEST(Dim, EqualSumsAreEqualInAnyOrder) {
  EXPECT_TRUE(ProvablyEqual(kA + kB, kB + kA));
  EXPECT_TRUE(ProvablyEqual(kA + Dim(3) + kB, Dim(1) + kB + Dim(2) + kA));
  EXPECT_FALSE(ProvablyEqual(kA + kB, kA + kA));
}

TEST(Dim, WhatCancelsIsGone) {
  EXPECT_EQ(kA + kB - kA, kB);
  EXPECT_EQ((kA - kA).constant(), 0);
  EXPECT_EQ((kA * Dim(3) - kA - kA).symbol(), "a");
}

TEST(Dim, UnknownEqualsNothing) {
  const Dim unknown = Dim::Unknown();
  EXPECT_FALSE(ProvablyEqual(unknown, unknown));
  EXPECT_TRUE(unknown == Dim());
  EXPECT_FALSE((unknown + kA).known());
  EXPECT_FALSE((kA - unknown).known());
  EXPECT_FALSE((unknown * Dim(0)).known());
  EXPECT_FALSE(unknown.FloorDiv(Dim(2)).known());
  EXPECT_FALSE(unknown.Substitute({{"a", Dim(1)}}).known());
  EXPECT_EQ(unknown.ToString(), "?");
}

TEST(Dim, ProductsOfSymbolsAreSymbols) {
  EXPECT_EQ(kA * kB, kB * kA);
  EXPECT_EQ((kA * kB).symbol(), "a*b");
  EXPECT_EQ((kA * kB) * kA, kA * (kA * kB));
  EXPECT_EQ((kA + Dim(1)) * (kB - Dim(2)), kA * kB - Dim(2) * kA + kB - Dim(2));
  EXPECT_EQ((kA * Dim(0)).constant(), 0);
}

TEST(Dim, FloorDivisionIsExactWhereAllCoefficientsDivide) {
  EXPECT_EQ((kA * Dim(4) + Dim(6)).FloorDiv(Dim(2)), kA * Dim(2) + Dim(3));
  EXPECT_EQ((kA * Dim(4) + Dim(7)).FloorDiv(Dim(2)), kA * Dim(2) + Dim(3));
  EXPECT_EQ(Dim(-7).FloorDiv(Dim(2)).constant(), -4);
  EXPECT_EQ(Dim(7).FloorDiv(Dim(-2)).constant(), -4);
  EXPECT_EQ(Dim(-7).FloorDiv(Dim(-2)).constant(), 3);
  EXPECT_FALSE(Dim(7).FloorDiv(Dim(0)).known());
  EXPECT_EQ(kA.FloorDiv(Dim(4)).symbol(), "a//4");
  EXPECT_EQ((kA + Dim(8)).FloorDiv(Dim(4)), kA.FloorDiv(Dim(4)) + Dim(2));
}

TEST(Dim, OverflowGivesUnknown) {
  EXPECT_FALSE((Dim(kMax) + Dim(1)).known());
  EXPECT_FALSE((Dim(kMin) - Dim(1)).known());
  EXPECT_FALSE((Dim(kMin) * Dim(-1)).known());
  EXPECT_FALSE((kA * Dim(kMax) + kA).known());
  EXPECT_FALSE((kA * Dim(kMax) * Dim(2)).known());
  EXPECT_FALSE((kA * Dim(kMax)).Substitute({{"a", Dim(2)}}).known());
  EXPECT_FALSE(Dim(kMin).FloorDiv(Dim(-1)).known());
  EXPECT_FALSE(kA.FloorDiv(Dim(kMin)).known());
}

TEST(Dim, FloorDivisionOfTheSmallestNumberStaysInRange) {
  EXPECT_EQ(Dim(kMin).FloorDiv(Dim(3)).constant(), -3074457345618258603);
  EXPECT_EQ(Dim(kMin).FloorDiv(Dim(kMax)).constant(), -2);
  EXPECT_EQ((kA + Dim(kMin)).FloorDiv(Dim(3)),
            (kA + Dim(1)).FloorDiv(Dim(3)) - Dim(3074457345618258603));
}

TEST(Dim, GrowthEndsInUnknown) {
  Dim power = kA;
  for (int i = 0; i < 2000 && power.known(); ++i) power = power * kA;
  EXPECT_FALSE(power.known());
  Dim sum(0);
  for (int i = 0; i < 100; ++i) sum = sum + Dim::Symbol("s" + std::to_string(i));
  EXPECT_FALSE(sum.known());
}

TEST(Dim, PrintsAndReadsTheSame) {
  for (const char* text :
       {"0", "7", "-7", "seq", "past + seq", "2*seq - 1", "-seq", "a*b", "4*(seq//4)",
        "seq - (seq//4)", "(a + b)//2", "a//b", "s0.1 + 3", "9223372036854775807"}) {
    EXPECT_EQ(Dim::Parse(text).ToString(), text);
  }
}

TEST(Dim, ReadsWhatExportersWrite) {
  EXPECT_EQ(Dim::Parse("sequence + past_sequence"), Dim::Parse("past_sequence +  sequence"));
  EXPECT_EQ(Dim::Parse(" 2 * ( N - 1 ) "), Dim::Symbol("N") * Dim(2) - Dim(2));
  EXPECT_EQ(Dim::Parse("-(-a)"), kA);
  EXPECT_EQ(Dim::Parse("a - 4*((a//4))"), kA - kA.FloorDiv(Dim(4)) * Dim(4));
  EXPECT_EQ(Dim::Parse("8*b//4").symbol(), std::nullopt);
  EXPECT_EQ(Dim::Parse("8*b//4"), kB * Dim(2));
  EXPECT_FALSE(Dim::Parse("").known());
}

TEST(Dim, OtherTextIsOneSymbol) {
  for (const char* text : {"a b", "a +", "(a", "a)", "a/b", "a ** 2", "7seven", "max(a, b)", "$x",
                           "9223372036854775808", "+", " "}) {
    EXPECT_EQ(Dim::Parse(text).symbol(), text);
  }
  const std::string deep = std::string(100, '(') + "a" + std::string(100, ')');
  EXPECT_EQ(Dim::Parse(deep).symbol(), deep);
  const std::string minuses = std::string(3000, '-') + "a";
  EXPECT_EQ(Dim::Parse(minuses).symbol(), minuses);
}

TEST(Dim, SubstitutesInsideOpaqueSymbols) {
  const Dim dim = kA.FloorDiv(Dim(4)) * Dim(4) + kB * kA;
  EXPECT_EQ(dim.Substitute({{"a", Dim(10)}, {"b", Dim(3)}}).constant(), 38);
  EXPECT_EQ(dim.Substitute({{"a", kB}}), kB.FloorDiv(Dim(4)) * Dim(4) + kB * kB);
  EXPECT_EQ(dim.Substitute({}), dim);
  EXPECT_FALSE(dim.Substitute({{"b", Dim::Unknown()}}).known());
  // Both are replaced at once, not one after the other.
  EXPECT_EQ((kA - kB).Substitute({{"a", kB}, {"b", kA}}), kB - kA);
}

TEST(Dim, ASymbolThatIsNoExpressionIsReplacedByItsName) {
  const Dim dim = Dim::Parse("batch size") * Dim(2);
  EXPECT_EQ(dim.Substitute({{"batch size", Dim(4)}}).constant(), 8);
  EXPECT_EQ(dim.Substitute({{"batch", Dim(4)}}), dim);
}

// An expression as text, with the number that it has for given symbols; nullopt where a division by
// zero has none.
struct Expression {
  std::string text;
  Dim dim;
  std::optional<int64_t> value;
};

class ExpressionMaker {
 public:
  explicit ExpressionMaker(unsigned seed) : random_(seed) {
    for (const char* name : {"a", "b", "c.1", "_d"}) values_[name] = Dim(Pick(-20, 20));
  }
  const std::map<std::string, Dim>& values() const { return values_; }

  Expression Make(int depth) {
    const int kind = Pick(0, depth == 0 ? 1 : 5);
    if (kind == 0) {
      const int64_t number = Pick(0, 9);
      return {std::to_string(number), Dim(number), number};
    }
    if (kind == 1) {
      auto it = values_.begin();
      std::advance(it, Pick(0, 3));
      return {it->first, Dim::Symbol(it->first), it->second.constant()};
    }
    const Expression x = Make(depth - 1), y = Make(depth - 1);
    const bool both = x.value && y.value;
    const auto result = [both](int64_t value) {
      return both ? std::optional<int64_t>(value) : std::nullopt;
    };
    const int64_t p = x.value.value_or(0), q = y.value.value_or(0);
    switch (kind) {
      case 2:
        return {"(" + x.text + " + " + y.text + ")", x.dim + y.dim, result(p + q)};
      case 3:
        return {"(" + x.text + " - " + y.text + ")", x.dim - y.dim, result(p - q)};
      case 4:
        return {"(" + x.text + "*" + y.text + ")", x.dim * y.dim, result(p * q)};
      default:
        return {"(" + x.text + "//" + y.text + ")", x.dim.FloorDiv(y.dim),
                q == 0 ? std::nullopt : result(Floor(p, q))};
    }
  }

 private:
  static int64_t Floor(int64_t p, int64_t q) {
    return p / q - (p % q != 0 && (p < 0) != (q < 0) ? 1 : 0);
  }
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  std::mt19937 random_;
  std::map<std::string, Dim> values_;
};

TEST(Dim, RandomExpressionsHaveTheValueOfTheirNumbers) {
  int known = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    ExpressionMaker maker(seed);
    const Expression expression = maker.Make(4);
    EXPECT_EQ(Dim::Parse(expression.text), expression.dim) << expression.text;
    EXPECT_EQ(Dim::Parse(expression.dim.ToString()).ToString(), expression.dim.ToString());
    const Dim value = expression.dim.Substitute(maker.values());
    if (!expression.value || !value.known()) continue;
    ++known;
    ASSERT_EQ(value.constant(), *expression.value)
        << expression.text << " = " << expression.dim.ToString();
  }
  EXPECT_GT(known, 1500);
}

TEST(Shape, ComparesAndPrints) {
  const Shape shape{kA, Dim(4), kA + kB, Dim()};
  EXPECT_EQ(shape.ToString(), "[a, 4, a + b, ?]");
  EXPECT_EQ(shape.rank(), 4);
  EXPECT_EQ(shape.back(2), Dim(4));
  EXPECT_FALSE(ProvablyEqual(shape, shape));
  EXPECT_TRUE(shape == shape);
  EXPECT_TRUE(ProvablyEqual(Shape{kA + kB}, Shape{kB + kA}));
  EXPECT_FALSE(ProvablyEqual(Shape{kA}, Shape{kA, Dim(1)}));
  EXPECT_EQ(shape.constant(), std::nullopt);
  EXPECT_EQ(shape.Substitute({{"a", Dim(2)}, {"b", Dim(1)}}).ToString(), "[2, 4, 3, ?]");
  EXPECT_EQ(Shape::FromInts({2, 0}).constant(), (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(Shape().ToString(), "[]");
  EXPECT_EQ(Shape().constant(), std::vector<int64_t>());
}

TEST(Shape, CountsElementsWithoutOverflow) {
  EXPECT_EQ(ElementCount({}), 1);
  EXPECT_EQ(ElementCount({2, 3}), 6);
  EXPECT_EQ(ElementCount({2, 0, 3}), 0);
  EXPECT_EQ(ElementCount({kMaxElements / 2, 2}), kMaxElements);
  EXPECT_EQ(ElementCount({kMaxElements / 2, 3}), std::nullopt);
  EXPECT_EQ(ElementCount({kMax, 2}), std::nullopt);
  // Empty tensors have strides too.
  EXPECT_EQ(ElementCount({kMaxElements, 0}), 0);
  EXPECT_EQ(ElementCount({kMax, 0}), std::nullopt);
  EXPECT_EQ(ElementCount({0, kMaxElements / 2, 3}), std::nullopt);
  EXPECT_EQ(ElementCount({0, -1}), std::nullopt);
  EXPECT_TRUE(WithinMaxElements(Shape{kA, Dim(kMaxElements), Dim(0), Dim::Unknown()}));
  EXPECT_FALSE(WithinMaxElements(Shape{kA, Dim(kMaxElements), Dim(2)}));
  EXPECT_EQ(CheckedMul(kMax, 1), kMax);
  EXPECT_EQ(CheckedMul(-1, 1), std::nullopt);
  EXPECT_EQ(CheckedMul(int64_t{1} << 32, int64_t{1} << 31), std::nullopt);
}

}  // namespace
}  // namespace pagefuse
