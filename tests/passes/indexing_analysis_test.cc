// SPDX-License-Identifier: Apache-2.0
// Elements followed to where they come from, and conditions read as inequalities.
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A graph that computes y from a pool, a table and lengths.
struct Computed {
  Model model;
  SymbolicContents contents;
  Value* y = nullptr;
};

Computed Compute(std::string_view lines) {
  auto model = Must(ParseModel(StrCat(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[6, 4, 2, 8] pool, int64[B, 3] table, int64[B] lens, int64[C] others, int64[B, 12] places, bool[B, 12] flags) => (y)
    <int64[12] n = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, int64 size = {4}, int64 zero = {0}, int64 three = {3},
     int64[1] last = {-1}, int64[4] joined = {-1, 12, 2, 8}, int64[3] rows = {24, 2, 8}, int64 two = {2},
     int64[8] threes = {5, 6, 7, 5, 6, 7, 5, 6}, int64 one = {1}, float whole = {1}, float deep = {-1e32}, float deepest = {-inf},
     bool[3, 3] triangle = {1, 0, 0, 1, 1, 0, 1, 1, 1}, bool[3, 3] hole = {1, 0, 0, 0, 1, 0, 1, 0, 1},
     bool[4, 4] away = {0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0}>
    {
      )",
                                      lines, "\n}")));
  Computed computed;
  computed.model = std::move(model);
  const absl::Status inferred = InferShapes(computed.model, &computed.contents);
  EXPECT_TRUE(inferred.ok()) << inferred;
  computed.y = computed.model.graph->FindValue("y");
  return computed;
}

std::string SourceOf(std::string_view lines) {
  Computed computed = Compute(lines);
  IndexingAnalysis reader(computed.contents);
  return reader.Source(*reader.Whole(computed.y)).Key();
}

std::vector<std::string> ConditionsOf(std::string_view lines, Trust trust = Trust::kExporter) {
  Computed computed = Compute(lines);
  IndexingAnalysis reader(computed.contents, trust);
  const auto conditions = reader.ReadMask(*reader.Places(computed.y));
  if (!conditions.ok()) return {std::string(conditions.status().message())};
  std::vector<std::string> keys;
  for (const IndexExpr& condition : *conditions) keys.push_back(condition.Key());
  return keys;
}

constexpr char kRow[] = R"("pool"["table"[i0, div(i1; 4)], mod(i1; 4), i2, i3])";

TEST(Element, RowsOfATableAreReadByBlockAndRow) {
  EXPECT_EQ(SourceOf("blocks = Gather (pool, table)  y = Reshape (blocks, joined)"), kRow);
}

TEST(Element, TiledElementsRepeat) {
  EXPECT_EQ(SourceOf("repeats = Constant <value_ints = [1, 2]> ()  y = Tile (table, repeats)"),
            "\"table\"[i0, mod(i1; 3)]");
}

TEST(Element, ScatteredRowsAreUpdatesOrWhatWasThere) {
  // Blocks 2 and 3 of six are overwritten.
  const std::string scatter =
      "begin = Constant <value_ints = [2]> ()  stop = Constant <value_ints = [4]> ()  "
      "written = Slice (n, begin, stop)  index = Unsqueeze (written, last)  "
      "first = Constant <value_ints = [0]> ()  other = Constant <value_ints = [4]> ()  "
      "updates = Slice (pool, other, end, first)  all = ScatterND (pool, index, updates)  ";
  const std::string end = "end = Constant <value_ints = [6]> ()  ";
  const auto block = [&](int number) {
    return SourceOf(end + scatter + "at = Constant <value_int = " + std::to_string(number) +
                    "> ()  y = Gather (all, at)");
  };
  EXPECT_EQ(block(1), "\"pool\"[1, i0, i1, i2]");
  EXPECT_EQ(block(2), "\"pool\"[4, i0, i1, i2]");
  EXPECT_EQ(block(3), "\"pool\"[5, i0, i1, i2]");
  EXPECT_EQ(block(4), "\"pool\"[4, i0, i1, i2]");
  // Which of them a block is of is not known.
  EXPECT_EQ(SourceOf(end + scatter + "y = Identity (all)"), "\"all\"[i0, i1, i2, i3]");
}

TEST(Element, RowsOfATableAreReadByIndexTuples) {
  EXPECT_EQ(SourceOf("index = Unsqueeze (table, last)  blocks = GatherND (pool, index)  "
                     "y = Reshape (blocks, joined)"),
            kRow);
}

TEST(Element, RowsOfATableAreReadBySlotArithmetic) {
  EXPECT_EQ(SourceOf("flat = Reshape (pool, rows)  column = Div (n, size)  offset = Mod (n, size)  "
                     "block = Gather <axis = 1> (table, column)  first = Mul (size, block)  "
                     "slot = Add (offset, first)  y = Gather (flat, slot)"),
            kRow);
}

TEST(Element, WhatDivisionLeavesIsTheRemainder) {
  EXPECT_EQ(
      SourceOf("flat = Reshape (pool, rows)  column = Div (n, size)  back = Mul (column, size)  "
               "offset = Sub (n, back)  block = Gather <axis = 1> (table, column)  "
               "first = Mul (block, size)  slot = Add (first, offset)  y = Gather (flat, slot)"),
      kRow);
}

TEST(Element, PartsJoinedAsTheyLayAreTheWhole) {
  EXPECT_EQ(
      SourceOf("a, b = Split <axis = 3, num_outputs = 2> (pool)  y = Concat <axis = 3> (a, b)"),
      R"("pool"[i0, i1, i2, i3])");
}

TEST(Element, PartsJoinedInAnotherOrderAreNot) {
  EXPECT_EQ(
      SourceOf("a, b = Split <axis = 3, num_outputs = 2> (pool)  y = Concat <axis = 3> (b, a)"),
      R"("y"[i0, i1, i2, i3])");
}

TEST(Element, PlacesBelowANumberAreAsManyAsIt) {
  EXPECT_THAT(ConditionsOf("row = Unsqueeze (n, last)  past = GreaterOrEqual (row, n)  "
                           "counts = Cast <to = 7> (past)  axis = Identity (last)  "
                           "below = ReduceSum <keepdims = 0> (counts, axis)  "
                           "y = Less (below, three)"),
              ElementsAre("(-1)*i0 + 1"));
}

TEST(Element, PlacesBelowALengthThatMayBeAnyAreCounted) {
  EXPECT_THAT(ConditionsOf("column = Unsqueeze (lens, last)  inside = Less (n, column)  "
                           "counts = Cast <to = 7> (inside)  axis = Identity (last)  "
                           "below = ReduceSum <keepdims = 0> (counts, axis)  "
                           "y = Less (below, three)"),
              ElementsAre(HasSubstr("count(n0")));
}

TEST(Element, ConstantsMayBeRemainders) {
  EXPECT_THAT(ConditionsOf("y = Less (threes, two)"), ElementsAre("(-1)*mod(i0; 3) + -4"));
}

TEST(Element, AMaskOfBitsMayStandFirst) {
  EXPECT_THAT(ConditionsOf("low = BitwiseAnd (three, lens)  y = Less (low, two)"),
              ElementsAre(R"((-1)*mod("lens"[i0]; 4) + 1)"));
}

TEST(Element, ALengthIsAnUpperBound) {
  EXPECT_THAT(ConditionsOf("column = Unsqueeze (lens, last)  y = Less (n, column)"),
              ElementsAre(R"("lens"[i0] + (-1)*i1 + -1)"));
}

TEST(Element, NegatedAlternativesAreBothBounds) {
  EXPECT_THAT(ConditionsOf("column = Unsqueeze (lens, last)  low = Sub (column, size)  "
                           "behind = GreaterOrEqual (n, column)  before = Less (n, low)  "
                           "hidden = Or (behind, before)  y = Not (hidden)"),
              ElementsAre(R"("lens"[i0] + (-1)*i1 + -1)", R"((-1)*"lens"[i0] + i1 + 4)"));
}

TEST(Element, AFlagIsNotLessThanOne) {
  EXPECT_THAT(ConditionsOf("y = Identity (flags)"), ElementsAre(R"("flags"[i0, i1] + -1)"));
}

TEST(Element, ANegatedConjunctionIsTheGreaterOfTwo) {
  EXPECT_THAT(ConditionsOf("column = Unsqueeze (lens, last)  a = Less (n, column)  "
                           "b = And (a, flags)  y = Not (b)"),
              ElementsAre(AllOf(HasSubstr("max("), HasSubstr("(-1)*\"flags\"[i0, i1]"))));
}

TEST(Element, ADisjunctionIsTheGreaterOfTwo) {
  EXPECT_THAT(ConditionsOf("column = Unsqueeze (lens, last)  a = Less (n, column)  "
                           "y = Or (a, flags)"),
              ElementsAre(AllOf(HasSubstr("max("), HasSubstr("\"flags\"[i0, i1] + -1"))));
}

TEST(Element, AConstantTriangleIsABound) {
  EXPECT_THAT(ConditionsOf("y = Identity (triangle)"), ElementsAre("i0 + (-1)*i1"));
  EXPECT_THAT(ConditionsOf("y = Not (triangle)"), ElementsAre("(-1)*i0 + i1 + -1"));
  EXPECT_THAT(ConditionsOf("y = Identity (hole)", Trust::kNothing),
              ElementsAre(HasSubstr("no band of keys")));
}

TEST(Element, WhatIsNotHiddenByAConstantIsABound) {
  EXPECT_THAT(ConditionsOf("y = Not (away)"), ElementsAre("i0 + (-1)*i1", "(-1)*i0 + i1 + 1"));
}

// Rows of B and of C places.
constexpr char kPlaces[] =
    "b_1 = Shape (lens)  b = Squeeze (b_1)  c_1 = Shape (others)  "
    "c = Squeeze (c_1)  i = Range (zero, b, one)  j = Range (zero, c, one)  ";

TEST(Element, AnAxisThatMayBeRepeatedHasAnIndexOfItsOwn) {
  const std::string lines = StrCat(kPlaces, "y = LessOrEqual (j, i)");
  EXPECT_THAT(ConditionsOf(lines, Trust::kNothing), ElementsAre("i0 of B + (-1)*i0 of C"));
  EXPECT_THAT(ConditionsOf(lines), ElementsAre("0"));
}

TEST(Element, WhatMayBeNegativeIsNotDivided) {
  const std::string lines =
      StrCat(kPlaces, "low = Sub (i, size)  half = Div (low, three)  y = Less (half, two)");
  EXPECT_THAT(ConditionsOf(lines, Trust::kNothing), ElementsAre(HasSubstr("\"half\"[i0]")));
  EXPECT_THAT(ConditionsOf(lines), ElementsAre(HasSubstr("div(i0")));
}

TEST(Element, WhatMayCountFromTheEndIsNotGathered) {
  const std::string lines =
      StrCat(kPlaces, "low = Sub (i, size)  taken = Gather (n, low)  y = Less (taken, two)");
  EXPECT_THAT(ConditionsOf(lines, Trust::kNothing), ElementsAre(HasSubstr("\"taken\"[i0]")));
}

TEST(Element, AMaskMayBeCastToAnyType) {
  EXPECT_THAT(
      ConditionsOf("narrow = Cast <to = 6> (places)  y = Cast <to = 9> (narrow)", Trust::kNothing),
      ElementsAre(R"("places"[i0, i1] + -1)"));
  EXPECT_THAT(ConditionsOf("narrow = Cast <to = 6> (places)  k = Cast <to = 6> (one)  "
                           "y = Equal (narrow, k)",
                           Trust::kNothing),
              ElementsAre(R"("places"[i0, i1] + -1)", R"((-1)*"places"[i0, i1] + 1)"));
}

TEST(Element, WhatMayWrapAroundIsNotFollowed) {
  const std::string far =
      StrCat(kPlaces, "k = Cast <to = 6> (i)  most = Constant <value = int32 {2147483644}> ()  ");
  EXPECT_THAT(ConditionsOf(StrCat(far, "sum = Add (k, most)  y = Less (k, sum)"), Trust::kNothing),
              ElementsAre(HasSubstr("\"sum\"[i0]")));
  EXPECT_THAT(ConditionsOf(StrCat(far, "sum = Sub (k, most)  y = Less (k, sum)"), Trust::kNothing),
              ElementsAre("-2147483645"));
  EXPECT_THAT(ConditionsOf(StrCat(kPlaces,
                                  "k = Cast <to = 12> (i)  w = Cast <to = 12> (two)  "
                                  "less = Sub (k, w)  y = Less (less, w)"),
                           Trust::kNothing),
              ElementsAre(HasSubstr("\"less\"[i0]")));
}

TEST(Element, AProductHidesOnlyByAMaskOfUnits) {
  const std::string kept = "kept = Cast <to = 1> (flags)  twice = Add (kept, kept)  ";
  EXPECT_THAT(ConditionsOf(StrCat(kept, "rest = Sub (whole, kept)  y = Mul (rest, deep)")),
              ElementsAre(R"("flags"[i0, i1] + -1)"));
  EXPECT_THAT(ConditionsOf(StrCat(kept, "rest = Sub (whole, kept)  y = Mul (rest, deepest)")),
              ElementsAre(HasSubstr("is not understood as a mask")));
  EXPECT_THAT(ConditionsOf(StrCat(kept, "rest = Sub (whole, twice)  y = Mul (rest, deep)")),
              ElementsAre(HasSubstr("is not understood as a mask")));
}

TEST(Element, AnIntegerThatIsNoMaskMayBeAnything) {
  const std::string lines = "rest = Sub (one, places)  y = Cast <to = 9> (rest)";
  EXPECT_THAT(ConditionsOf(lines), ElementsAre(HasSubstr("no range of indices")));
  EXPECT_THAT(ConditionsOf(lines, Trust::kNothing), ElementsAre(R"((-1)*"places"[i0, i1])"));
}

TEST(Element, ASizeMayBeKnownByAnotherName) {
  Computed computed = Compute(StrCat(kPlaces, "y = Add (j, i)"));
  IndexingAnalysis reader(computed.contents, Trust::kNothing);
  reader.Know({{"C", Dim::Symbol("B")}});
  EXPECT_EQ(reader.ReadIndex(*reader.Places(computed.y)).Key(), "(2)*i0 of B");
}

TEST(Element, AValueMayBeTakenAsANumber) {
  Computed computed = Compute(
      "axis = Identity (last)  sums = CumSum (places, last)  "
      "y = Sub (sums, two)");
  IndexingAnalysis reader(computed.contents);
  reader.TakeAs(computed.model.graph->FindValue("places"), 1);
  EXPECT_EQ(reader.ReadIndex(*reader.Places(computed.y)).Key(), "i1 + -1");
}

}  // namespace
}  // namespace pagefuse
