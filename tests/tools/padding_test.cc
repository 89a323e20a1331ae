// SPDX-License-Identifier: Apache-2.0
// Rows of padding are taken out of a comparison, and nothing else is.
#include "pagefuse/ops/evaluate/padding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagefuse {
namespace {

using testing::ElementsAre;

// Two sequences of two new tokens after one of the past; the first has one token in all.
std::map<std::string, Tensor> Feeds() {
  return {{"input_ids", Tensor::Of<int64_t>({2, 2}, {0, 5, 6, 7})},
          {"attention_mask", Tensor::Of<int64_t>({2, 3}, {0, 0, 1, 1, 1, 1})}};
}

std::vector<float> Blanked(const Padding& padding, const Shape& declared,
                           const std::vector<int64_t>& dims) {
  Graph graph;
  const Value* output = graph.AddValue("y", DataType::kFloat, declared);
  Tensor tensor = *Tensor::Allocate(DataType::kFloat, dims);
  for (float& x : tensor.mutable_values<float>()) x = 1;
  const Tensor blank = padding.Blank(*output, tensor);
  return {blank.values<float>().begin(), blank.values<float>().end()};
}

const Dim kAny = Dim::Symbol("n");

TEST(Padding, IsCountedByTheMask) {
  EXPECT_EQ(Padding(Feeds()).count(), 2);
  EXPECT_EQ(Padding({}).count(), 0);
}

TEST(Padding, BlanksRowsOfNewTokensAndOfAllTokens) {
  const Padding padding(Feeds());
  EXPECT_THAT(Blanked(padding, Shape{kAny, kAny, Dim(1)}, {2, 2, 1}), ElementsAre(0, 1, 1, 1));
  // Keys [B, H, T, D] of two heads.
  EXPECT_THAT(Blanked(padding, Shape{kAny, Dim(2), kAny, Dim(1)}, {2, 2, 3, 1}),
              ElementsAre(0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1));
}

TEST(Padding, LeavesOutputsAloneThatCountNoTokens) {
  const Padding padding(Feeds());
  EXPECT_THAT(Blanked(padding, Shape{kAny, Dim(1)}, {2, 1}), ElementsAre(1, 1));
  EXPECT_THAT(Blanked(padding, Shape{kAny, kAny}, {3, 2}), ElementsAre(1, 1, 1, 1, 1, 1));
  // Either axis may be the one.
  EXPECT_THAT(Blanked(padding, Shape{kAny, kAny, kAny}, {2, 2, 3}), testing::Each(1));
}

TEST(Padding, IsNoneWhereTheFeedsFitNothing) {
  auto feeds = Feeds();
  feeds["attention_mask"] = Tensor::Of<float>({2, 3}, {0, 0, 1, 1, 1, 1});
  EXPECT_EQ(Padding(feeds).count(), 0);
  feeds["attention_mask"] = Tensor::Of<int64_t>({2}, {0, 0});
  EXPECT_EQ(Padding(feeds).count(), 0);
  feeds["attention_mask"] = Tensor::Of<int64_t>({2, 1}, {0, 0});
  EXPECT_EQ(Padding(feeds).count(), 0);
}

}  // namespace
}  // namespace pagefuse
