// SPDX-License-Identifier: Apache-2.0
#include "tools/check/compare.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "tools/check/testcase.h"

#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {
namespace {

Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
}

Tensor Halves(const std::vector<uint16_t>& codes) {
  Tensor tensor = *Tensor::Allocate(DataType::kFloat16, {static_cast<int64_t>(codes.size())});
  std::copy(codes.begin(), codes.end(), tensor.mutable_values<uint16_t>().begin());
  return tensor;
}

std::string Difference(const CompareRule& rule, const Tensor& got, const Tensor& want) {
  return std::string(CompareTensors(rule, got, want).message());
}

constexpr CompareRule kClose = {.kind = CompareRule::Kind::kAllclose, .rtol = 0.01, .atol = 0.001};

TEST(CompareTensors, BytesTellTheFirstDifference) {
  const Tensor want = Tensor::Of<int8_t>({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(Difference({}, want, want), "");
  EXPECT_EQ(
      Difference({}, Tensor::Of<int8_t>({2, 2}, {1, 2, 5, 6}), want),
      "at [1, 0]: expected 3 (0x03 first byte), got 5 (0x05 first byte) (2 of 4 elements differ)");
  // -0 and 0 are different bytes.
  EXPECT_NE(Difference({}, Floats({-0.0f}), Floats({0.0f})), "");
}

TEST(CompareTensors, RefusesOtherTypesAndShapes) {
  EXPECT_EQ(Difference({}, Tensor::Of<int8_t>({1}, {1}), Floats({1})),
            "expected type float, got int8");
  EXPECT_EQ(Difference({}, Floats({1, 2}), Floats({1})), "expected shape [1], got [2]");
}

TEST(CompareTensors, AllcloseAddsBothTolerances) {
  EXPECT_EQ(Difference(kClose, Floats({100.9f, 0.0009f}), Floats({100, 0})), "");
  EXPECT_EQ(Difference(kClose, Floats({101.1f}), Floats({100})),
            "at [0]: expected 100, got 101.1 (1 of 1 elements differ)");
}

TEST(CompareTensors, AllcloseWantsEqualInfinitiesAndNoNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Difference(kClose, Floats({infinity}), Floats({infinity})), "");
  EXPECT_NE(Difference(kClose, Floats({-infinity}), Floats({infinity})), "");
  EXPECT_NE(Difference(kClose, Floats({3e38f}), Floats({infinity})), "");
  EXPECT_NE(Difference(kClose, Floats({nan}), Floats({nan})), "");
  CompareRule rule = kClose;
  rule.nan_is_equal = true;
  EXPECT_EQ(Difference(rule, Floats({nan}), Floats({nan})), "");
  rule.finite_only = true;
  EXPECT_EQ(Difference(rule, Floats({7}), Floats({infinity})), "");
}

TEST(CompareTensors, AllcloseMayBoundTheNormToo) {
  CompareRule rule = kClose;
  rule.rtol = 0.1;
  rule.rel_l2 = 0.01;
  EXPECT_EQ(Difference(rule, Floats({1.005f, 1}), Floats({1, 1})), "");
  EXPECT_NE(Difference(rule, Floats({1.05f, 1}), Floats({1, 1})), "");
}

TEST(CompareTensors, UlpCountsCodesAcrossZero) {
  const CompareRule rule = {.kind = CompareRule::Kind::kUlp, .max_ulp = 1};
  EXPECT_EQ(Difference(rule, Halves({0x3C01, 0x8000}), Halves({0x3C00, 0x0000})), "");
  EXPECT_EQ(Difference(rule, Halves({0x8001}), Halves({0x0000})), "");
  EXPECT_NE(Difference(rule, Halves({0x8001}), Halves({0x0001})), "");
  EXPECT_NE(Difference(rule, Halves({0x7E00}), Halves({0x7E00})), "");
  CompareRule few = rule;
  few.max_fraction = 0.4;
  EXPECT_NE(Difference(few, Halves({0x3C01, 0x3C00}), Halves({0x3C00, 0x3C00})), "");
}

TEST(CompareTensors, Int4ScaleKeepsTheZeroPoint) {
  const CompareRule rule = {.kind = CompareRule::Kind::kInt4Scale, .rtol = 4e-6};
  const auto scale = [](uint32_t bits) { return Floats({std::bit_cast<float>(bits)}); };
  EXPECT_EQ(Difference(rule, scale(0x3F800019), scale(0x3F800009)), "");
  EXPECT_NE(Difference(rule, scale(0x3F800008), scale(0x3F800009)), "");
  EXPECT_NE(Difference(rule, scale(0x3F800109), scale(0x3F800009)), "");
}

TEST(CompareTensors, RowsAsSetsIgnoreOrderButNotHoles) {
  const CompareRule rule = {.kind = CompareRule::Kind::kRowsAsSets};
  const Tensor want = Tensor::Of<int32_t>({1, 3}, {4, 2, -1});
  EXPECT_EQ(Difference(rule, Tensor::Of<int32_t>({1, 3}, {2, 4, -1}), want), "");
  EXPECT_NE(Difference(rule, Tensor::Of<int32_t>({1, 3}, {2, -1, 4}), want), "");
  EXPECT_NE(Difference(rule, Tensor::Of<int32_t>({1, 3}, {2, 3, -1}), want), "");
}

TEST(ParseCompareRules, ReadsEveryKindAndRefusesOthers) {
  const auto rules = Must(ParseCompareRules(
      R"({"a": {"rule": "bytes"}, "b": {"rule": "allclose", "rtol": 1e-05, "atol": 0.5, "rel_l2": 0.25},
          "c": {"rule": "ulp", "max": 2, "max_fraction": 0.5}})"));
  EXPECT_EQ(rules.at("a").kind, CompareRule::Kind::kBytes);
  EXPECT_EQ(rules.at("b").rtol, 1e-5);
  EXPECT_EQ(rules.at("b").rel_l2, 0.25);
  EXPECT_EQ(rules.at("c").max_ulp, 2);
  EXPECT_EQ(ParseCompareRules(R"({"a": {"rule": "near"}})").status().message(),
            "unknown rule of comparison \"near\"");
  EXPECT_FALSE(ParseCompareRules("[").ok());
}

// A case without files: one output, as the graph says.
TestCase OneOutput(const std::vector<float>& want) {
  TestCase test_case;
  test_case.name = "made";
  test_case.model.graph = std::make_shared<Graph>();
  test_case.model.graph->AddOutput(test_case.model.graph->AddValue("y", DataType::kFloat));
  test_case.data_sets.push_back({"test_data_set_0", {{"x", Floats({1})}}, {Floats(want)}});
  return test_case;
}

TEST(CheckTestCase, ComparesOutputsAndNamesThePlace) {
  const auto run = [](const Model&, const auto&) { return std::vector<Tensor>{Floats({2})}; };
  EXPECT_TRUE(CheckTestCase(OneOutput({2}), run).ok());
  EXPECT_EQ(
      CheckTestCase(OneOutput({3}), run).message(),
      "made/test_data_set_0: output \"y\": at [0]: expected 3, got 2 (1 of 1 elements differ)");
}

// A decoder with logits [12.7, 1] and a cache of 200 codes; a run that moves `moved` of these by
// one and the logits by `shift`.
absl::Status CheckMovedCodes(bool whole_model, int64_t moved, float shift,
                             std::vector<std::string>& notes) {
  TestCase test_case = OneOutput({12.7f, 1});
  Graph& graph = *test_case.model.graph;
  graph.AddOutput(graph.AddValue("present", DataType::kInt8));
  std::vector<int8_t> codes(200, 5);
  test_case.data_sets[0].outputs.push_back(Tensor::Of<int8_t>({200}, codes));
  test_case.whole_model = whole_model;
  std::fill_n(codes.begin(), moved, int8_t{6});
  const auto run = [&](const Model&, const auto&) {
    return std::vector<Tensor>{Floats({12.7f, 1 + shift}), Tensor::Of<int8_t>({200}, codes)};
  };
  return CheckTestCase(test_case, run, &notes);
}

TEST(CheckTestCase, ComparesByTheQuantumWhereFewCodesOfACacheMoved) {
  std::vector<std::string> notes;
  EXPECT_FALSE(CheckMovedCodes(true, 0, 0.09f, notes).ok());
  EXPECT_FALSE(CheckMovedCodes(true, 2, 0.09f, notes).ok());  // one in a hundred
  EXPECT_TRUE(notes.empty());
  EXPECT_TRUE(CheckMovedCodes(true, 1, 0.09f, notes).ok());
  EXPECT_THAT(notes, testing::ElementsAre(testing::HasSubstr("1 of 200 codes")));
  EXPECT_FALSE(CheckMovedCodes(true, 1, 0.11f, notes).ok());
  EXPECT_FALSE(CheckMovedCodes(false, 1, 0, notes).ok());
}

TEST(CheckTestCase, WantsTheExpectedErrorAndUntouchedFeeds) {
  TestCase test_case = OneOutput({});
  test_case.expected_error = "SLOT_RANGE";
  test_case.error_input = "slots";
  using Feeds = std::map<std::string, Tensor>;
  const auto fail_with = [](absl::Status status) {
    return [status](const Model&, const Feeds&) -> absl::StatusOr<std::vector<Tensor>> {
      return status;
    };
  };
  EXPECT_TRUE(CheckTestCase(test_case, fail_with(absl::OutOfRangeError("input \"slots\""))).ok());
  EXPECT_FALSE(CheckTestCase(test_case, fail_with(absl::OutOfRangeError("input \"x\""))).ok());
  EXPECT_FALSE(
      CheckTestCase(test_case, fail_with(absl::InvalidArgumentError("input \"slots\""))).ok());
  const auto succeed = [](const Model&, const Feeds&) { return std::vector<Tensor>{}; };
  EXPECT_FALSE(CheckTestCase(test_case, succeed).ok());
  const auto write = [](const Model&, const Feeds& feeds) -> absl::StatusOr<std::vector<Tensor>> {
    *static_cast<float*>(const_cast<void*>(feeds.at("x").data())) = 9;
    return absl::OutOfRangeError("input \"slots\"");
  };
  EXPECT_EQ(CheckTestCase(test_case, write).message(), "made: the failed call changed \"x\"");
}

}  // namespace
}  // namespace pagefuse
