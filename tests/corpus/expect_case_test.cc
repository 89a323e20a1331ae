// SPDX-License-Identifier: Apache-2.0
// Every case of the fusion corpus: it fuses to what it must, or is left alone, and its numbers
// stay.
#include "tools/check/expect_case.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"
#include "tools/check/testcase.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;

class Corpus : public ::testing::TestWithParam<std::string> {};

TEST_P(Corpus, FusesAsExpectedWithTheSameNumbers) {
  const auto result = Must(RunExpectCase(CorpusFolder(GetParam())));
  EXPECT_TRUE(result.fusion.ok()) << result.fusion;
  EXPECT_TRUE(result.equality.ok()) << result.equality;
}

std::vector<std::string> CaseNames() {
  std::vector<std::string> names;
  for (const std::string& folder : FindTestCases(CorpusFolder(""))) {
    names.push_back(std::filesystem::path(folder).filename().string());
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cases, Corpus, ::testing::ValuesIn(CaseNames()),
                         [](const auto& info) { return info.param; });

TEST(CorpusFolderTest, HoldsAllFamilies) {
  constexpr size_t kCases = 58;
  EXPECT_GE(CaseNames().size(), kCases);
}

// A case with another expectation than its own.
class WrongExpectation : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "wrong_expectation";
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(CorpusFolder("c_01_mla_insert_bf16"), folder_,
                          std::filesystem::copy_options::recursive);
  }

  ExpectResult RunWith(const std::string& expectation) {
    std::ofstream(folder_ / "expect.json") << expectation;
    return Must(RunExpectCase(folder_.string()));
  }

  std::filesystem::path folder_;
};

TEST_F(WrongExpectation, OfTheOpIsTold) {
  const ExpectResult result =
      RunWith(R"({"verdict": "fuse", "fuses_to": {"pagefuse.MlaCacheInsert": 2}})");
  EXPECT_THAT(std::string(result.fusion.message()),
              HasSubstr("expected MlaCacheInsert 2, got MlaCacheInsert 1"));
}

TEST_F(WrongExpectation, OfAnAttributeIsTold) {
  const ExpectResult result =
      RunWith(R"({"verdict": "fuse", "fuses_to": {"pagefuse.MlaCacheInsert": 1},
                  "attributes": {"pagefuse.MlaCacheInsert": {"format": "fp8_ds_mla"}}})");
  EXPECT_THAT(std::string(result.fusion.message()), HasSubstr("expected \"fp8_ds_mla\""));
}

TEST_F(WrongExpectation, OfAPortIsTold) {
  const ExpectResult result =
      RunWith(R"({"verdict": "fuse", "fuses_to": {"pagefuse.MlaCacheInsert": 1},
                  "ports": {"kv_c": "k_pe"}})");
  EXPECT_THAT(std::string(result.fusion.message()), HasSubstr("port \"kv_c\""));
}

TEST_F(WrongExpectation, ToBeLeftAloneIsTold) {
  const ExpectResult result =
      RunWith(R"({"verdict": "leave", "near_miss_of": ["pagefuse.MlaCacheInsert"]})");
  EXPECT_THAT(std::string(result.fusion.message()), HasSubstr("must not become"));
}

TEST_F(WrongExpectation, OfTheNumbersIsTold) {
  const std::filesystem::path data = folder_ / "test_data_set_0";
  // Other slots: another cache.
  std::filesystem::copy_file(folder_ / "test_data_set_0" / "input_3.pb", data / "output_0.pb",
                             std::filesystem::copy_options::overwrite_existing);
  const ExpectResult result =
      RunWith(R"({"verdict": "fuse", "fuses_to": {"pagefuse.MlaCacheInsert": 1}})");
  EXPECT_THAT(std::string(result.equality.message()), HasSubstr("before"));
}

TEST(ExpectReport, CountsByFamilyExporterAndSpelling) {
  ExpectResult right;
  right.name = "a";
  right.family = "R";
  right.exporter = "torch";
  right.verdict = "fuse";
  right.spelling = {"Slice"};
  ExpectResult wrong = right;
  wrong.name = "b";
  wrong.fusion = absl::FailedPreconditionError("expected InvRopeQuant 1, got nothing");
  ExpectResult left;
  left.name = "c";
  left.family = "R";
  left.verdict = "leave";
  const std::string report = ExpectReport({right, wrong, left});
  EXPECT_THAT(report, HasSubstr("wrong b: fuse"));
  EXPECT_THAT(report, HasSubstr("| R | 1 of 2 | 1 of 1 | 3 of 3 |"));
  EXPECT_THAT(report, HasSubstr("| Slice | 1 of 2 | - | 2 of 2 |"));
  EXPECT_THAT(report, HasSubstr("| torch | 1 of 2 | - | 2 of 2 |"));
}

}  // namespace
}  // namespace pagefuse
