// SPDX-License-Identifier: Apache-2.0
// What the shapes of a node's calls have in common.
#include "plugin/ort/seen_shapes.h"

#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pagefuse::ort {
namespace {

using Dims = std::vector<std::vector<int64_t>>;

bool Add(SeenShapes& seen, const Dims& dims) {
  std::vector<const std::vector<int64_t>*> pointers;
  for (const auto& each : dims) pointers.push_back(&each);
  return seen.Add(pointers);
}

std::string Text(const SeenShapes& seen) {
  std::string text;
  for (const Shape& shape : seen.shapes()) text += shape.ToString();
  return text;
}

TEST(SeenShapes, AreNumbersAtTheFirstCall) {
  SeenShapes seen;
  EXPECT_TRUE(Add(seen, {{27, 4, 32}, {27}, {}}));
  EXPECT_EQ(Text(seen), "[27, 4, 32][27][]");
  EXPECT_FALSE(Add(seen, {{27, 4, 32}, {27}, {}}));
}

TEST(SeenShapes, WhatChangesTogetherIsOneSymbol) {
  SeenShapes seen;
  Add(seen, {{27, 4}, {27}, {2}});
  EXPECT_TRUE(Add(seen, {{2, 4}, {2}, {2}}));
  EXPECT_EQ(Text(seen), "[n0, 4][n0][2]");
  EXPECT_FALSE(Add(seen, {{5, 4}, {5}, {2}}));
}

TEST(SeenShapes, WhatWasEqualByChanceIsNotLater) {
  SeenShapes seen;
  Add(seen, {{2}, {2}});
  Add(seen, {{3}, {3}});
  EXPECT_EQ(Text(seen), "[n0][n0]");
  EXPECT_TRUE(Add(seen, {{3}, {4}}));
  EXPECT_EQ(Text(seen), "[n0][n1]");
  EXPECT_FALSE(Add(seen, {{8}, {9}}));
}

TEST(SeenShapes, AnotherRankStartsAnew) {
  SeenShapes seen;
  Add(seen, {{2, 3}});
  Add(seen, {{4, 3}});
  EXPECT_TRUE(Add(seen, {{6}}));
  EXPECT_EQ(Text(seen), "[6]");
}

TEST(SeenShapes, ASizeOfZeroIsASize) {
  SeenShapes seen;
  Add(seen, {{0, 4}});
  EXPECT_FALSE(Add(seen, {{0, 4}}));
  EXPECT_TRUE(Add(seen, {{3, 4}}));
  EXPECT_EQ(Text(seen), "[n0, 4]");
}

TEST(SeenShapes, DeclaredSymbolsAreSymbolsFromTheStart) {
  SeenShapes seen({Shape{Dim::Symbol("T"), 4}, Shape{Dim::Symbol("T")}, std::nullopt,
                   Shape{Dim::Unknown(), Dim::Unknown()}});
  EXPECT_TRUE(Add(seen, {{27, 4}, {27}, {9}, {2, 3}}));
  EXPECT_EQ(Text(seen), "[n0, 4][n0][9][n1, n2]");
  EXPECT_FALSE(Add(seen, {{1, 4}, {1}, {9}, {7, 7}}));
}

TEST(SeenShapes, DeclarationsThatCallsContradictDoNotCount) {
  SeenShapes seen(
      {Shape{Dim::Symbol("T")}, Shape{Dim::Symbol("T")}, Shape{5}, Shape{Dim::Symbol("N")}});
  EXPECT_TRUE(Add(seen, {{3}, {4}, {6}, {1, 2}}));
  EXPECT_EQ(Text(seen), "[n0][n1][6][1, 2]");
  EXPECT_FALSE(Add(seen, {{8}, {9}, {6}, {1, 2}}));
}

}  // namespace
}  // namespace pagefuse::ort
