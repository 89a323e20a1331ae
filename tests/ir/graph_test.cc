// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/verify.h"

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

TEST(Graph, ReadersOfAValueGoInAnyOrder) {
  Graph graph;
  Value* x = graph.AddInput("x", DataType::kFloat, Shape{2});
  Value* z = graph.AddInput("z", DataType::kFloat, Shape{2});
  std::vector<Node*> readers;
  for (int i = 0; i < 5; ++i) {
    readers.push_back(graph.AddNode("", "Add", {x, x}, {graph.AddValue(StrCat("y", i))}));
  }
  graph.EraseNode(readers[0]);
  readers[3]->SetInput(1, z);
  graph.EraseNode(readers[4]);
  EXPECT_EQ(x->uses().size(), 5u);
  for (const Use& use : x->uses()) EXPECT_EQ(use.node->input(use.index), x);
  graph.ReplaceAllUses(x, z);
  EXPECT_TRUE(x->uses().empty());
  EXPECT_EQ(z->uses().size(), 6u);
  EXPECT_TRUE(Verify(graph).ok()) << Verify(graph);
}

TEST(Graph, ValuesAndInitialisersStayInOrderWhereSomeAreErased) {
  Graph graph;
  const Tensor one = Tensor::Scalar<float>(1);
  Value* a = graph.AddInitializer("a", one);
  Value* b = graph.AddInitializer("b", one);
  Value* c = graph.AddInitializer("c", one);
  graph.EraseValue(b);
  graph.ClearInitializer(a);
  graph.SetInitializer(a, one);
  EXPECT_EQ(graph.values(), (std::vector<Value*>{a, c}));
  EXPECT_EQ(graph.initializers(), (std::vector<Value*>{c, a}));
}

TEST(Graph, NamesOfErasedSubgraphsAreFreeAgain) {
  Graph graph;
  auto body = std::make_shared<Graph>(&graph);
  auto inner = std::make_shared<Graph>(body.get());
  Value* t = inner->AddValue("t");
  body->AddValue("s");
  EXPECT_EQ(graph.UniqueName("t"), "t_1");
  inner->Rename(t, "u");
  EXPECT_EQ(graph.UniqueName("t"), "t");
  EXPECT_EQ(body->UniqueName("u"), "u_1");
  inner.reset();
  EXPECT_EQ(graph.UniqueName("u"), "u");
  EXPECT_EQ(graph.UniqueName("s"), "s_1");
  body.reset();
  EXPECT_EQ(graph.UniqueName("s"), "s");
}

}  // namespace
}  // namespace pagefuse
