#include "pagefuse/ir/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ir/verify.h"

namespace pagefuse {
namespace {

TEST(Graph, ReplaceAllUsesPassesTheOutputNameOn) {
  Graph graph;
  Value* x = graph.AddInput("x", DataType::kFloat, Shape{2});
  Value* y = graph.AddValue("y", DataType::kFloat, Shape{2});
  Value* z = graph.AddValue("z", DataType::kFloat, Shape{2});
  Node* old = graph.AddNode("", "Abs", {x}, {y});
  graph.AddNode("", "Neg", {x}, {z});
  graph.AddOutput(y);

  graph.ReplaceAllUses(y, z);
  EXPECT_EQ(graph.outputs()[0], z);
  EXPECT_EQ(z->name(), "y");
  EXPECT_EQ(graph.EraseIfDead(old), 1);
  EXPECT_TRUE(Verify(graph).ok());
}

TEST(Graph, ReplacingAnOutputByAnInputAddsAnIdentity) {
  Graph graph;
  Value* x = graph.AddInput("x", DataType::kFloat, Shape{2});
  Value* y = graph.AddValue("y", DataType::kFloat, Shape{2});
  Node* old = graph.AddNode("", "Abs", {x}, {y});
  graph.AddOutput(y);

  graph.ReplaceAllUses(y, x);
  EXPECT_EQ(graph.EraseIfDead(old), 1);
  ASSERT_EQ(graph.num_nodes(), 1);
  EXPECT_TRUE(graph.nodes().front()->Is("Identity"));
  EXPECT_EQ(graph.outputs()[0]->name(), "y");
  EXPECT_EQ(x->name(), "x");
  EXPECT_TRUE(Verify(graph).ok());
}

}  // namespace
}  // namespace pagefuse
