// SPDX-License-Identifier: Apache-2.0
// Graphs that are broken by hand, and what Verify says of them.
#include "pagefuse/ir/graph/verify.h"

#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

std::string Message(const absl::Status& status) { return std::string(StdView(status.message())); }

// x -> Abs -> t -> Neg -> y
struct Chain {
  Model model;
  Graph* graph;
  Value *x, *t, *y;
  Node *abs, *neg;

  Chain() {
    model.graph = std::make_shared<Graph>();
    model.opset_imports[""] = 20;
    graph = model.graph.get();
    graph->name = "g";
    x = graph->AddInput("x", DataType::kFloat, Shape{2});
    t = graph->AddValue("t");
    y = graph->AddValue("y");
    abs = graph->AddNode("", "Abs", {x}, {t});
    neg = graph->AddNode("", "Neg", {t}, {y});
    graph->AddOutput(y);
  }

  // A node in front of all others with a subgraph that computes `inner` from `read`.
  Graph* AddSubgraph(const std::string& inner, Value* read, Node* before) {
    Node* node = graph->AddNode("", "If", {}, {graph->AddValue("chosen")}, before);
    node->name = "choose";
    auto body = std::make_shared<Graph>(graph);
    body->name = "body";
    Value* value = body->AddValue(inner);
    body->AddNode("", "Exp", {read}, {value});
    body->AddOutput(value);
    Graph* result = body.get();
    node->SetAttribute("then_branch", Attribute{.value = body});
    return result;
  }

  std::string Error() const { return Message(Verify(model)); }
};

TEST(Verify, AcceptsWhatIsWhole) {
  Chain chain;
  EXPECT_EQ(chain.Error(), "");
  chain.AddSubgraph("inner", chain.t, chain.neg);
  EXPECT_EQ(chain.Error(), "");
}

TEST(Verify, AModelNeedsAGraph) { EXPECT_EQ(Message(Verify(Model())), "the model has no graph"); }

TEST(Verify, NamesAReaderBeforeItsProducer) {
  Chain chain;
  chain.graph->MoveBefore(chain.neg, chain.abs);
  EXPECT_EQ(chain.Error(),
            "node \"y\" (Neg): input 0 \"t\": is read before node \"t\" (Abs) computes it");
}

TEST(Verify, NamesAValueWhoseDimsNoMemoryHolds) {
  Chain chain;
  chain.t->set_shape(Shape{Dim::Symbol("n"), Dim(0), Dim(kMaxElements)});
  EXPECT_EQ(chain.Error(), "");
  chain.t->set_shape(Shape{Dim::Symbol("n"), Dim(0), Dim(kMaxElements + 1)});
  EXPECT_EQ(chain.Error(),
            "value \"t\": expected dims of a tensor that fits in memory, got "
            "[n, 0, 72057594037927937]");
}

TEST(Verify, NamesANodeThatReadsItsOwnOutput) {
  Chain chain;
  chain.abs->SetInput(0, chain.t);
  EXPECT_EQ(chain.Error(),
            "node \"t\" (Abs): input 0 \"t\": is read before node \"t\" (Abs) computes it");
}

TEST(Verify, NamesAnInputThatNothingDefines) {
  Chain chain;
  chain.neg->SetInput(0, chain.graph->AddValue("nothing"));
  EXPECT_EQ(chain.Error(),
            "node \"y\" (Neg): input 0 \"nothing\": expected a value that a node computes, an "
            "input or an initialiser, got an unknown name");
}

TEST(Verify, NamesAnOutputThatNothingDefines) {
  Chain chain;
  chain.graph->AddOutput(chain.graph->AddValue("nothing"));
  EXPECT_EQ(chain.Error(),
            "graph \"g\": output \"nothing\": expected a value that a node computes, an input or "
            "an initialiser, got an unknown name");
}

TEST(Verify, TakesAnOutputThatIsListedTwice) {
  Chain chain;
  chain.graph->AddOutput(chain.y);
  EXPECT_EQ(chain.Error(), "");
}

TEST(Verify, NamesANodeWithoutAType) {
  Chain chain;
  chain.graph->AddNode("", "", {chain.x}, {chain.graph->AddValue("z")});
  EXPECT_EQ(chain.Error(), "node \"z\" (): has no operator type");
}

TEST(Verify, NamesAnInitialiserOfAnotherType) {
  Chain chain;
  Value* w = chain.graph->AddInitializer("w", Tensor::Of<float>({2}, {1, 2}));
  w->set_dtype(DataType::kInt64);
  EXPECT_EQ(chain.Error(), "initialiser \"w\": expected type int64, got float");
  w->set_dtype(DataType::kFloat);
  w->set_shape(Shape{3});
  EXPECT_EQ(chain.Error(), "initialiser \"w\": expected shape [3], got [2]");
  w->set_shape(Shape{Dim::Symbol("N")});
  EXPECT_EQ(chain.Error(), "");
  w->set_shape(Shape{2, 1});
  EXPECT_EQ(chain.Error(), "initialiser \"w\": expected shape [2, 1], got [2]");
  chain.graph->SetInitializer(w, Tensor());
  EXPECT_EQ(chain.Error(), "initialiser \"w\": has no data");
}

TEST(Verify, NamesADomainThatIsNotImported) {
  Chain chain;
  chain.graph->AddNode("com.microsoft", "FastGelu", {chain.x}, {chain.graph->AddValue("z")});
  EXPECT_EQ(chain.Error(),
            "node \"z\" (com.microsoft.FastGelu): domain \"com.microsoft\" is not among the opset "
            "imports");
  chain.model.opset_imports["com.microsoft"] = 1;
  EXPECT_EQ(chain.Error(), "");
}

TEST(Verify, TheStandardDomainHasTwoNames) {
  Chain chain;
  chain.model.opset_imports = {{"ai.onnx", 20}};
  EXPECT_EQ(chain.Error(), "");
}

TEST(Verify, ASubgraphSeesOnlyWhatIsThereBeforeItsNode) {
  Chain chain;
  chain.AddSubgraph("inner", chain.t, chain.abs);
  EXPECT_EQ(chain.Error(),
            "node \"inner\" (Exp): input 0 \"t\": is read before node \"t\" (Abs) computes it");
}

TEST(Verify, NamesAHiddenValue) {
  Chain chain;
  Graph* body = chain.AddSubgraph("inner", chain.t, chain.neg);
  body->AddNode("", "Abs", {chain.x}, {body->AddValue("t")});
  EXPECT_EQ(chain.Error(),
            "node \"inner\" (Exp): input 0 \"t\": is hidden by a value of that name nearer by");
}

TEST(Verify, NamesAValueOfAnInnerGraph) {
  Chain chain;
  Graph* body = chain.AddSubgraph("inner", chain.x, chain.neg);
  chain.neg->SetInput(0, body->FindValue("inner"));
  EXPECT_EQ(chain.Error(),
            "node \"y\" (Neg): input 0 \"inner\": is a value of a graph that is not around it");
  chain.neg->SetInput(0, chain.t);
}

TEST(Verify, NamesASubgraphOfAnotherGraph) {
  Chain chain, other;
  Graph* body = chain.AddSubgraph("inner", chain.x, chain.neg);
  Node* node = chain.graph->FindValue("chosen")->producer();
  auto foreign = std::make_shared<Graph>(other.graph);
  node->SetAttribute("then_branch", Attribute{.value = foreign});
  static_cast<void>(body);
  EXPECT_EQ(chain.Error(), "node \"choose\" (If): a subgraph does not name the graph around it");
  node->SetAttribute("then_branch", Attribute{.value = std::shared_ptr<Graph>()});
  EXPECT_EQ(chain.Error(), "node \"choose\" (If): a subgraph does not name the graph around it");
}

TEST(Verify, NamesUsesByNodesThatAreNotInTheGraph) {
  Chain chain;
  // The attribute is replaced, but somebody else keeps the old subgraph, which still reads "x".
  Graph* body = chain.AddSubgraph("inner", chain.x, chain.neg);
  Node* node = chain.graph->FindValue("chosen")->producer();
  const auto kept = std::get<std::shared_ptr<Graph>>(node->attribute("then_branch")->value);
  ASSERT_EQ(kept.get(), body);
  node->SetAttribute("then_branch", Attribute{.value = std::make_shared<Graph>(chain.graph)});
  EXPECT_EQ(chain.Error(), "value \"x\": expected a list of 1 uses, got another one of 2");
}

Function MakeFunction(const std::string& name, const std::string& callee) {
  Function function;
  function.domain = "f";
  function.name = name;
  function.opset_imports = {{"", 20}, {"f", 1}};
  function.body = std::make_shared<Graph>();
  Value* a = function.body->AddInput("a", DataType::kUndefined, std::nullopt);
  Value* b = function.body->AddValue("b");
  function.body->AddNode(callee == "Abs" ? "" : "f", callee, {a}, {b});
  function.body->AddOutput(b);
  return function;
}

TEST(Verify, FunctionsMayCallEachOtherInOneDirection) {
  Chain chain;
  chain.model.functions = {MakeFunction("One", "Two"), MakeFunction("Two", "Abs")};
  EXPECT_EQ(chain.Error(), "");
  chain.model.functions[1] = MakeFunction("Two", "One");
  EXPECT_EQ(chain.Error(), "function \"f.One\": functions call each other in a circle");
  chain.model.functions[1] = MakeFunction("One", "Abs");
  EXPECT_EQ(chain.Error(), "function \"f.One\": is defined twice");
  chain.model.functions[1].overload = "v2";
  EXPECT_EQ(chain.Error(), "");
}

TEST(Verify, ErrorsInFunctionsNameTheFunction) {
  Chain chain;
  chain.model.functions = {MakeFunction("One", "Abs")};
  Function& one = chain.model.functions[0];
  one.opset_imports.erase("");
  EXPECT_EQ(chain.Error(),
            "function \"f.One\": node \"b\" (Abs): domain \"\" is not among the opset imports");
  one.opset_imports[""] = 20;
  one.body->AddOutput(one.body->AddValue("z"));
  EXPECT_EQ(chain.Error(),
            "function \"f.One\": graph \"\": output \"z\": expected a value that a node computes, "
            "an input or an initialiser, got an unknown name");
  one.body = nullptr;
  EXPECT_EQ(chain.Error(), "function \"f.One\": has no body");
  one.name.clear();
  EXPECT_EQ(chain.Error(), "a function has no name");
}

}  // namespace
}  // namespace pagefuse
