// SPDX-License-Identifier: Apache-2.0
// Op lookup, schema checks and kernel choice.
#include "pagefuse/ops/registry/registry.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/infer/verify_ports.h"

namespace pagefuse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

absl::Status Succeed(KernelArgs&) { return absl::OkStatus(); }

OpDef Versioned(int since) { return OpDef("test", "Op", since).Input("x", "T").Output("y", "T"); }

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(OpRegistry, FindsNewestVersionNotAboveTheOpset) {
  OpRegistry registry;
  ASSERT_TRUE(registry.Add(Versioned(5)).ok());
  ASSERT_TRUE(registry.Add(Versioned(2)).ok());
  EXPECT_EQ(registry.Find("test", "Op", 1), nullptr);
  EXPECT_EQ(registry.Find("test", "Op", 4)->since(), 2);
  EXPECT_EQ(registry.Find("test", "Op", INT64_MAX)->since(), 5);
  EXPECT_EQ(registry.Find("test", "Oq", 9), nullptr);
}

TEST(OpRegistry, RefusesTheSameVersionTwice) {
  OpRegistry registry;
  ASSERT_TRUE(registry.Add(Versioned(5)).ok());
  EXPECT_THAT(Message(registry.Add(Versioned(5))), HasSubstr("already registered"));
}

TEST(OpRegistry, KnowsTheDefaultDomainByBothNames) {
  EXPECT_NE(OpRegistry::Global().Find("", "Reshape", 18), nullptr);
  EXPECT_EQ(OpRegistry::Global().Find("ai.onnx", "Reshape", 18),
            OpRegistry::Global().Find("", "Reshape", 18));
}

// A chain of them says nothing of versions.
TEST(OpRegistry, ElementwiseOpsHaveOneDefinitionAndOneOutput) {
  std::set<std::string> names;
  for (const OpDef* op : OpRegistry::Global().ops()) {
    if (!op->is_elementwise()) continue;
    EXPECT_TRUE(op->domain().empty() && names.insert(op->name()).second) << op->name();
    EXPECT_EQ(op->outputs().size(), 1u) << op->name();
    for (const Kernel& kernel : op->kernels()) {
      EXPECT_FALSE(kernel.prepare && kernel.device == Device::kCpu) << op->name();
    }
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"Add", "Cast", "Clip", "Gelu", "Max", "Where"}));
}

// A graph of one test.Op node reading a float.
class KernelChoiceTest : public testing::Test {
 protected:
  KernelChoiceTest() {
    Value* x = graph_.AddInput("x", DataType::kFloat, Shape({Dim(3)}));
    node_ = graph_.AddNode("test", "Op", {x}, {graph_.AddValue("y")});
    op_.Input("x", "T").Output("y", "T").Types("T", {DataType::kFloat, DataType::kDouble});
  }
  absl::StatusOr<KernelChoice> Choose(std::string_view force = "") {
    EXPECT_TRUE(registry_.Add(op_).ok());
    return ChooseKernel({node_, 1}, force, registry_);
  }

  Graph graph_;
  Node* node_;
  OpDef op_{"test", "Op", 1};
  OpRegistry registry_;
};

TEST_F(KernelChoiceTest, TakesTheHighestPriorityAndSaysWhyNotABetterOne) {
  op_.AddKernel({.name = "reference", .run = Succeed});
  op_.AddKernel({.name = "hwy", .priority = 10, .run = Succeed});
  op_.AddKernel({.name = "amx",
                 .priority = 20,
                 .supports = [](const KernelQuery&) { return absl::UnimplementedError("no amx"); },
                 .run = Succeed});
  op_.AddKernel({.name = "f64", .dtypes = {DataType::kDouble}, .priority = 30, .run = Succeed});
  const auto choice = Must(Choose());
  EXPECT_EQ(choice.kernel->name, "hwy");
  EXPECT_THAT(choice.refusals, ElementsAre("f64: does not compute float", "amx: no amx"));
}

TEST_F(KernelChoiceTest, PrefersTheForcedKernel) {
  op_.AddKernel({.name = "reference", .run = Succeed});
  op_.AddKernel({.name = "hwy", .priority = 10, .run = Succeed});
  EXPECT_EQ(Choose("reference")->kernel->name, "reference");
}

TEST_F(KernelChoiceTest, LeavesTheDecompositionWhereNoKernelFits) {
  op_.AddKernel({.name = "f64", .dtypes = {DataType::kDouble}, .run = Succeed});
  op_.Decomposition("Op (x) => (y) { y = Identity (x) }");
  const auto choice = Must(Choose());
  EXPECT_EQ(choice.kernel, nullptr);
}

TEST_F(KernelChoiceTest, TakesKernelsOfTheDeviceThatIsAskedForAlone) {
  op_.AddKernel({.name = "reference", .run = Succeed});
  op_.AddKernel({.name = "grid", .device = Device::kCuda, .priority = 10, .run = Succeed});
  const auto on_cpu = Must(Choose());
  EXPECT_EQ(on_cpu.kernel->Description(), "reference");
  EXPECT_THAT(on_cpu.refusals, IsEmpty());
  KernelQuery query{node_, 1};
  query.device = Device::kCuda;
  EXPECT_EQ(Must(ChooseKernel(query, "", registry_)).kernel->Description(), "grid on cuda");
  EXPECT_EQ(Must(ChooseKernel(query, "reference", registry_)).kernel->name, "grid");
}

TEST_F(KernelChoiceTest, RefusesAnOpWithoutKernelAndDecomposition) {
  op_.AddKernel({.name = "f64", .dtypes = {DataType::kDouble}, .run = Succeed});
  EXPECT_EQ(Message(Choose().status()),
            "node \"y\" (test.Op): no kernel; f64: does not compute float");
}

// Schema checks come before an op's own inference.
absl::Status InferText(std::string_view body) {
  const std::string text =
      "<ir_version: 10, opset_import: [\"\" : 18]> g (float[2] a, int64[1] i) => (float[N] y) { " +
      std::string(body) + " }";
  absl::StatusOr<Model> model = ParseModel(text);
  if (!model.ok()) return model.status();
  const Node& node = *model->graph->nodes().front();
  std::vector<ShapeContext::Known> inputs;
  for (const Value* input : node.inputs()) {
    inputs.emplace_back();
    if (input != nullptr) inputs.back() = {input->dtype(), input->shape(), std::nullopt, nullptr};
  }
  ShapeContext context(node, 18, std::move(inputs));
  return OpRegistry::Global().Find("", node.op_type(), 18)->Infer(context);
}

TEST(OpDef, RejectsBadCalls) {
  EXPECT_EQ(Message(InferText("y = Gather (a)")),
            "node \"y\" (Gather): input 1 \"indices\" is missing");
  EXPECT_EQ(Message(InferText("y = Identity (a, a)")),
            "node \"y\" (Identity): expected at most 1 inputs, got 2");
  EXPECT_THAT(Message(InferText("y = Gather (a, a)")),
              HasSubstr("input 1 \"indices\": expected type int32, int64, got float"));
  EXPECT_THAT(Message(InferText("y = Concat <axis = 0> (a, i)")),
              HasSubstr("input 1 \"inputs\": expected type float as the inputs before, got int64"));
  EXPECT_EQ(Message(InferText("y = Concat (a)")),
            "node \"y\" (Concat): attribute \"axis\": is missing");
  EXPECT_EQ(Message(InferText("y = Gather <axis = 1.5> (a, i)")),
            "node \"y\" (Gather): attribute \"axis\": expected an int");
  EXPECT_EQ(Message(InferText("y = Gather <axes = 1> (a, i)")),
            "node \"y\" (Gather): attribute \"axes\": is not an attribute of this op");
}

// The model's one node is `node`, under a version of the standard.
absl::Status PortsOf(int opset, const std::string& node) {
  const auto model =
      Must(ParseModel("<ir_version: 10, opset_import: [\"\" : " + std::to_string(opset) +
                      "]> g (float[2] a, int64[1] i) => (y) { " + node + " }"));
  return VerifyPorts(model);
}

TEST(VerifyPorts, NamesWhatIsMissing) {
  EXPECT_TRUE(PortsOf(18, "y = Gather (a, i)").ok());
  EXPECT_EQ(Message(PortsOf(18, "y = Gather (a)")),
            "node \"y\" (Gather): input 1 \"indices\" is missing");
  EXPECT_EQ(Message(PortsOf(18, "y = Concat <axis = 0> (a, , a)")),
            "node \"y\" (Concat): input 1 \"inputs\" is missing");
  EXPECT_EQ(Message(PortsOf(18, "y = Gather (a, i, i)")),
            "node \"y\" (Gather): expected at most 2 inputs, got 3");
  EXPECT_TRUE(PortsOf(18, "y = NoOpOfAnyVersion ()").ok());
}

TEST(VerifyPorts, KnowsThatOldVersionsHadAttributes) {
  EXPECT_TRUE(PortsOf(6, "y = Slice <starts = [0], ends = [1]> (a)").ok());
  EXPECT_EQ(Message(PortsOf(6, "y = Slice <starts = [0], ends = [1]> ()")),
            "node \"y\" (Slice): input 0 \"data\" is missing");
  EXPECT_EQ(Message(PortsOf(6, "y = Attention (a)")),
            "node \"y\" (Attention): input 1 \"K\" is missing");
}

TEST(VerifyPorts, LooksIntoGraphsAndFunctions) {
  EXPECT_EQ(Message(PortsOf(18,
                            "c = Cast <to = 9> (i) y = If <then_branch = t () => (p) { p = Add "
                            "(a) }, else_branch = e () => (q) { q = Neg (a) }> (c)")),
            "node \"p\" (Add): input 1 \"B\" is missing");
  const auto model = Must(ParseModel(
      "<ir_version: 10, opset_import: [\"\" : 18, \"f\" : 1]> g (float[2] a) => (float[2] y) "
      "{ y = Neg (a) }\n"
      "<domain: \"f\", opset_import: [\"\" : 18]> Uncalled (x) => (y) { y = MatMul (x) }"));
  EXPECT_EQ(Message(VerifyPorts(model)), "node \"y\" (MatMul): input 1 \"B\" is missing");
}

TEST(VerifyOps, NamesTheFirstUnknownOp) {
  const auto model =
      Must(ParseModel("<ir_version: 10, opset_import: [\"\" : 18]> g (float[2] a) => (float[2] y) "
                      "{ b = Identity (a) y = Frobnicate (b) }"));
  const absl::Status status = VerifyOps(model);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Message(status),
            "node \"y\" (Frobnicate): no op \"Frobnicate\" in domain \"\" at version 18");
}

// Files of before graphs held rows.
TEST(VerifyOps, SaysThatTilesOfAMatrixUnitAreToBeWrittenAgain) {
  const auto message = [](const std::string& node) {
    const auto model =
        Must(ParseModel("<ir_version: 10, opset_import: [\"\" : 24, \"pagefuse\" : 1]> "
                        "g (float[1, 32] x, int64[1] ids) => (float[1, 16] y) "
                        "<bfloat16[1, 1, 16, 16, 2] \"q.bf16\" = ...> { y = " +
                        node + " }"));
    return Message(VerifyOps(model));
  };
  EXPECT_EQ(
      message("pagefuse.MatMulBf16 <K = 32, N = 16> (x, \"q.bf16\")"),
      "node \"y\" (pagefuse.MatMulBf16): no op \"MatMulBf16\" in domain \"pagefuse\" at version 1; input "
      "1 \"q.bf16\" lies in the tiles of a matrix unit, where graphs hold rows now, for "
      "pagefuse.Linear: write the file again from its export");
  EXPECT_THAT(message("pagefuse.GatherBf16 <K = 32, N = 16> (\"q.bf16\", ids)"),
              HasSubstr("input 0 \"q.bf16\" lies in the tiles of a matrix unit"));
  EXPECT_THAT(message("pagefuse.GatedLinearNBits <K = 32, N = 16> (x, \"q.bf16\", x)"),
              HasSubstr("pagefuse.GatedLinear: write the file again"));
}

TEST(VerifyOps, NamesTheVersionsThatAreKnown) {
  const auto model = Must(ParseModel(
      "<ir_version: 10, opset_import: [\"\" : 10]> g (float[2] a, int64[1] s) => (float[2] y) "
      "{ y = ScatterND (a, s, a) }"));
  EXPECT_EQ(Message(VerifyOps(model)),
            "node \"y\" (ScatterND): no op \"ScatterND\" in domain \"\" at version 10; known from "
            "version 11 on");
}

TEST(VerifyOps, TakesModelLocalFunctions) {
  const auto model = Must(ParseModel(
      "<ir_version: 10, opset_import: [\"\" : 18, \"f\" : 1]> g (float[2] a) => (float[2] y) "
      "{ y = f.Twice (a) }\n"
      "<domain: \"f\", opset_import: [\"\" : 18]> Twice (x) => (y) { y = Concat <axis = 0> (x, x) "
      "}"));
  EXPECT_TRUE(VerifyOps(model).ok()) << VerifyOps(model);
}

}  // namespace
}  // namespace pagefuse
