// SPDX-License-Identifier: Apache-2.0
// The text form of nodes, attributes, functions and whole files.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "must.h"
#include "paths.h"
#include "text_check.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;

// A model around a list of nodes over the inputs x and y.
std::string Nodes(std::string_view nodes) {
  std::ostringstream text;
  text << "<ir_version: 10, opset_import: [\"\" : 18]>\ng (float x, float y) => () {\n  " << nodes
       << "\n}\n";
  return text.str();
}

const Node& OnlyNode(const Model& model) { return *model.graph->nodes().front(); }

template <typename T>
T AttributeOf(const Model& model, std::string_view name) {
  return std::get<T>(OnlyNode(model).attribute(name)->value);
}

// --- nodes and attributes ---

TEST(Text, ReadsNodesWithEverything) {
  const Model model =
      Parse(Nodes("[n] a, , b, = com.microsoft.Op:v2 <k = 1> (x, \"\", y) <l = 2>"));
  const Node& node = OnlyNode(model);
  EXPECT_EQ(node.name, "n");
  EXPECT_EQ(node.domain(), "com.microsoft");
  EXPECT_EQ(node.op_type(), "Op");
  EXPECT_EQ(node.overload, "v2");
  ASSERT_EQ(node.num_outputs(), 3);
  EXPECT_EQ(node.output(1), nullptr);
  EXPECT_EQ(node.output(2)->name(), "b");
  ASSERT_EQ(node.num_inputs(), 3);
  EXPECT_EQ(node.input(1), nullptr);
  EXPECT_EQ(node.attributes().size(), 2u);
}

TEST(Text, TellsTheKindOfAnAttributeFromItsValue) {
  const Model model = Parse(Nodes(R"(
    a = Op <i = -3, f = 2.5, s = "t", is = [1, 2], fs = [1, 2.5], ss = ["a", "b"], t = float[2] {1, 2}, n = -inf> ())"));
  EXPECT_EQ(AttributeOf<int64_t>(model, "i"), -3);
  EXPECT_EQ(AttributeOf<float>(model, "f"), 2.5f);
  EXPECT_EQ(AttributeOf<std::string>(model, "s"), "t");
  EXPECT_THAT(AttributeOf<std::vector<int64_t>>(model, "is"), ElementsAre(1, 2));
  EXPECT_THAT(AttributeOf<std::vector<float>>(model, "fs"), ElementsAre(1, 2.5f));
  EXPECT_THAT(AttributeOf<std::vector<std::string>>(model, "ss"), ElementsAre("a", "b"));
  EXPECT_THAT(AttributeOf<Tensor>(model, "t").values<float>(), ElementsAre(1, 2));
  EXPECT_EQ(AttributeOf<float>(model, "n"), -INFINITY);
}

TEST(Text, FollowsTheTypeOfAnAttribute) {
  const Model model = Parse(Nodes(
      "a = Op <f: float = 1, fs: floats = [1, 2], e: ints = [], r: int = @k, q = @\"k 2\"> ()"));
  EXPECT_EQ(AttributeOf<float>(model, "f"), 1.0f);
  EXPECT_THAT(AttributeOf<std::vector<float>>(model, "fs"), ElementsAre(1, 2));
  EXPECT_TRUE(AttributeOf<std::vector<int64_t>>(model, "e").empty());
  EXPECT_EQ(AttributeOf<AttributeRef>(model, "r"), (AttributeRef{"k", 2}));
  EXPECT_EQ(AttributeOf<AttributeRef>(model, "q"), (AttributeRef{"k 2", 0}));
}

TEST(Text, PrintsAttributesOfEveryKind) {
  ExpectFixedPoint(Nodes(
      R"(a = Op <f = 1.0, g = 1e-06, i = 1, s = "\"\\", fs = [1.0, nan], is = [1], e: floats = [], )"
      R"(u: strings = [], t = int8[2] {1, -1}, ts = [float {1}, bool[0] {}], v: tensors = [], w: graphs = [], )"
      R"(r: ints = @k, q = @k, y: type_proto = seq(float["a b"]), z: type_protos = [float, int64[]], )"
      R"(o: type_protos = [], p: sparse_tensors = [], "x y" = 1> ())"));
}

TEST(Text, KeepsAttributesThatItHasNoWordsFor) {
  // AttributeProto {name: "a", type: SPARSE_TENSOR, sparse_tensor {}}
  ExpectFixedPoint(Nodes("b = Op <a: proto = \"0a0161a0010bb20100\"> ()"));
}

TEST(Text, ReadsSubgraphsThatUseOuterValues) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 18]>
g (bool c, float[N] x) => (float[N] y) {
  t = Relu (x)
  y = If (c) <then_branch = yes () => (float[N] a)
  <
    float k = {2}
  > {
    a = Mul (t, k)
  }, else_branch = "no/1" () => (float[N] b) {
    b = Identity (x)
  }>
}
)";
  const Model model = Parse(text);
  EXPECT_TRUE(Verify(*model.graph).ok()) << Verify(*model.graph);
  EXPECT_EQ(model.graph->FindValue("t")->uses().size(), 1u);
  EXPECT_EQ(model.graph->nodes().back()->Subgraphs().size(), 2u);
  Print(text);
}

TEST(Text, ReadsListsOfGraphs) {
  const Model model =
      Parse(Nodes("a = Op <gs = [g1 () => (b) { b = Relu (x) }, g2 () => () {}]> ()"));
  EXPECT_EQ(OnlyNode(model).Subgraphs().size(), 2u);
  Print(Nodes("a = Op <gs = [g1 () => (b) { b = Relu (x) }, g2 () => () {}]> ()"));
}

TEST(Text, PrintsANodeOnOneLine) {
  const Model model = Parse(Nodes(R"(y1 = Mul <a = 1, body = b () => () {}> (x, y))"));
  EXPECT_EQ(PrintNode(OnlyNode(model)), "y1 = Mul (x, y) <a = 1, body = b {...}>");
}

// --- functions ---

TEST(Text, ReadsFunctions) {
  auto function = Must(ParseFunction(R"(
    <domain: "pagefuse", overload: "o", opset_import: ["" : 23], doc_string: "d">
    F <alpha, beta: float = 1.0, gamma = [1, 2]> (x, float[N] w) => (y) {
      t = Scale <by: float = @beta> (x)
      y = Mul (t, w)
    })"));
  EXPECT_EQ(function.domain, "pagefuse");
  EXPECT_EQ(function.name, "F");
  EXPECT_EQ(function.overload, "o");
  EXPECT_EQ(function.doc_string, "d");
  EXPECT_EQ(function.opset_imports.at(""), 23);
  EXPECT_THAT(function.attributes, ElementsAre("alpha"));
  ASSERT_EQ(function.defaults.size(), 2u);
  EXPECT_EQ(std::get<float>(function.defaults[0].second.value), 1.0f);
  EXPECT_EQ(function.body->inputs().size(), 2u);
  const std::string printed = PrintFunction(function);
  auto again = Must(ParseFunction(printed));
  EXPECT_EQ(PrintFunction(again), printed);
}

TEST(Text, TakesAFunctionWithoutHeaderOrName) {
  auto function = Must(ParseFunction("(x) => (y) { y = Relu (x) }"));
  EXPECT_EQ(function.name, "");
  EXPECT_EQ(function.body->num_nodes(), 1);
}

TEST(Text, KeepsFunctionsOfAModel) {
  ExpectFixedPoint(R"(<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
g (float[N] x) => (float[N] y) {
  y = my.F <a = 2> (x)
}

<domain: "my", opset_import: ["" : 18]>
F <a, b = 1.0> (x) => (y)
<
  float[N] t
> {
  t = Relu (x)
  y = Relu (t)
}

<domain: "my", overload: "2", opset_import: ["" : 18]>
F (x) => (y) {
  y = Relu (x)
}
)");
}

// --- files ---

std::string FileText(const std::string& path) {
  std::ifstream file(SourcePath(path));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Text, ReadsTheExampleOfItsPage) {
  const std::string page = FileText("docs/text_form.md");
  const size_t begin = page.find("```\n") + 4;
  const size_t end = page.find("```", begin);
  ASSERT_NE(end, std::string::npos);
  const std::string example = page.substr(begin, end - begin);
  Print(example);
  const Model model = Parse(example);
  EXPECT_TRUE(Verify(model).ok()) << Verify(model);
  EXPECT_EQ(model.functions.size(), 1u);
}

class DecompositionFile : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> DecompositionFiles() {
  std::vector<std::string> names;
  const auto folder = std::filesystem::path(SourcePath("tests/data/decompositions"));
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST_P(DecompositionFile, IsReadAndPrintsAsAFixedPoint) {
  const std::string text = FileText("tests/data/decompositions/" + GetParam() + ".txt");
  ASSERT_FALSE(text.empty());
  Print(text);
  const Model model = Parse(text);
  EXPECT_TRUE(Verify(model).ok()) << Verify(model);
  // In these files a node is a line that starts with two blanks and a name.
  std::istringstream lines(text);
  int64_t nodes = 0;
  for (std::string line; std::getline(lines, line);) {
    nodes += line.starts_with("  ") && line[2] != '#' && line.find(" = ") != std::string::npos;
  }
  EXPECT_EQ(model.graph->num_nodes(), nodes);
}

INSTANTIATE_TEST_SUITE_P(All, DecompositionFile, ::testing::ValuesIn(DecompositionFiles()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace pagefuse
