// SPDX-License-Identifier: Apache-2.0
// A table laid out by sequence gives the same rows and lengths for as many table rows as a graph
// took before.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;

constexpr const char* kTable = R"(<ir_version: 10, opset_import: ["" : 24]>
g (float[B, 1] q, float[4, 2, 1] pool, int64[T, 2] table) => (y, length)
<int64[2] last = {-1, 1}, int64[1] each = {4}, int64[1] zero = {0}>
{
  rows = Gather (pool, table)
  batch = Shape <start = 0, end = 1> (q)
  t = Shape <start = 0, end = 1> (table)
  sizes = Concat <axis = 0> (batch, last)
  y = Reshape (rows, sizes)
  tokens = Mul (t, each)
  per_sequence = Div (tokens, batch)
  length = Squeeze (per_sequence, zero)
})";

Model LaidOut() {
  Model model = *ParseModel(kTable);
  PassContext context;
  EXPECT_TRUE(InferShapes(model, &context.contents).ok());
  EXPECT_TRUE(Must(TablesBySequence()->Run(model, context)));
  return model;
}

std::map<std::string, Tensor> Feeds(int64_t sequences, std::vector<int64_t> table) {
  const auto rows = static_cast<int64_t>(table.size()) / 2;
  return {{"q", Tensor::Of<float>({sequences, 1}, std::vector<float>(sequences))},
          {"pool", Tensor::Of<float>({4, 2, 1}, {0, 1, 10, 11, 20, 21, 30, 31})},
          {"table", Tensor::Of<int64_t>({rows, 2}, table)}};
}

TEST(TablesBySequenceTest, GivesTheSameRowsForTwoRowsOfTheTableASequence) {
  const auto results = Must(EvaluateModel(LaidOut(), Feeds(1, {3, 0, 1, 2})));
  EXPECT_THAT(results[0].dims(), ElementsAre(1, 8, 1));
  EXPECT_THAT(results[0].values<float>(), ElementsAre(30, 31, 0, 1, 10, 11, 20, 21));
  EXPECT_THAT(results[1].values<int64_t>(), ElementsAre(8));
}

TEST(TablesBySequenceTest, GivesTheSameRowsForTwoSequencesARowOfTheTable) {
  const auto results = Must(EvaluateModel(LaidOut(), Feeds(2, {3, 1})));
  EXPECT_THAT(results[0].dims(), ElementsAre(2, 2, 1));
  EXPECT_THAT(results[0].values<float>(), ElementsAre(30, 31, 10, 11));
  EXPECT_THAT(results[1].values<int64_t>(), ElementsAre(2));
}

TEST(TablesBySequenceTest, KeepsWhatTheGraphTakes) {
  const Model model = LaidOut();
  EXPECT_EQ(model.graph->FindValue("table")->shape()->ToString(), "[T, 2]");
  // The same results as before, where the rows of the table divide.
  const auto before = Must(EvaluateModel(*ParseModel(kTable), Feeds(2, {3, 0, 1, 2})));
  const auto after = Must(EvaluateModel(model, Feeds(2, {3, 0, 1, 2})));
  EXPECT_THAT(after[0].values<float>(), ::testing::ElementsAreArray(before[0].values<float>()));
}

}  // namespace
}  // namespace pagefuse
