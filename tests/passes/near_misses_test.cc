// SPDX-License-Identifier: Apache-2.0
// What is told to whoever asks why a rule did not fire.
#include "pagefuse/passes/explain/near_misses.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Texts(std::vector<MissedMatch> misses) {
  std::vector<std::string> texts;
  for (const MissedMatch& miss : NearestMisses(std::move(misses))) texts.push_back(MissText(miss));
  return texts;
}

TEST(NearestMisses, KeepTheNearestOfEachPlace) {
  EXPECT_THAT(Texts({{"rope", "y", "expected Cos", 2},
                     {"rope", "y", "expected Sin", 5},
                     {"rope", "y", "expected Mul", 1}}),
              ElementsAre("rope at \"y\" (5 nodes matched): expected Sin"));
}

TEST(NearestMisses, JoinLayersThatFailAlike) {
  EXPECT_THAT(Texts({{"rope", "y_1", "\"cos_1\": expected Cos, got Sin", 2},
                     {"rope", "y_2", "\"cos_2\": expected Cos, got Sin", 2},
                     {"rope", "y_3", "\"cos_33\": expected Cos, got Sin", 2},
                     {"rope", "y_4", "\"cos_4\": expected Cos, got Tan", 2}}),
              ElementsAre("rope at \"y_1\" and 2 places like it (2 nodes matched): \"cos_1\": "
                          "expected Cos, got Sin",
                          "rope at \"y_4\" (2 nodes matched): \"cos_4\": expected Cos, got Tan"));
}

TEST(NearestMisses, KeepsWhatFailedInNumbersApart) {
  EXPECT_EQ(Texts({{"norm", "a", "\"x\": expected rank 2, got 3", 2},
                   {"norm", "b", "\"x\": expected rank 2, got 4", 2}})
                .size(),
            2);
}

TEST(NearestMisses, PutTheNearestFirst) {
  EXPECT_THAT(Texts({{"rope", "a", "no Cos", 1}, {"rope", "b", "no Sin", 4}}),
              ElementsAre("rope at \"b\" (4 nodes matched): no Sin",
                          "rope at \"a\" (1 node matched): no Cos"));
}

TEST(WithoutNumbers, TakesThemFromQuotedNamesAlone) {
  EXPECT_EQ(WithoutNumbers("node \"layers.3/Mul_12\" (Mul): expected 2"),
            "node \"layers/Mul\" (Mul): expected 2");
  EXPECT_EQ(WithoutNumbers("\"12\" and \"_3\""), "\"\" and \"\"");
}

TEST(UnmissedLines, SayWhatFiredWhatDidNotRunAndWhatNothingResembled) {
  const std::vector<AskedRule> asked = {{.name = "a", .ran = true, .fired = true, .times = 3},
                                        {.name = "b", .ran = true},
                                        {.name = "c", .ran = true},
                                        {.name = "d"},
                                        {.name = "e", .ran = true}};
  const std::vector<MissedMatch> misses = {{"e", "y", "no Cos", 1}};
  EXPECT_THAT(UnmissedLines(asked, misses, /*briefly=*/false),
              ElementsAre("a fired 3 times, and nothing else resembled it",
                          "nothing in the graph resembled b, c", "did not run: d"));
  EXPECT_THAT(UnmissedLines(asked, misses, /*briefly=*/true),
              ElementsAre("nothing in the graph resembled b, c", "did not run: d"));
}

// --- through the pipeline ---

PipelineReport Explained(const std::string& text, const std::string& rule) {
  auto model = Must(ParseModel(text));
  return Must(RunPipeline(model, {.explain = {rule}}));
}

TEST(Explain, TellsAMatchOfTheRootAlone) {
  const PipelineReport report = Explained(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] x) => (float[T] y) { a = Relu (x)  y = Mul (x, a) })",
                                          "swish");
  ASSERT_EQ(report.misses.size(), 2);  // swish and swish-alpha
  EXPECT_EQ(report.misses[0].matched_nodes, 1);
  EXPECT_THAT(report.misses[0].condition, HasSubstr("expected Sigmoid, got"));
  EXPECT_THAT(report.unmissed, IsEmpty());
}

TEST(Explain, SaysThatNothingResembledARule) {
  const PipelineReport report = Explained(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T] x) => (float[T] y) { y = Relu (x) })",
                                          "swish");
  EXPECT_THAT(report.misses, IsEmpty());
  EXPECT_THAT(report.unmissed,
              ElementsAre(HasSubstr("nothing in the graph resembled swish-alpha, swish")));
}

}  // namespace
}  // namespace pagefuse
