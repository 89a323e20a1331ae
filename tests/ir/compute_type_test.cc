// SPDX-License-Identifier: Apache-2.0
// Which type a graph computes in.
#include "pagefuse/ir/graph/compute_type.h"

#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

DataType TypeOf(std::string_view graph) {
  const Model model =
      Must(ParseModel(StrCat("<ir_version: 10, opset_import: [\"\" : 24]> ", graph)));
  return ComputeType(*model.graph);
}

TEST(ComputeType, IsTheCoarsestThatANodeGives) {
  EXPECT_EQ(TypeOf("g (float[2] x) => (float[2] y) { y = Relu (x) }"), DataType::kFloat);
  EXPECT_EQ(TypeOf(R"(g (float[2] x) => (float[2] y) <float16[2] n, float16[2] z> {
      n = Cast <to = 10> (x)  z = Relu (n)  y = Cast <to = 1> (z) })"),
            DataType::kFloat16);
  EXPECT_EQ(TypeOf(R"(g (float16[2] x) => (float16[2] y) <bfloat16[2] n> {
      n = Cast <to = 16> (x)  y = Cast <to = 10> (n) })"),
            DataType::kBfloat16);
  EXPECT_EQ(TypeOf("g (double[2] x) => (double[2] y) { y = Relu (x) }"), DataType::kDouble);
  EXPECT_EQ(TypeOf("g (int64[2] x) => (int64[2] y) { y = Abs (x) }"), DataType::kUndefined);
}

TEST(ComputeType, IsNotThatOfStoredWeights) {
  EXPECT_EQ(TypeOf(R"(g (float[2] x) => (float[2] y)
      <float16[1, 2] w = {15360, 15360}, float16[2, 1] t, float16[2] s, float[2] wide> {
        t = Transpose (w)  s = Squeeze (t)  wide = Cast <to = 1> (s)  y = Mul (x, wide) })"),
            DataType::kFloat);
}

TEST(ComputeType, LooksIntoSubgraphs) {
  EXPECT_EQ(TypeOf(R"(g (bool c, float16[2] x) => (float[2] y) {
      y = If <then_branch = a () => (float[2] p) <float16[2] n> { n = Relu (x)  p = Cast <to = 1> (n) },
              else_branch = b () => (float[2] q) { q = Cast <to = 1> (x) }> (c) })"),
            DataType::kFloat16);
}

}  // namespace
}  // namespace pagefuse
