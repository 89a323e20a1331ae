// SPDX-License-Identifier: Apache-2.0
// Regions, probes and comparisons: what fusions by results are made of.
#include <algorithm>
#include <cmath>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/passes/analysis/functions/computed_region.h"
#include "pagefuse/passes/analysis/functions/result_equality.h"
#include "pagefuse/passes/analysis/functions/scalar_region.h"
#include "pagefuse/passes/analysis/functions/test_vectors.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;

class Region : public ::testing::Test {
 protected:
  void Parse(const std::string& text) {
    model_ = Must(ParseModel(text));
    ASSERT_TRUE(InferShapes(model_, &contents_).ok());
    scope_ = {&model_.opset_imports, &contents_, {{"T", 2}}};
  }

  Value* At(const std::string& name) { return model_.graph->FindValue(name); }

  Model model_;
  SymbolicContents contents_;
  RegionScope scope_;
};

constexpr const char* kSum = R"(<ir_version: 10, opset_import: ["" : 21]>
g (float[T, 3] x, float[T, 3] y) => (float[T, 3] z, float[T, 3] w) {
  a = Neg (x)  b = Abs (a)  z = Add (b, y)  w = Exp (a)
})";

TEST_F(Region, ComputesItsOutputsFromItsPorts) {
  Parse(kSum);
  const auto region = Must(RegionBetween({At("x"), At("y")}, {At("z")}, scope_));
  EXPECT_EQ(region.nodes.size(), 3u);
  const auto results = Must(EvaluateRegion(
      region, scope_,
      {Tensor::Of<float>({1, 3}, {1, -2, 3}), Tensor::Of<float>({1, 3}, {1, 1, 1})}));
  EXPECT_THAT(results[0].values<float>(), ::testing::ElementsAre(2, 3, 4));
}

TEST_F(Region, ComputesAnOutputFromAnotherOne) {
  Parse(kSum);
  const auto region = Must(RegionBetween({At("x"), At("y")}, {At("a"), At("z")}, scope_));
  const auto results = Must(EvaluateRegion(
      region, scope_,
      {Tensor::Of<float>({1, 3}, {1, -2, 3}), Tensor::Of<float>({1, 3}, {1, 1, 1})}));
  EXPECT_THAT(results[1].values<float>(), ::testing::ElementsAre(2, 3, 4));
}

TEST_F(Region, HasOneInputForAValueThatIsTwoPorts) {
  Parse(kSum);
  const auto region = Must(RegionBetween({At("x"), At("x"), At("y")}, {At("z")}, scope_));
  const Tensor x = Tensor::Of<float>({1, 3}, {1, -2, 3});
  const auto results =
      Must(EvaluateRegion(region, scope_, {x, x, Tensor::Of<float>({1, 3}, {1, 1, 1})}));
  EXPECT_THAT(results[0].values<float>(), ::testing::ElementsAre(2, 3, 4));
}

TEST_F(Region, NamesWhatItReadsBesideThePorts) {
  Parse(kSum);
  const auto region = RegionBetween({At("x")}, {At("z")}, scope_);
  EXPECT_THAT(std::string(region.status().message()), HasSubstr("\"y\""));
}

TEST_F(Region, NamesThePortThatItDoesNotRead) {
  Parse(kSum);
  const auto region = RegionBetween({At("x"), At("y")}, {At("w")}, scope_);
  EXPECT_THAT(std::string(region.status().message()), HasSubstr("does not read \"y\""));
}

TEST_F(Region, LetsNobodyElseReadWhatDerivesFromData) {
  Parse(kSum);
  const auto region = Must(RegionBetween({At("x"), At("y")}, {At("z")}, scope_));
  EXPECT_THAT(std::string(CheckReaders(region, {}).message()), HasSubstr("\"a\" is read by"));
  EXPECT_TRUE(CheckReaders(region, {At("x")}).ok());
}

TEST_F(Region, OfElementsIsReadOnlyBehindTheNodesThatAreAskedFor) {
  Parse(R"(<ir_version: 10, opset_import: ["" : 21]>
g (float[T, 3] x, float[3, 3] m) => (float[T, 3] z, float[T, 3] w) {
  a = Round (x)  b = Neg (a)  c = MatMul (b, m)  z = Abs (c)  w = Tanh (x)
})");
  const auto ends = EndsOfRegionsWith([](const Node& node) { return node.Is("Round"); },
                                      *model_.graph, model_.opset_imports);
  EXPECT_THAT(ends, ::testing::UnorderedElementsAre(At("a")->producer(), At("b")->producer()));
}

TEST_F(Region, EndsAtProductsOfData) {
  Parse(R"(<ir_version: 10, opset_import: ["" : 21]>
g (float[T, 3] x, float[3, 4] m) => (float[T, 4] z) { a = MatMul (x, m)  z = Neg (a) })");
  const Upstream upstream = UpstreamOf({At("z")}, {}, scope_);
  EXPECT_EQ(upstream.leaves, std::vector<Value*>{At("a")});
}

TEST_F(Region, HoldsRotations) {
  Parse(R"(<ir_version: 10, opset_import: ["" : 21]>
g (float[T, 3] x, float[3, 3] m) => (float[T, 3] z) {
  t = Transpose <perm = [1, 0]> (m)  a = MatMul (x, t)  z = Neg (a)
})");
  const Upstream upstream = UpstreamOf({At("z")}, {}, scope_);
  EXPECT_THAT(upstream.leaves, ::testing::UnorderedElementsAre(At("x"), At("m")));
}

TEST_F(Region, TakesSizesAsNumbers) {
  Parse(R"(<ir_version: 10, opset_import: ["" : 21]>
g (float[T, 3] x, float[T, 4] like) => (float[?, 3] z) {
  n = Shape <start = 0, end = 1> (like)  three = Constant <value_ints = [3]> ()
  sizes = Concat <axis = 0> (n, three)  z = Expand (x, sizes)
})");
  const auto region = Must(RegionBetween({At("x")}, {At("z")}, scope_));
  const auto results = Must(EvaluateRegion(region, scope_, {Tensor::Of<float>({1, 3}, {1, 2, 3})}));
  EXPECT_EQ(results[0].dims(), (std::vector<int64_t>{2, 3}));
}

// --- probes ---

std::vector<Tensor> Probe(const std::vector<ProbePort>& ports, const ProbeRound& round) {
  return Must(MakeProbe(ports, round));
}

TEST(Probe, RowsNearOneHaveFewBitsAndThoseOfAFloatMore) {
  for (DataType type : {DataType::kBfloat16, DataType::kFloat}) {
    const Tensor rows = Probe({{.role = ProbeRole::kRows, .dtype = type, .dims = {4, 64}}}, {})[0];
    std::vector<float> numbers(rows.size()), rounded(rows.size());
    ASSERT_TRUE(DecodeToFloat(type, rows.data(), rows.size(), numbers.data()).ok());
    rounded = numbers;
    ASSERT_TRUE(RoundThrough(DataType::kBfloat16, rounded.data(), rows.size()).ok());
    EXPECT_EQ(rounded == numbers, type == DataType::kBfloat16);
  }
}

TEST(Probe, RowsAwayFromOneHaveAllBitsOfAHalfType) {
  const Tensor rows =
      Probe({{.role = ProbeRole::kRows, .dtype = DataType::kBfloat16, .dims = {4, 64}}},
            {.exponent = 3})[0];
  const auto* bits = static_cast<const uint16_t*>(rows.data());
  EXPECT_TRUE(std::any_of(bits, bits + rows.size(), [](uint16_t word) { return word % 2 == 1; }));
}

TEST(Probe, RowsReachTheMagnitudeOfTheRound) {
  const Tensor rows =
      Probe({{.role = ProbeRole::kRows, .dtype = DataType::kFloat, .dims = {8, 64}}},
            {.exponent = -20})[0];
  float largest = 0;
  for (float x : rows.values<float>()) largest = std::max(largest, std::abs(x));
  EXPECT_GT(largest, std::ldexp(1.0f, -23));
  EXPECT_LT(largest, std::ldexp(1.0f, -17));
}

TEST(Probe, SlotsDifferAndArePaddingWhereTheRoundHasSome) {
  const ProbePort port = {
      .role = ProbeRole::kSlots, .dtype = DataType::kInt64, .dims = {8}, .limit = 16};
  const Tensor slots = Probe({port}, {})[0];
  std::set<int64_t> different(slots.values<int64_t>().begin(), slots.values<int64_t>().end());
  EXPECT_EQ(different.size(), 8u);
  EXPECT_GE(*different.begin(), 0);
  EXPECT_LT(*different.rbegin(), 16);
  EXPECT_EQ(Probe({port}, {.padding = true})[0].values<int64_t>()[1], -1);
}

TEST(Probe, EverySecondPositionEndsAWindow) {
  const Tensor positions = Probe({{.role = ProbeRole::kWindowEnds,
                                   .dtype = DataType::kInt32,
                                   .dims = {8},
                                   .limit = 64,
                                   .step = 4}},
                                 {})[0];
  for (int i = 0; i < 8; i += 2) EXPECT_EQ(positions.values<int32_t>()[i] % 4, 3);
}

// --- comparisons ---

Tensor Bytes(const std::vector<uint8_t>& bytes) {
  return Tensor::Of<uint8_t>({static_cast<int64_t>(bytes.size())}, bytes);
}

TEST(CompareResults, LeavesTheSignOfAZeroCodeOpen) {
  EXPECT_TRUE(CompareResults({}, Bytes({0x00, 0x38}), Bytes({0x80, 0x38}), Tensor()).ok());
  EXPECT_FALSE(CompareResults({}, Bytes({0x01, 0x38}), Bytes({0x81, 0x38}), Tensor()).ok());
}

TEST(CompareResults, LeavesTheSignOfEachPackedZeroOpen) {
  const ResultRule packed = {.packed_codes = true};
  EXPECT_TRUE(CompareResults(packed, Bytes({0x30}), Bytes({0x38}), Tensor()).ok());
  EXPECT_FALSE(CompareResults(packed, Bytes({0x31}), Bytes({0x39}), Tensor()).ok());
}

TEST(CompareResults, RefusesACacheThatNothingWasWrittenInto) {
  const Tensor cache = Bytes({1, 2, 3});
  EXPECT_THAT(std::string(CompareResults({}, cache, cache, cache).message()),
              HasSubstr("nothing is written"));
}

TEST(CompareResults, CountsDifferencesAmongWhatWasWritten) {
  const Tensor before = Bytes(std::vector<uint8_t>(1000, 9));
  std::vector<uint8_t> written(1000, 9);
  for (int i = 0; i < 10; ++i) written[i] = 1;
  std::vector<uint8_t> other = written;
  other[3] = 2;
  const ResultRule few = {.share = 0.02};
  EXPECT_FALSE(CompareResults(few, Bytes(written), Bytes(other), before).ok());
  const ResultRule more = {.share = 0.1};
  EXPECT_TRUE(CompareResults(more, Bytes(written), Bytes(other), before).ok());
}

TEST(CompareResults, RefusesDifferencesAtOnePlaceOfTheRows) {
  constexpr int kRows = 16, kWidth = 100;
  const std::vector<uint8_t> zeros(kRows * kWidth, 0);
  std::vector<uint8_t> column = zeros, spread = zeros;
  for (int row = 0; row < kRows; ++row) {
    column[row * kWidth + 7] = 1;
    spread[row * kWidth + 3 * row] = 1;
  }
  const auto rows = [](const std::vector<uint8_t>& bytes) {
    return Tensor::Of<uint8_t>({kRows, kWidth}, bytes);
  };
  const ResultRule rule = {.share = 0.02};
  EXPECT_TRUE(CompareResults(rule, rows(zeros), rows(spread), Tensor()).ok());
  EXPECT_FALSE(CompareResults(rule, rows(zeros), rows(column), Tensor()).ok());
}

TEST(CompareResults, JudgesCancelledSumsBesideTheLargestOfTheirRow) {
  const Tensor a = Tensor::Of<float>({1, 2}, {1.0f, 1e-8f});
  const Tensor b = Tensor::Of<float>({1, 2}, {1.0f, -1e-8f});
  EXPECT_FALSE(CompareResults({.relative = 1e-3}, a, b, Tensor()).ok());
  EXPECT_TRUE(CompareResults({.relative = 1e-3, .of_largest = 1e-6}, a, b, Tensor()).ok());
}

}  // namespace
}  // namespace pagefuse
