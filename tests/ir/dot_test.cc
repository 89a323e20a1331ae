// SPDX-License-Identifier: Apache-2.0
// Pictures of graphs.
#include "pagefuse/ir/graph/dot.h"

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Dot(std::string_view text) {
  const auto model = Must(ParseModel(text));
  return PrintDot(*model.graph);
}

TEST(Dot, DrawsInputsNodesAndOutputs) {
  EXPECT_EQ(
      Dot(R"(g (float[N, 2] x) => (float y) <float[2] w = {1, 2}> { t = Mul (x, w) ["a \"b\""] y = my.F (t, t) })"),
      R"(digraph "g" {
  node [shape=box];
  n0 [label="x\nfloat[N, 2]", shape=oval];
  n1 [label="Mul"];
  n2 [label="my.F\na \"b\""];
  n3 [label="y\nfloat[]", shape=oval];
  n0 -> n1 [label="x\nfloat[N, 2]"];
  n1 -> n2 [label="t"];
  n1 -> n2 [label="t"];
  n2 -> n3 [label="y\nfloat[]"];
}
)");
}

TEST(Dot, LeavesOutInitialisersAndConstants) {
  const std::string dot =
      Dot("g (float x) => (y) <float w = {1}> { c = Constant <value_float = 1.0> () t = Add (x, c) "
          "y = Add (t, w) }");
  EXPECT_THAT(dot, Not(HasSubstr("Constant")));
  EXPECT_THAT(dot, Not(HasSubstr("\"w\"")));
  EXPECT_THAT(dot, HasSubstr("n1 -> n2 [label=\"t\"]"));
}

TEST(Dot, FramesSubgraphs) {
  const std::string dot =
      Dot("g (bool c, float x) => (y) { y = If (c) <then_branch = a () => (p) { p = Relu (x) }, "
          "else_branch = b () => (q) { q = Neg (x) }> }");
  EXPECT_THAT(dot, HasSubstr("subgraph cluster_0 {\n    label=\"then_branch: a\";"));
  EXPECT_THAT(dot, HasSubstr("subgraph cluster_1 {\n    label=\"else_branch: b\";"));
  EXPECT_THAT(dot, HasSubstr("[style=dashed]"));
  EXPECT_THAT(dot, HasSubstr("[label=\"x\\nfloat[]\"]"));  // the outer value, read inside
}

}  // namespace
}  // namespace pagefuse
