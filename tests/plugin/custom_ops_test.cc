// SPDX-License-Identifier: Apache-2.0
// Custom ops of a library that was written for ONNX Runtime, as ops of ours.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hosted.h"
#include "must.h"
#include "paths.h"

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Feeds = std::map<std::string, Tensor>;

const std::vector<OpDef>& ThirdParty() {
  static const auto* const ops = [] {
    auto made = Must(OpsOfLibrary(PAGEFUSE_THIRD_PARTY));
    return new std::vector<OpDef>(std::move(made));
  }();
  return *ops;
}

class CustomOps : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { Must(Publish(ThirdParty())); }
};

const OpDef& Find(std::string_view name) {
  const auto& ops = ThirdParty();
  return *std::find_if(ops.begin(), ops.end(), [&](const OpDef& op) { return op.name() == name; });
}

std::string ErrorOf(const std::string& ports, const std::string& body, const Feeds& feeds) {
  return std::string(RunModel(ThirdPartyModel(ports, body), feeds).status().message());
}

TEST(CustomOpRows, RowsOfOneNameAreOneOp) {
  std::vector<std::string> names;
  for (const OpDef& op : ThirdParty()) names.push_back(op.domain() + "." + op.name());
  EXPECT_EQ(names.size(), 13u);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  const OpDef& scale = Find("Scale");
  ASSERT_EQ(scale.kernels().size(), 2u);
  EXPECT_EQ(scale.kernels()[0].name, "libthird_party_ort.so(float, float?)");
  EXPECT_EQ(scale.kernels()[1].name, "libthird_party_ort.so(double, double?)");
  EXPECT_EQ(Find("Same").kernels()[0].name, "libthird_party_ort.so");
}

TEST(CustomOpRows, PortsAreDeclared) {
  const OpDef& scale = Find("Scale");
  EXPECT_EQ(scale.inputs()[0].type, "I0");
  EXPECT_THAT(scale.types()[0].second, ElementsAre(DataType::kFloat, DataType::kDouble));
  EXPECT_EQ(scale.inputs()[1].kind, PortKind::kOptional);
  EXPECT_EQ(Find("Positive").outputs()[1].type, "int64");
  EXPECT_EQ(Find("Total").inputs()[0].kind, PortKind::kVariadic);
  EXPECT_EQ(Find("Total").inputs()[0].type, "");
  // What the first version of the declaration does not have is as it was then.
  EXPECT_EQ(Find("Old").inputs()[0].kind, PortKind::kRequired);
}

TEST_F(CustomOps, TheFileOfAllKindsRuns) {
  auto model = Must(LoadModel(SourcePath("tests/data/third_party.onnxtxt")));
  std::vector<float> x(18);
  for (int i = 0; i < 18; ++i) x[i] = 0.1F * static_cast<float>(i - 6);
  const auto outputs =
      Must(RunModel(std::move(model), {{"x", Tensor::Of<float>({3, 6}, x)},
                                       {"d", Tensor::Of<double>({3}, {1, -2, 4})},
                                       {"i", Tensor::Of<int64_t>({3}, {7, 8, 9})}}));
  std::vector<float> scaled, above;
  std::vector<int64_t> places;
  double total = 0;
  for (int i = 0; i < 18; ++i) {
    scaled.push_back(x[i] * 2 + 0.5F);
    if (!(scaled[i] - 1 > 0.25F)) continue;
    above.push_back(scaled[i] - 1);
    places.push_back(i);
    total += above.back();
  }
  total = (total + 3 + 24 + 1) * 6;
  const std::vector<Tensor>& y = outputs;
  EXPECT_EQ(Floats(y[0]), scaled);
  EXPECT_THAT(y[1].values<double>(), ElementsAre(-1.5, 3, -6));
  EXPECT_EQ(Floats(y[2]), above);
  EXPECT_THAT(y[3].values<int64_t>(), testing::ElementsAreArray(places));
  EXPECT_FLOAT_EQ(y[4].values<float>()[0], static_cast<float>(total));
  EXPECT_EQ(Floats(y[5]), std::vector<float>(scaled.begin(), scaled.begin() + 6));
  EXPECT_EQ(Floats(y[6]), std::vector<float>(scaled.begin() + 12, scaled.end()));
  EXPECT_THAT(y[7].values<int64_t>(), ElementsAre(7, 8, 9));
  EXPECT_THAT(Floats(y[8]), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(y[9].dims(), (std::vector<int64_t>{3, 6}));
  EXPECT_THAT(Floats(y[10]), ElementsAre(2));
}

// A number of elements that changes from run to run, in one session: memory grows, and shrinks.
TEST_F(CustomOps, ShapesThatTheKernelTellsChangeFromRunToRun) {
  SessionOptions options;
  options.optimise = false;
  auto session = Must(
      Session::Create(ThirdPartyModel("(float[N] x) => (float[M] y)",
                                      "  some = third.party.Positive (x)\n  y = Add (some, some)"),
                      options));
  for (const int count : {1, 40000, 0, 3, 40001}) {
    std::vector<float> x(count + 5, -1.0F);
    for (int i = 0; i < count; ++i) x[i + 2] = static_cast<float>(i + 1);
    const auto y =
        Must(session->Run({{"x", Tensor::Of<float>({static_cast<int64_t>(x.size())}, x)}}));
    ASSERT_EQ(y[0].dims(), std::vector<int64_t>{count});
    for (int i = 0; i < count; ++i) ASSERT_EQ(y[0].values<float>()[i], 2.0F * (i + 1));
  }
}

TEST_F(CustomOps, OutputsGoToMemoryOfTheCallers) {
  SessionOptions options;
  options.optimise = false;
  auto session = Must(Session::Create(
      ThirdPartyModel("(float[N] x) => (float[N] y)", "  y = third.party.Scale <factor = 3.0> (x)"),
      options));
  Tensor y = Tensor::Of<float>({2}, {0, 0});
  const Feeds feeds = {{"x", Tensor::Of<float>({2}, {1, 2})}};
  ASSERT_TRUE(session->Bind("y", y).ok());
  ASSERT_TRUE(session->Run(feeds).ok());
  EXPECT_THAT(Floats(y), ElementsAre(3, 6));
  ASSERT_TRUE(session->Bind("y", Tensor::Of<float>({3}, {0, 0, 0})).ok());
  const auto wrong = session->Run(feeds);
  EXPECT_THAT(std::string(wrong.status().message()),
              HasSubstr("bound memory is float[3], expected float[2]"));
}

TEST_F(CustomOps, AnOutputThatNobodyWantsMayBeLeftOut) {
  const auto y = Must(RunModel(ThirdPartyModel("(float[N] x) => (int64[M] places)",
                                               "  some, places = third.party.Positive (x)"),
                               {{"x", Tensor::Of<float>({3}, {1, -1, 2})}}));
  EXPECT_THAT(y[0].values<int64_t>(), ElementsAre(0, 2));
}

TEST_F(CustomOps, ShapesOfTheFunctionReachTheGraph) {
  Model model =
      ThirdPartyModel("(float[batch, 2*seq] x) => (float[A, B] y)", "  y = third.party.Scale (x)");
  ASSERT_TRUE(InferShapes(model).ok());
  EXPECT_EQ(model.graph->outputs()[0]->shape()->ToString(), "[batch, 2*seq]");
}

TEST_F(CustomOps, EvaluationOfOneNodeComputesTheSame) {
  const Model model = ThirdPartyModel("(float[N] x) => (float[M] y, int64[M] places)",
                                      "  y, places = third.party.Positive <threshold = 1.0> (x)");
  const auto outputs = Must(EvaluateModel(model, {{"x", Tensor::Of<float>({4}, {1, 3, 0, 2})}}));
  EXPECT_THAT(Floats(outputs[0]), ElementsAre(3, 2));
  EXPECT_THAT(outputs[1].values<int64_t>(), ElementsAre(1, 3));
}

// Nothing says that such an op is a function of its inputs.
TEST_F(CustomOps, TwoEqualNodesStayTwoAndNoneIsComputedAhead) {
  Model model = ThirdPartyModel("(float[N] x) => (float[N] y, float[] z)",
                                "  a = third.party.Scale (x)\n  b = third.party.Scale (x)\n"
                                "  y = Sub (a, b)\n  one = Constant <value = float {1.0}> ()\n"
                                "  z = third.party.Scale (one)");
  SessionOptions options;
  auto session = Must(Session::Create(std::move(model), options));
  int nodes = 0;
  for (const auto& node : session->model().graph->nodes())
    nodes += node->Is("Scale", "third.party");
  EXPECT_EQ(nodes, 3);
}

TEST_F(CustomOps, TypesThatNoRowHasAreNamed) {
  EXPECT_THAT(
      ErrorOf("(float[N] x, double b) => (float[N] y)", "  y = third.party.Scale (x, b)", {}),
      AllOf(HasSubstr("(third.party.Scale)"), HasSubstr("libthird_party_ort.so"),
            HasSubstr("(float, float?) or (double, double?), got (float, double)")));
}

TEST_F(CustomOps, WhatIsNotComputedIsRefusedInASentence) {
  const std::string ports = "(float[N] x) => (float[N] y)";
  EXPECT_THAT(ErrorOf(ports, "  y = third.party.Device (x)", {}),
              HasSubstr("it is for CUDAExecutionProvider, expected CPUExecutionProvider"));
  EXPECT_THAT(ErrorOf("(string[N] x) => (string[N] y)", "  y = third.party.Text (x)", {}),
              HasSubstr("strings, which are not computed"));
}

TEST_F(CustomOps, AFunctionThatIsNotThereIsNamed) {
  EXPECT_THAT(
      ErrorOf("(float[N] x) => (float[N] y)", "  y = third.party.Lacking (x)",
              {{"x", Tensor::Of<float>({1}, {1})}}),
      AllOf(HasSubstr("(third.party.Lacking)"),
            HasSubstr("function 131, CreateAllocator, of ONNX Runtime's C API is not there")));
}

TEST_F(CustomOps, ErrorsOfTheLibraryNameNodeAndLibrary) {
  const std::string ports = "(float[N] x) => (float[N] y)";
  const Feeds feeds = {{"x", Tensor::Of<float>({1}, {1})}};
  EXPECT_THAT(ErrorOf(ports, "  y = third.party.Failing (x)", feeds),
              AllOf(HasSubstr("(third.party.Failing)"),
                    HasSubstr("libthird_party_ort.so: this op always fails")));
  EXPECT_THAT(ErrorOf(ports, "  y = third.party.Silent (x)", feeds),
              AllOf(HasSubstr("(third.party.Silent)"), HasSubstr("it gave no output 0")));
  EXPECT_THAT(ErrorOf(ports, "  y = third.party.Table (x)", feeds),
              AllOf(HasSubstr("(third.party.Table)"), HasSubstr("attribute \"table\" is missing")));
}

TEST_F(CustomOps, WhatANodeIsCanBeAsked) {
  const Feeds feeds = {{"x", Tensor::Of<float>({4, 2}, std::vector<float>(8))}};
  for (const auto& [what, expected] :
       std::map<std::string, float>{{"inputs", 1}, {"dims", 4}, {"rank", 2}}) {
    const auto y =
        Must(RunModel(ThirdPartyModel("(float[4, N] x) => (float y)",
                                      "  y = third.party.Numbers <what = \"" + what + "\"> (x)"),
                      feeds));
    EXPECT_EQ(y[0].values<float>()[0], expected) << what;
  }
}

TEST_F(CustomOps, AnOpIsCalledWithWhatItsPortsTake) {
  EXPECT_THAT(ErrorOf("(float[N] x) => (float[N] y)", "  y = third.party.Same (x, x)", {}),
              HasSubstr("expected at most 1 inputs, got 2"));
  EXPECT_THAT(ErrorOf("(float[N] x) => (float y)", "  y = third.party.Total ()", {}),
              HasSubstr("expected at least 1 inputs, got 0"));
}

}  // namespace
}  // namespace pagefuse
