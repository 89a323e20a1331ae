// SPDX-License-Identifier: Apache-2.0
// Plug-ins as a program loads them: what they add, that nothing is added where something is wrong, and
// that what runs keeps what it has.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <elf.h>

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/pipeline/placed_rules.h"
#include "pagefuse/plugin/loader/load_plugin.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Object(const std::string& name) {
  return StrCat(PAGEFUSE_PLUGIN_OBJECTS, "/", name, ".so");
}

std::string WriteText(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// All ops and their kernels.
std::vector<std::string> KnownOps() {
  std::vector<std::string> known;
  for (const OpDef* op : OpRegistry::Global().ops()) {
    std::string line = StrCat(op->domain(), ".", op->name(), " ", op->since());
    for (const Kernel& kernel : op->kernels()) StrAppend(&line, " ", kernel.name);
    known.push_back(line);
  }
  return known;
}

Model Parse(const std::string& text) { return Must(ParseModel(text)); }

std::vector<float> Values(const Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

constexpr char kScale[] = R"(
<ir_version: 10, opset_import: ["" : 24, "acme" : 1]>
g (float[R, 3] x, float[3] b) => (float[R, 3] y, float[R, 3] z) {
  y = acme.Scale <factor = 2.0> (x, b)
  z = acme.Scale <factor: float = -1.0> (x)
})";

std::map<std::string, Tensor> ScaleFeeds() {
  return {{"x", Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6})},
          {"b", Tensor::Of<float>({3}, {10, 20, 30})}};
}

TEST(Plugin, AddsAnOpItsKernelAndARule) {
  const auto plugin = Must(LoadPlugin(Object("acme"), {.try_in_child = true}));
  EXPECT_EQ(plugin.name, "acme");
  EXPECT_EQ(plugin.version, "0.1");
  EXPECT_EQ(plugin.kind, "plug-in ABI 1.0");
  ASSERT_EQ(plugin.ops.size(), 1u);
  EXPECT_EQ(plugin.ops[0].name, "acme.Scale");
  EXPECT_THAT(plugin.ops[0].kernels, ElementsAre(std::pair<std::string, int>("plain", 10)));
  EXPECT_TRUE(plugin.ops[0].has_body);
  ASSERT_EQ(plugin.rules.size(), 1u);
  EXPECT_EQ(plugin.rules[0].name, "acme-scale");
  EXPECT_EQ(plugin.rules[0].place, "before: fuse-elementwise");
}

TEST(Plugin, ItsKernelGivesWhatTheBodyGives) {
  ASSERT_TRUE(LoadPlugin(Object("acme")).ok());
  auto session = Must(Session::Create(Parse(kScale), {.optimise = false}));
  EXPECT_THAT(session->KernelReport(), HasSubstr("(acme.Scale): plain\n"));
  const auto run = Must(session->Run(ScaleFeeds()));
  EXPECT_THAT(Values(run[0]), ElementsAre(12, 24, 36, 18, 30, 42));
  EXPECT_THAT(Values(run[1]), ElementsAre(-1, -2, -3, -4, -5, -6));
  const auto body = Must(EvaluateModel(Parse(kScale), ScaleFeeds(), {.decompose = true}));
  for (size_t i = 0; i < body.size(); ++i) EXPECT_TRUE(body[i].IdenticalTo(run[i])) << i;
}

TEST(Plugin, ARuleMatchesWhatItsOpMeans) {
  ASSERT_TRUE(LoadPlugin(Object("acme")).ok());
  Model model = Parse(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (float[R, 4] x, float[4] b) => (float[R, 4] y, float[R, 4] u) {
        three = Constant <value_float: float = 3.0> ()
        s = Mul (x, three)
        y = Add (s, b)
        half = Constant <value_float: float = 0.5> ()
        t = Tanh (x)
        u = Mul (half, t)
      })");
  const auto report = Must(RunPipeline(model, {.page = false, .verify = true}));
  EXPECT_EQ(report.counts.at("acme-scale"), 2);
  const std::string text = PrintModel(model);
  EXPECT_THAT(text, HasSubstr("y = acme.Scale <factor = 3.0> (x, b)"));
  EXPECT_THAT(text, HasSubstr("u = acme.Scale <factor = 0.5> (t)"));
}

TEST(Plugin, TheSameFileTwiceIsLoadedOnce) {
  ASSERT_TRUE(LoadPlugin(Object("acme")).ok());
  const auto before = KnownOps();
  const size_t loaded = LoadedPlugins().size();
  const auto again = Must(LoadPlugin(StrCat(PAGEFUSE_PLUGIN_OBJECTS, "/../objects/acme.so")));
  EXPECT_EQ(again.name, "acme");
  EXPECT_EQ(LoadedPlugins().size(), loaded);
  EXPECT_EQ(KnownOps(), before);
}

TEST(Plugin, AnOpIsOfOneFile) {
  ASSERT_TRUE(LoadPlugin(Object("acme")).ok());
  const std::string other = WriteText(
      "other.txt", "# op: acme.Scale\nScale (float[N] x) => (float[N] y) { y = Neg (x) }\n");
  const absl::Status status = LoadPlugin(other).status();
  EXPECT_EQ(status.message(),
            StrCat(other, ": op acme.Scale: ", Object("acme"), " has it already"));
}

// An object that is wrong in a way: its path, and the line that says so behind the path.
struct Wrong {
  std::string path, says;
};

std::string OtherMachine() {
  std::string bytes = *ReadFile(Object("acme"));
  const std::string path = testing::TempDir() + "other_machine.so";
  const uint16_t machine = EM_S390;
  std::copy_n(reinterpret_cast<const char*>(&machine), sizeof(machine),
              bytes.begin() + offsetof(Elf64_Ehdr, e_machine));
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(Plugin, AWrongObjectIsOneLineAndAddsNothing) {
  ASSERT_TRUE(LoadPlugin(Object("acme")).ok());
  const auto before = KnownOps();
  const size_t rules = ReadRuleFiles({})->size();
  const std::vector<Wrong> all = {
      {WriteText("text.so", "int main;\n"), "is neither a shared object nor a text with"},
      {OtherMachine(), "is for another machine (22), this pagefuse is for "},
      {Object("wrong_symbol"), "has no symbol pagefuse_plugin or RegisterCustomOps"},
      {Object("wrong_magic"), "pagefuse_plugin is no pf_plugin"},
      {Object("wrong_abi"), "plug-in ABI 9.0, this pagefuse takes 1.0 to 1.0"},
      {Object("wrong_undefined"), "undefined symbol: function_of_nobody"},
      {Object("wrong_body"), "text 1:3:11: expected \"(\", got \"x\""},
      {Object("wrong_kernel"), "kernel \"plain\" for wrong.NoSuchOp: there is no such op"},
      {Object("wrong_duplicate"), StrCat("op acme.Scale: ", Object("acme"), " has it already")},
      {Object("wrong_constructor"), "ended the process that tried to load it: "},
      {Object("wrong_address"), "ended the process that tried to load it: "},
      {Object("wrong_failure"), "its registration: needs 2 licences"},
  };
  for (const Wrong& wrong : all) {
    const absl::Status status = LoadPlugin(wrong.path, {.try_in_child = true}).status();
    EXPECT_FALSE(status.ok()) << wrong.path;
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith(StrCat(wrong.path, ": ", wrong.says)), Not(HasSubstr("\n"))));
    EXPECT_EQ(KnownOps(), before) << wrong.path;
    EXPECT_EQ(ReadRuleFiles({})->size(), rules) << wrong.path;
  }
  // Those that leave the process alone say the same in it.
  for (const std::string way : {"body", "kernel", "duplicate", "failure", "undefined"}) {
    EXPECT_FALSE(LoadPlugin(Object("wrong_" + way)).ok()) << way;
    EXPECT_EQ(KnownOps(), before) << way;
  }
}

TEST(Plugin, AMissingFileIsNotFound) {
  const absl::Status status = LoadPlugin("/none/acme.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "/none/acme.so: No such file or directory");
}

// probe.c says what it finds otherwise than the header has it.
TEST(Plugin, AKernelPacksConstantsAndUsesThreads) {
  SessionOptions options;
  options.pipeline.page = false;
  options.num_threads = 2;
  options.plugins = {Object("probe")};
  auto session = Must(Session::Create(Parse(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (int64[N] rows) => (float[N, 4] y)
      <float[3, 4] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> {
        ten = Constant <value_float: float = 10.0> ()
        taken = Gather <axis = 0> (table, rows)
        y = Mul (taken, ten)
      })"),
                                      options));
  EXPECT_THAT(session->KernelReport(),
              HasSubstr("(probe.Gather): packed (other: computes mode other, not plain)\n"));
  const auto run = Must(session->Run({{"rows", Tensor::Of<int64_t>({2}, {2, 0})}}));
  EXPECT_THAT(Values(run[0]), ElementsAre(90, 100, 110, 120, 10, 20, 30, 40));
  const absl::Status status = session->Run({{"rows", Tensor::Of<int64_t>({2}, {0, 3})}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "node \"y\" (probe.Gather): row 3 of 3");
}

TEST(Plugin, AnElementwiseOpRunsInChains) {
  ASSERT_TRUE(LoadPlugin(Object("probe")).ok());
  Model model = Parse(R"(
      <ir_version: 10, opset_import: ["" : 24, "probe" : 1]>
      g (float[N, 4] x) => (float[N, 4] y) {
        a = Abs (x)
        b = probe.Double (a)
        y = Neg (b)
      })");
  SessionOptions options;
  options.pipeline.page = false;
  auto session = Must(Session::Create(model.Clone(), options));
  EXPECT_THAT(session->KernelReport(), HasSubstr("(pagefuse.Elementwise): tiles\n"));
  const auto run = Must(session->Run({{"x", Tensor::Of<float>({1, 4}, {1, -2, 3, -4})}}));
  EXPECT_THAT(Values(run[0]), ElementsAre(-2, -4, -6, -8));
  // In a file the op is a function, and calls of it are nodes again.
  ASSERT_TRUE(RunPipeline(model, options.pipeline).ok());
  ASSERT_TRUE(RunPipeline(model, {.passes = ExportStage()}).ok());
  ASSERT_EQ(model.functions.size(), 1u);
  EXPECT_EQ(model.functions[0].name, "Double");
}

TEST(Plugin, AConditionOfItsOwnSaysWhyARuleDoesNotFire) {
  ASSERT_TRUE(LoadPlugin(Object("probe")).ok());
  Model model = Parse(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (int64[N] rows) => (float[N, 3] y) <float[1, 3] table = {1, 2, 3}> {
        ten = Constant <value_float: float = 10.0> ()
        taken = Gather <axis = 0> (table, rows)
        y = Mul (taken, ten)
      })");
  const auto report = Must(RunPipeline(model, {.page = false, .explain = {"probe-gather"}}));
  ASSERT_EQ(report.misses.size(), 1u);
  EXPECT_EQ(report.misses[0].condition, "divides(table, 4): \"table\" is float[1, 3]");
}

TEST(Plugin, WhatRunsKeepsItsKernels) {
  auto session = Must(Session::Create(Parse(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (float[N] x) => (float[N] y) { y = Relu (x) })"),
                                      {.optimise = false, .load_passes = false}));
  const OpDef* before = OpRegistry::Global().Find("", "Relu", 24);
  OpRegistry next = OpRegistry::Global();
  ASSERT_TRUE(next.AddKernel("", "Relu", {.name = "mine", .priority = 1000}).ok());
  OpRegistry::Publish(std::move(next));
  const OpDef* after = OpRegistry::Global().Find("", "Relu", 24);
  EXPECT_NE(before, after);
  EXPECT_EQ(after->kernels().size(), before->kernels().size() + 1);
  const auto run = Must(session->Run({{"x", Tensor::Of<float>({2}, {-1, 2})}}));
  EXPECT_THAT(Values(run[0]), ElementsAre(0, 2));
}

TEST(Plugin, AnOpThatNobodyHasNamesThePlugins) {
  ASSERT_TRUE(LoadPlugin(Object("acme")).ok());
  const absl::Status status = VerifyOps(Parse(R"(
      <ir_version: 10, opset_import: ["" : 24, "acme" : 1]>
      g (float[N] x) => (float[N] y) { y = acme.Shift (x) })"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(StartsWith("node \"y\" (acme.Shift): no op \"Shift\" in domain \"acme\" at version 1; "
                       "plug-ins that are loaded: "),
            HasSubstr(StrCat("acme 0.1 (", Object("acme"), ")"))));
}

TEST(Plugin, ATextAloneIsAPlugin) {
  const std::string path = WriteText("shop.txt", R"(# Half of it, by the body alone.
# op: shop.Halve
Halve (x) => (y) {
  half = Constant <value_float: float = 0.5> ()
  y = Mul (x, half)
}
# rule: shop-halve
# after: fuse-elementwise
(x) => (y) { two = Constant <value_float: float = 2.0> ()  y = Div (x, two) }
# ---- after
(x) => (y) { y = shop.Halve (x) }
)");
  const auto plugin = Must(LoadPlugin(path));
  EXPECT_EQ(plugin.name, "shop");
  EXPECT_EQ(plugin.kind, "text");
  auto session = Must(Session::Create(Parse(R"(
      <ir_version: 10, opset_import: ["" : 24, "shop" : 1]>
      g (float[A, B] x) => (float[A, B] y) { y = shop.Halve (x) })"),
                                      {.optimise = false}));
  EXPECT_THAT(session->KernelReport(), HasSubstr("(shop.Halve): decomposition\n"));
  const auto run = Must(session->Run({{"x", Tensor::Of<float>({1, 2}, {3, 5})}}));
  EXPECT_THAT(Values(run[0]), ElementsAre(1.5, 2.5));
}

}  // namespace
}  // namespace pagefuse
