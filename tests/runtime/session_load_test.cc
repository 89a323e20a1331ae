// SPDX-License-Identifier: Apache-2.0
// What a session makes of a model as it loads: functions, outputs that are one value, files that
// change, and ops that contradict themselves.
#include <filesystem>

#include "must.h"
#include "paths.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
}

Model Parse(const std::string& text) { return Must(ParseModel(text)); }

std::string MessageOf(const absl::Status& status) { return std::string(StdView(status.message())); }

// The ways in which a session may treat the graph.
std::vector<SessionOptions> AllOptions() {
  return {{.optimise = true}, {.optimise = false}, {.optimise = false, .load_passes = false}};
}

TEST(SessionLoad, ModelsWithFunctionsRun) {
  for (const char* file : {"f1.onnx", "fbomb10.onnx"}) {
    for (const SessionOptions& options : AllOptions()) {
      const auto session = Session::Load(WentWrongPath(file), options);
      ASSERT_TRUE(session.ok()) << file << ": " << session.status();
      const auto outputs = (*session)->Run({{"x", Floats({-1, 2})}});
      ASSERT_TRUE(outputs.ok()) << file << ": " << outputs.status();
      EXPECT_THAT((*outputs)[0].values<float>(), ElementsAre(0, 2)) << file;
    }
  }
}

TEST(SessionLoad, FunctionsThatWouldBeTooManyNodesAreRefused) {
  for (const SessionOptions& options : AllOptions()) {
    const absl::Status status = Session::Load(WentWrongPath("fbomb40.onnx"), options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(MessageOf(status),
              "function \"f.F40\": the bodies of called functions would be "
              "1099511627776 nodes, expected at most 262144");
  }
}

// Attributes that are graphs multiply without a call: the body has the graph of its caller twice.
TEST(SessionLoad, GraphsThatFunctionsHandOnCountToo) {
  std::string text = R"(<ir_version: 10, opset_import: ["" : 21, "f" : 1]>
    g (bool c, float[2] x) => (float[2] y) {
      y = f.F30 <k = leaf () => (p) { p = Neg (x) }> (c)
    })";
  for (int level = 30; level > 0; --level) {
    StrAppend(
        &text, "\n<domain: \"f\", opset_import: [\"\" : 21, \"f\" : 1]> F", level,
        " <k> (c) => (y) { y = f.F", level - 1,
        " <k = twice () => (q) { q = If <then_branch: graph = @k, else_branch: graph = @k> (c) "
        "}> (c) }");
  }
  StrAppend(&text,
            "\n<domain: \"f\", opset_import: [\"\" : 21]> F0 <k> (c) => (y) { y = If "
            "<then_branch: graph = @k, else_branch: graph = @k> (c) }");
  const Model model = Must(ParseModel(text));
  const absl::Status status = Session::Create(model.Clone(), {.optimise = false}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(MessageOf(status), HasSubstr("expected at most 262144"));
}

TEST(SessionLoad, ACallThatDoesNotFitItsFunctionIsRefused) {
  const std::string function =
      "\n<domain: \"f\", opset_import: [\"\" : 21]> F (a, b) => (c) { c = Neg (a) }";
  const std::string head =
      "<ir_version: 10, opset_import: [\"\" : 21, \"f\" : 1]> g (float[2] x) => (float[2] y) ";
  for (const SessionOptions& options : AllOptions()) {
    const auto error = [&](const std::string& body) {
      return MessageOf(Session::Create(Parse(head + body + function), options).status());
    };
    EXPECT_EQ(error("{ y = f.F (x, x, x) }"),
              "node \"y\" (f.F): function \"F\" has 2 inputs and 1 outputs, got 3 and 1");
    EXPECT_EQ(error("{ y, z = f.F (x) }"),
              "node \"y\" (f.F): function \"F\" has 2 inputs and 1 outputs, got 1 and 2");
  }
}

TEST(SessionLoad, AFunctionOfOpsThatMeanSomethingElseIsRefused) {
  Model model = Parse(R"(<ir_version: 10, opset_import: ["" : 21, "f" : 1]>
    g (float[2, 3] x) => (float[2, 3] y) { y = f.F (x) }
    <domain: "f", opset_import: ["" : 12]> F (a) => (b) { b = Softmax (a) })");
  EXPECT_EQ(MessageOf(Session::Create(std::move(model), {.optimise = false}).status()),
            "node \"y\" (f.F): expected a function of opsets that mean the same as those of its "
            "caller");
}

TEST(SessionLoad, AFunctionOfAnOlderFormIsRefused) {
  Model model = Parse(R"(<ir_version: 10, opset_import: ["" : 21, "f" : 1]>
    g (float[1, 3] x) => (float[3] y) { y = f.F (x) }
    <domain: "f", opset_import: ["" : 12]> F (a) => (b) { b = Squeeze <axes = [0]> (a) })");
  EXPECT_EQ(MessageOf(Session::Create(std::move(model), {.optimise = false}).status()),
            "node \"y\" (f.F): expected a function of opsets that mean the same as those of its "
            "caller");
}

// What the body calls "t" hides what the caller calls "t".
TEST(SessionLoad, ValuesOfGraphsInFunctionsDoNotHideThoseOfTheCaller) {
  Model model = Parse(R"(<ir_version: 10, opset_import: ["" : 21, "f" : 1]>
    g (bool c, float[2] x) => (float[2] y) { t = Neg (x)  y = f.F (c, t) }
    <domain: "f", opset_import: ["" : 21]> F (c, a) => (b) {
      b = If <then_branch = yes () => (p) { t = Add (a, a) p = Mul (t, a) },
              else_branch = no () => (q) { q = Identity (a) }> (c)
    })");
  const auto session = Must(Session::Create(std::move(model), {.optimise = false}));
  const auto outputs = Must(session->Run({{"c", Tensor::Scalar(true)}, {"x", Floats({1, 3})}}));
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(2, 18));
}

TEST(SessionLoad, AnInputThatACallLeavesOutIsLeftOutInTheBody) {
  Model model = Parse(R"(<ir_version: 10, opset_import: ["" : 21, "f" : 1]>
    g (float[2] x) => (float[2] y) { low, high = f.F (x)  y = Clip (x, low, high) }
    <domain: "f", opset_import: ["" : 21]> F (a, b) => (c, b) {
      c = Constant <value_float = 0.0> ()
    })");
  const auto session = Must(Session::Create(std::move(model), {.optimise = false}));
  const auto outputs = Must(session->Run({{"x", Floats({-1, 3})}}));
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(0, 3));
}

TEST(SessionLoad, OneValueMayBeTwoOutputs) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 21]>
    g (float[2] x) => (float[2] y, float[2] z, float[2] y) {
      t = Add (x, x)  y = Neg (t)  z = Abs (y)
    })";
  for (const SessionOptions& options : AllOptions()) {
    const auto session = Must(Session::Create(Parse(text), options));
    for (int run = 0; run < 2; ++run) {
      const auto outputs = Must(session->Run({{"x", Floats({1, 2})}}));
      ASSERT_EQ(outputs.size(), 3u);
      EXPECT_THAT(outputs[0].values<float>(), ElementsAre(-2, -4));
      EXPECT_THAT(outputs[1].values<float>(), ElementsAre(2, 4));
      EXPECT_THAT(outputs[2].values<float>(), ElementsAre(-2, -4));
    }
    const std::vector<Value*>& listed = session->model().graph->outputs();
    EXPECT_EQ(listed[0]->name(), "y");
    EXPECT_EQ(listed[2]->name(), "y");
    const auto written = Must(ExportModel(session->model()));
    EXPECT_TRUE(ImportModel(written, {}).ok());
  }
}

TEST(SessionLoad, AValueThatIsTwoOutputsIsBoundOnce) {
  const auto session = Must(Session::Create(Parse(R"(<ir_version: 10, opset_import: ["" : 21]>
    g (float[2] x) => (float[2] y, float[2] y) { y = Neg (x) })")));
  Tensor memory = Floats({0, 0});
  ASSERT_TRUE(session->Bind("y", memory).ok());
  ASSERT_TRUE(session->Run({{"x", Floats({1, 2})}}).ok());
  EXPECT_THAT(memory.values<float>(), ElementsAre(-1, -2));
}

TEST(SessionLoad, BodiesMayGiveAValueTwice) {
  const auto session = Must(Session::Create(Parse(R"(<ir_version: 10, opset_import: ["" : 21]>
    g (int64 n, float[2] x) => (float[2] y, float[K, 2] steps) <bool yes = {1}> {
      y, steps = Loop <body = b (int64 i, bool c, float[2] s) => (bool c, float[2] s1, float[2] s1) {
        s1 = Add (s, s)
      }> (n, yes, x)
    })")));
  const auto outputs =
      Must(session->Run({{"n", Tensor::Scalar<int64_t>(2)}, {"x", Floats({1, 2})}}));
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(4, 8));
  EXPECT_THAT(outputs[1].values<float>(), ElementsAre(2, 4, 4, 8));
}

TEST(SessionLoad, AFileOfWeightsThatBecameShorterStopsRuns) {
  const fs::path folder = fs::path(testing::TempDir()) / "session_load_weights";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const std::string file = (folder / "m.onnx").string();
  const Model model = Parse(R"(<ir_version: 10, opset_import: ["" : 21]>
    g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { y = Add (x, w) })");
  ASSERT_TRUE(SaveModel(model, file, {.external_data_threshold = 1}).ok());
  const SessionOptions plain{.optimise = false};
  const auto mapped = Must(Session::Load(file, plain));
  SessionOptions reading = plain;
  reading.map_files = false;
  const auto read = Must(Session::Load(file, reading));
  absl::StatusOr<Model> loaded = LoadModel(file);
  const std::map<std::string, Tensor> feeds = {{"x", Floats({0, 0, 0, 0})}};
  EXPECT_TRUE(mapped->Run(feeds).ok());
  fs::resize_file(file + ".data", 8);
  const absl::Status status = mapped->Run(feeds).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status), HasSubstr("was 16 bytes long when it was loaded"));
  EXPECT_EQ(mapped->WarmUp(feeds), status);
  EXPECT_EQ(Session::Create(*std::move(loaded), plain).status(), status);
  const auto outputs = Must(read->Run(feeds));
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(1, 2, 3, 4));
  fs::remove_all(folder);
}

// An op whose definition gives twice as many elements as its inference says.
TEST(SessionLoad, ADecompositionThatIsNotWhatWasInferredIsAnError) {
  OpRegistry registry = OpRegistry::Global();
  ASSERT_TRUE(registry
                  .Add(OpDef("load_test", "Doubled", 1)
                           .Input("x", "T")
                           .Output("y", "T")
                           .Types("T", {DataType::kFloat})
                           .InferShapes([](ShapeContext& c) {
                             c.SetOutput(0, c.input_type(0), *c.input_shape(0));
                             return absl::OkStatus();
                           })
                           .Decomposition("Doubled (x) => (y) { y = Concat <axis = 0> (x, x) }"))
                  .ok());
  const ScopedOpRegistry scope(registry);
  const std::string expected =
      "node \"y\" (load_test.Doubled): output 0 of its decomposition: expected float[2] as "
      "inferred, "
      "got float[4]";
  const Model model = Parse(R"(<ir_version: 10, opset_import: ["load_test" : 1]>
    g (float[N] x) => (float[N] y) { y = load_test.Doubled (x) })");
  const std::map<std::string, Tensor> feeds = {{"x", Floats({1, 2})}};
  const auto session = Must(Session::Create(model.Clone()));
  const absl::Status status = session->Run(feeds).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(MessageOf(status), expected);
  EXPECT_EQ(MessageOf(EvaluateModel(model, feeds).status()), expected);
}

}  // namespace
}  // namespace pagefuse
