// SPDX-License-Identifier: Apache-2.0
// Random edits against a recount of use lists; topological sorting; what single mutations promise.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "must.h"
#include "random_graph.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;

using UseCount = std::map<std::pair<const Node*, int>, int>;

void CountReads(const Graph& graph, std::map<const Value*, UseCount>& reads) {
  for (const auto& node : graph.nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (node->input(i) != nullptr) ++reads[node->input(i)][{node.get(), i}];
    }
    for (const Graph* subgraph : node->Subgraphs()) CountReads(*subgraph, reads);
  }
}

void ExpectLists(const Graph& graph, std::map<const Value*, UseCount>& reads) {
  std::set<std::string> names;
  for (const Value* value : graph.values()) {
    UseCount listed;
    for (const Use& use : value->uses()) ++listed[{use.node, use.index}];
    ASSERT_EQ(listed, reads[value]) << value->name();
    ASSERT_TRUE(names.insert(value->name()).second);
    ASSERT_EQ(graph.FindValue(value->name()), value);
    const auto& outputs = graph.outputs();
    ASSERT_EQ(value->is_output(), std::count(outputs.begin(), outputs.end(), value) > 0);
    const auto& inputs = graph.inputs();
    ASSERT_EQ(value->is_input(), std::count(inputs.begin(), inputs.end(), value) > 0);
  }
  std::vector<Value*> constants = graph.initializers();
  ASSERT_EQ(std::set<Value*>(constants.begin(), constants.end()).size(), constants.size());
  for (const auto& node : graph.nodes()) {
    ASSERT_EQ(node->graph(), &graph);
    for (const Graph* subgraph : node->Subgraphs()) {
      ASSERT_EQ(subgraph->parent(), &graph);
      ExpectLists(*subgraph, reads);
    }
  }
}

TEST(GraphEdit, RandomEditsKeepUseListsAndOrder) {
  std::vector<int> counts(GraphEditor::kKinds, 0);
  for (unsigned seed = 0; seed < 20; ++seed) {
    GraphEditor editor(seed);
    for (int edit = 0; edit < 500; ++edit) {
      editor.Edit();
      const absl::Status status = Verify(editor.graph());
      ASSERT_TRUE(status.ok()) << "seed " << seed << ", edit " << edit << ": " << status;
      std::map<const Value*, UseCount> reads;
      CountReads(editor.graph(), reads);
      ExpectLists(editor.graph(), reads);
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << ", edit " << edit;
    }
    for (int kind = 0; kind < GraphEditor::kKinds; ++kind) counts[kind] += editor.counts()[kind];
  }
  EXPECT_THAT(counts, testing::Each(testing::Gt(10)));
}

// Puts the nodes of every graph into a random order.
void Shuffle(Graph& graph, std::mt19937& random) {
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  std::shuffle(nodes.begin(), nodes.end(), random);
  for (Node* node : nodes) {
    graph.MoveBefore(node, nullptr);
    for (Graph* subgraph : node->Subgraphs()) Shuffle(*subgraph, random);
  }
}

TEST(GraphEdit, SortingOrdersWhatWasShuffled) {
  std::mt19937 random(5);
  for (unsigned seed = 0; seed < 40; ++seed) {
    GraphEditor editor(seed);
    for (int edit = 0; edit < 150; ++edit) editor.Edit();
    const int64_t nodes = editor.graph().num_nodes();
    Shuffle(editor.graph(), random);
    Must(editor.graph().SortTopologically());
    EXPECT_EQ(editor.graph().num_nodes(), nodes);
    Must(Verify(editor.graph()));
    // A second time nothing moves.
    const std::string text = PrintGraph(editor.graph());
    ASSERT_TRUE(editor.graph().SortTopologically().ok());
    EXPECT_EQ(PrintGraph(editor.graph()), text);
  }
}

TEST(GraphEdit, TheTextOfARandomGraphReadsTheSame) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    GraphEditor editor(seed);
    for (int edit = 0; edit < 200; ++edit) editor.Edit();
    Model model;
    model.opset_imports[""] = 20;
    model.graph = editor.graph().Clone();
    const std::string text = PrintModel(model);
    const Model again = Must(ParseModel(text));
    EXPECT_EQ(PrintModel(again), text);
  }
}

std::vector<std::string> Types(const Graph& graph) {
  std::vector<std::string> types;
  for (const auto& node : graph.nodes()) types.push_back(node->op_type());
  return types;
}

TEST(GraphEdit, SortingKeepsTheOrderOfTheFileWhereItIsFree) {
  Graph graph;
  Value* x = graph.AddInput("x", DataType::kFloat, std::nullopt);
  Value *a = graph.AddValue("a"), *b = graph.AddValue("b"), *c = graph.AddValue("c");
  graph.AddNode("", "Third", {b}, {c});
  graph.AddNode("", "Free", {x}, {graph.AddValue("f")});
  graph.AddNode("", "Second", {a}, {b});
  graph.AddNode("", "First", {x}, {a});
  ASSERT_TRUE(graph.SortTopologically().ok());
  EXPECT_THAT(Types(graph), ElementsAre("Free", "First", "Second", "Third"));
}

TEST(GraphEdit, ACycleNamesANodeOnIt) {
  Graph graph;
  Value *a = graph.AddValue("a"), *b = graph.AddValue("b");
  graph.AddNode("", "After", {b}, {graph.AddValue("c")});
  graph.AddNode("", "One", {b}, {a});
  graph.AddNode("", "Two", {a}, {b});
  const std::string message(StdView(graph.SortTopologically().message()));
  EXPECT_TRUE(message == "node \"a\" (One): is part of a cycle: it needs its own output" ||
              message == "node \"b\" (Two): is part of a cycle: it needs its own output")
      << message;
}

TEST(GraphEdit, EraseIfDeadStopsAtWhatIsStillRead) {
  Graph graph;
  Value* x = graph.AddInput("x", DataType::kFloat, std::nullopt);
  Value *a = graph.AddValue("a"), *b = graph.AddValue("b"), *c = graph.AddValue("c");
  graph.AddNode("", "A", {x}, {a});
  graph.AddNode("", "B", {a, a}, {b});
  Node* last = graph.AddNode("", "C", {b, a}, {c});
  Node* other = graph.AddNode("", "D", {a}, {graph.AddValue("d")});
  graph.AddOutput(other->output(0));
  EXPECT_EQ(graph.EraseIfDead(other), 0);
  EXPECT_EQ(graph.EraseIfDead(last), 2);
  EXPECT_THAT(Types(graph), ElementsAre("A", "D"));
  EXPECT_EQ(graph.FindValue("b"), nullptr);
  EXPECT_EQ(a->uses().size(), 1u);
}

TEST(GraphEdit, ErasingANodeWithASubgraphLetsGoOfWhatThatRead) {
  Graph graph;
  Value* x = graph.AddInput("x", DataType::kFloat, std::nullopt);
  Value* a = graph.AddValue("a");
  graph.AddNode("", "A", {x}, {a});
  Node* node = graph.AddNode("", "If", {}, {graph.AddValue("b")});
  auto body = std::make_shared<Graph>(&graph);
  body->AddNode("", "Inner", {a, x}, {body->AddValue("c")});
  node->SetAttribute("body", Attribute{.value = std::move(body)});
  EXPECT_THAT(ValuesRead(*node), ElementsAre(a, x));
  EXPECT_EQ(graph.EraseIfDead(node), 2);
  EXPECT_TRUE(x->uses().empty());
}

TEST(GraphEdit, AnOutputIsNotRenamedToWhatASubgraphHides) {
  Graph graph;
  Value* x = graph.AddInput("x", DataType::kFloat, std::nullopt);
  Value *t = graph.AddValue("t"), *y = graph.AddValue("y");
  graph.AddNode("", "A", {x}, {t});
  Node* node = graph.AddNode("", "If", {}, {graph.AddValue("b")});
  auto body = std::make_shared<Graph>(&graph);
  body->AddNode("", "Inner", {x}, {body->AddValue("y")});
  body->AddNode("", "Inner", {t}, {body->AddValue("z")});
  node->SetAttribute("body", Attribute{.value = std::move(body)});
  graph.AddNode("", "B", {x}, {y});
  graph.AddOutput(y);
  ASSERT_TRUE(Verify(graph).ok());

  graph.ReplaceAllUses(y, t);
  EXPECT_EQ(graph.outputs()[0]->name(), "y");
  EXPECT_TRUE(Verify(graph).ok()) << Verify(graph);
}

TEST(GraphEdit, UniqueNamesAreFreeAroundAndBelow) {
  Graph graph;
  graph.AddValue("v");
  auto body = std::make_shared<Graph>(&graph);
  body->AddValue("v_1");
  EXPECT_EQ(graph.UniqueName("v"), "v_2");
  EXPECT_EQ(body->UniqueName("v"), "v_2");
  EXPECT_EQ(graph.UniqueName("w"), "w");
  EXPECT_EQ(graph.UniqueName(""), "value");
}

TEST(GraphEdit, ASubgraphThatOutlivesItsGraphLosesItsInputs) {
  auto graph = std::make_unique<Graph>();
  Value* x = graph->AddInput("x", DataType::kFloat, std::nullopt);
  const auto body = std::make_shared<Graph>(graph.get());
  Node* inner = body->AddNode("", "Inner", {x}, {body->AddValue("c")});
  graph.reset();
  EXPECT_EQ(inner->input(0), nullptr);
  EXPECT_EQ(body->parent(), nullptr);
}

TEST(GraphEdit, CloneCopiesEverything) {
  const Model model = Must(ParseModel(R"(
    <ir_version: 10, opset_import: ["" : 20], doc_string: "m">
    g (float[N] x, float[2] w) => (float[N] y) <doc_string: "a graph", metadata_props: ["a": "b"]>
    <float[2] w = {1, 2}, float t <metadata_props: ["k": "v"]>> {
      ["first"] t = Abs (x) <doc_string: "n", metadata_props: ["k": "v"]>
      y = If (t) <then_branch = inner () => (float z) { z = Add (t, w) }, axes = [1, 2], name = "s">
    })"));
  const std::string text = PrintModel(model);
  Model clone = model.Clone();
  EXPECT_EQ(PrintModel(clone), text);
  EXPECT_TRUE(Verify(clone).ok());
  // The copy's edits do not reach the original.
  clone.graph->Rename(clone.graph->FindValue("t"), "other");
  clone.graph->nodes().front()->name = "changed";
  EXPECT_EQ(PrintModel(model), text);
  EXPECT_EQ(model.graph->FindValue("w")->initializer()->data(),
            clone.graph->FindValue("w")->initializer()->data());
}

TEST(Node, AttributesOfAnotherKindAreNamed) {
  Graph graph;
  Node* node = graph.AddNode("", "Op", {}, {graph.AddValue("y")});
  node->SetAttribute("axis", Attribute{.value = 1.5f});
  EXPECT_EQ(StdView(node->IntAttribute("axis", 0).status().message()),
            "node \"y\" (Op): attribute \"axis\": expected an int, got a float");
  EXPECT_EQ(*node->IntAttribute("missing", 7), 7);
  EXPECT_EQ(*node->FloatAttribute("axis", 0), 1.5f);
  node->SetAttribute("axis", Attribute{.value = std::vector<int64_t>{1}});
  EXPECT_EQ(*node->IntsAttribute("axis", {}), std::vector<int64_t>{1});
  EXPECT_EQ(StdView(node->StringAttribute("axis", "").status().message()),
            "node \"y\" (Op): attribute \"axis\": expected a string, got ints");
  node->RemoveAttribute("axis");
  EXPECT_TRUE(node->attributes().empty());
}

TEST(Node, SetInputGrowsTheListWithOmittedOnes) {
  Graph graph;
  Value* x = graph.AddInput("x", DataType::kFloat, std::nullopt);
  Node* node = graph.AddNode("", "Op", {}, {graph.AddValue("y")});
  node->SetInput(2, x);
  EXPECT_THAT(node->inputs(), ElementsAre(nullptr, nullptr, x));
  EXPECT_THAT(x->uses(), ElementsAre(Use{node, 2}));
  node->SetInput(2, x);
  EXPECT_EQ(x->uses().size(), 1u);
  node->SetInput(2, nullptr);
  EXPECT_TRUE(x->uses().empty());
  EXPECT_EQ(node->input(7), nullptr);
}

}  // namespace
}  // namespace pagefuse
