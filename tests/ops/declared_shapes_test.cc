// SPDX-License-Identifier: Apache-2.0
// Declared shapes: what a table of ports says is checked, and tells the outputs.
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {
namespace {

using testing::HasSubstr;

Shape Sym(const char* a, Dim b) { return {Dim::Symbol(a), b}; }

// One node "y" (test.Op) of an op that a test declares.
class DeclaredShapes : public testing::Test {
 protected:
  // The shapes of the op's inputs in order; nullopt: the rank is not known.
  using Shapes = std::vector<std::optional<Shape>>;

  absl::Status Infer(const Shapes& shapes) {
    std::vector<ShapeContext::Known> known;
    std::vector<Value*> inputs;
    for (const std::optional<Shape>& shape : shapes) {
      inputs.push_back(graph_.AddInput(graph_.UniqueName("i"), DataType::kFloat, shape));
      known.push_back({type_, shape, std::nullopt, nullptr});
    }
    return Run(std::move(inputs), std::move(known));
  }

  absl::Status Run(std::vector<Value*> inputs, std::vector<ShapeContext::Known> known) {
    std::vector<Value*> outputs;
    for (size_t i = 0; i < op_.outputs().size(); ++i) {
      outputs.push_back(graph_.AddValue(graph_.UniqueName("y")));
    }
    Node* node = graph_.AddNode("test", "Op", std::move(inputs), outputs);
    node->name = "y";
    for (const auto& [name, value] : attributes_) node->SetAttribute(name, value);
    ShapeContext context(*node, 1, std::move(known));
    const absl::Status status = op_.Infer(context);
    outputs_ = context.outputs();
    return status;
  }

  std::string Message(const Shapes& shapes) { return std::string(Infer(shapes).message()); }
  std::string Output(int i) const {
    return outputs_[i].shape ? outputs_[i].shape->ToString() : "unknown";
  }

  OpDef op_{"test", "Op", 1};
  DataType type_ = DataType::kFloat;
  std::vector<std::pair<std::string, Attribute>> attributes_;
  Graph graph_;
  std::vector<ShapeContext::Known> outputs_;
};

TEST_F(DeclaredShapes, FirstInputThatTellsADimDecides) {
  op_.Inputs(Ports({{"q", "float", "[M, H, D]"}, {"k", "float", "[N, D]"}}))
      .Outputs(Ports({{"y", "float", "[M, N]"}}));
  ASSERT_TRUE(Infer({Shape{5, 2, 128}, Shape{7, 128}}).ok());
  EXPECT_EQ(Output(0), "[5, 7]");
  EXPECT_EQ(Message({Shape{5, 2, 128}, Shape{40, 64}}),
            "node \"y\" (test.Op): input 1 \"k\": expected [N, D] with D = 128 of \"q\", got [40, "
            "64]");
  EXPECT_THAT(Message({Shape{5, 128}, Shape{40, 64}}),
              HasSubstr("input 0 \"q\": expected [M, H, D] with D = 64 of \"k\", got [5, 128]"));
}

TEST_F(DeclaredShapes, ANumberTellsMoreThanASymbol) {
  op_.Inputs(Ports({{"a", "float", "[T, D]"}, {"b", "float", "[T, D]"}}))
      .Outputs(Ports({{"y", "float", "[T, D]"}}));
  ASSERT_TRUE(Infer({Sym("t", Dim::Symbol("d")), Sym("u", 8)}).ok());
  EXPECT_EQ(Output(0), "[t, 8]");
}

TEST_F(DeclaredShapes, UnknownShapesAgreeWithAllAndGiveFreshDims) {
  op_.Inputs(Ports({{"a", "float", "[T, D]"}, {"b", "float", "[T, 3]"}}))
      .Outputs(Ports({{"y", "float", "[T, D]"}, {"z", "float", "[D, 2 * D]"}}));
  ASSERT_TRUE(Infer({std::nullopt, Shape{4, 3}}).ok());
  EXPECT_EQ(Output(0), "[4, u__y__0]");
  EXPECT_EQ(Output(1), "[u__y__0, 2*u__y__0]");
}

TEST_F(DeclaredShapes, ExpressionsAreEvaluatedAndSolved) {
  op_.Inputs(Ports({{"starts", "float", "[B + 1]"},
                    {"lens", "float", "[B]"},
                    {"state", "float", "[2 * W]"}}))
      .Outputs(Ports({{"y", "float", "[W / 2, (B + 2) * 3 - 1]"}}));
  ASSERT_TRUE(Infer({Shape{6}, std::nullopt, Shape{8}}).ok());
  EXPECT_EQ(Output(0), "[2, 20]");
  ASSERT_TRUE(Infer({std::nullopt, Shape{Dim::Symbol("b")}, Shape{8}}).ok());
  EXPECT_EQ(Output(0), "[2, 3*b + 5]");
  EXPECT_THAT(Message({Shape{6}, Shape{6}, Shape{8}}),
              HasSubstr("input 0 \"starts\": expected [B + 1] with B = 6 of \"lens\", got [6]"));
  EXPECT_THAT(Message({Shape{6}, Shape{5}, Shape{7}}),
              HasSubstr("input 2 \"state\": expected [2 * W], got [7]"));
  EXPECT_THAT(Message({Shape{0}, std::nullopt, Shape{8}}),
              HasSubstr("input 0 \"starts\": expected [B + 1], got [0]"));
}

TEST_F(DeclaredShapes, AnOutputThatDivisionGivesNoSizeIsRefused) {
  op_.Inputs(Ports({{"x", "float", "[D]"}})).Outputs(Ports({{"y", "float", "[D/32]"}}));
  EXPECT_EQ(Message({Shape{40}}),
            "node \"y\" (test.Op): output 0 \"y\": has no size in [D/32] with D = 40 of \"x\"");
}

TEST_F(DeclaredShapes, LeadingDimsAreOneName) {
  op_
      .Inputs(Ports(
          {{"x", "float", "[..., K]"}, {"y", "float", "[..., K]"}, {"z", "float", "[N, ...', K]"}}))
      .Outputs(Ports({{"o", "float", "[..., N, 1]"}}));
  ASSERT_TRUE(Infer({Shape{2, 3, 8}, Shape{2, 3, 8}, Shape{5, 6, 7, 8}}).ok());
  EXPECT_EQ(Output(0), "[2, 3, 5, 1]");
  ASSERT_TRUE(Infer({Shape{8}, Shape{8}, Shape{5, 8}}).ok());
  EXPECT_EQ(Output(0), "[5, 1]");
  EXPECT_THAT(Message({Shape{2, 3, 8}, Shape{2, 4, 8}, Shape{5, 8}}),
              HasSubstr("input 1 \"y\": expected [..., K] with ... = [2, 3] of \"x\", K = 8 of "
                        "\"x\", got [2, 4, 8]"));
  EXPECT_THAT(Message({Shape{8}, Shape{8}, Shape{8}}),
              HasSubstr("input 2 \"z\": expected [N, ...', K] with K = 8 of \"x\", got [8]"));
}

TEST_F(DeclaredShapes, OneOfSeveralShapesFits) {
  op_.Inputs(Ports({{"x", "float", "[T, H]"}, {"s", "float", "[], [1] or [H]"}}));
  for (const Shape& scale : {Shape{}, Shape{1}, Shape{4}, Shape{Dim::Symbol("n")}}) {
    EXPECT_TRUE(Infer({Shape{2, 4}, scale}).ok()) << scale.ToString();
  }
  for (const char* got : {"[2]", "[1, 4]"}) {
    const Shape scale = got[2] == ']' ? Shape{2} : Shape{1, 4};
    EXPECT_THAT(
        Message({Shape{2, 4}, scale}),
        HasSubstr(StrCat("input 1 \"s\": expected [], [1] or [H] with H = 4 of \"x\", got ", got)));
  }
}

TEST_F(DeclaredShapes, AttributesAreNumbersAndChooseShapes) {
  op_.Inputs(Ports({{"x", "float", "[T, K]"},
                    {"w", "float", "[E, N, K] if transB, else [E, K, N]"},
                    {"a", "float", "[ratio, N]"}}))
      .Outputs(Ports({{"y", "float", "[T, ratio * N]"}}))
      .Attr("transB", int64_t{0}, "")
      .Attr("ratio", int64_t{4}, "")
      .AtLeast(1);
  ASSERT_TRUE(Infer({Shape{2, 3}, Shape{5, 3, 6}, Shape{4, 6}}).ok());
  EXPECT_EQ(Output(0), "[2, 24]");
  attributes_ = {{"transB", Attribute{int64_t{1}, "", ""}},
                 {"ratio", Attribute{int64_t{2}, "", ""}}};
  EXPECT_TRUE(Infer({Shape{2, 3}, Shape{5, 6, 3}, Shape{2, 6}}).ok());
  EXPECT_THAT(
      Message({Shape{2, 3}, Shape{5, 3, 6}, Shape{2, 6}}),
      HasSubstr("input 1 \"w\": expected [E, N, K] with K = 3 of \"x\", transB = 1, got [5, "
                "3, 6]"));
  EXPECT_THAT(Message({Shape{2, 3}, Shape{5, 6, 3}, Shape{3, 6}}),
              HasSubstr("input 2 \"a\": expected [ratio, N] with \"ratio\" = 2, N = 6 of \"w\""));
  attributes_[1].second = Attribute{int64_t{0}, "", ""};
  EXPECT_THAT(Message({Shape{2, 3}, Shape{5, 6, 3}, Shape{0, 6}}),
              HasSubstr("attribute \"ratio\": expected at least 1, got 0"));
}

TEST_F(DeclaredShapes, RelationsHoldBesides) {
  op_.Inputs(Ports({{"q", "float", "[T, H, D], H % G = 0, D >= 1"},
                    {"cache", "float", "[G, S], S >= size * 584"},
                    {"slots", "float", "[T'], T' <= T"}}))
      .Attr("size", int64_t{64}, "");
  EXPECT_TRUE(Infer({Shape{3, 6, 8}, Shape{2, 64 * 584}, Shape{3}}).ok());
  EXPECT_TRUE(Infer({Shape{Dim::Symbol("t"), 6, 8}, Shape{2, 64 * 584}, Shape{9}}).ok());
  EXPECT_THAT(
      Message({Shape{3, 6, 8}, Shape{4, 64 * 584}, Shape{3}}),
      HasSubstr("input 0 \"q\": expected [T, H, D], H % G = 0 with G = 4 of \"cache\", got [3"));
  EXPECT_THAT(Message({Shape{3, 6, 8}, Shape{0, 64 * 584}, Shape{3}}),
              HasSubstr("H % G = 0 with G = 0 of \"cache\""));
  EXPECT_THAT(Message({Shape{3, 6, 0}, Shape{3, 64 * 584}, Shape{3}}),
              HasSubstr("input 0 \"q\": expected [T, H, D], D >= 1, got [3, 6, 0]"));
  EXPECT_THAT(Message({Shape{3, 6, 8}, Shape{3, 64 * 584}, Shape{4}}),
              HasSubstr("input 2 \"slots\": expected [T'], T' <= T with T = 3 of \"q\", got [4]"));
}

TEST_F(DeclaredShapes, ProductsThatPassInt64AreTooLarge) {
  op_.Inputs(Ports({{"cache", "float", "[S], S >= size * 584"}})).Attr("size", int64_t{64}, "");
  attributes_ = {{"size", Attribute{int64_t{1} << 55, "", ""}}};
  EXPECT_THAT(Message({Shape{int64_t{1} << 50}}), HasSubstr("expected [S], S >= size * 584 with"));
}

TEST_F(DeclaredShapes, LetNamesExpressionsAndFunctions) {
  op_.Inputs(Ports({{"x", "float", "[T, D]"}, {"c", "float", "[NB, row]"}}))
      .Outputs(Ports({{"y", "float", "[T, R]"}}))
      .Attr("rotated", int64_t{0}, "")
      .Let("R", "rotated if rotated, else D")
      .Let("row", "bytes of a row", [](const ShapeContext& c) -> absl::StatusOr<Dim> {
        const std::optional<int64_t> size = c.size("D").constant();
        if (size && *size % 2 != 0) return c.InputError(0, "expected an even size");
        return c.size("D") * Dim(2);
      });
  ASSERT_TRUE(Infer({Shape{3, 8}, Shape{9, 16}}).ok());
  EXPECT_EQ(Output(0), "[3, 8]");
  EXPECT_THAT(Message({Shape{3, 8}, Shape{9, 8}}),
              HasSubstr("input 1 \"c\": expected [NB, row] with row = 16, got [9, 8]"));
  EXPECT_THAT(Message({Shape{3, 7}, Shape{9, 14}}), HasSubstr("expected an even size"));
  attributes_ = {{"rotated", Attribute{int64_t{4}, "", ""}}};
  ASSERT_TRUE(Infer({Shape{3, 8}, Shape{9, 16}}).ok());
  EXPECT_EQ(Output(0), "[3, 4]");
}

TEST_F(DeclaredShapes, APortMayHaveTheShapeOfAnother) {
  op_.Inputs(Ports({{"cos", "float", "[P, R]"}, {"sin", "float", "as cos"}}))
      .Outputs(Ports({{"y", "float", "as sin"}}));
  ASSERT_TRUE(Infer({Shape{3, 8}, Sym("p", 8)}).ok());
  EXPECT_EQ(Output(0), "[p, 8]");
  EXPECT_THAT(Message({Shape{3, 8}, Shape{3, 4}}),
              HasSubstr("input 1 \"sin\": expected the shape of \"cos\", [3, 8], got [3, 4]"));
}

TEST_F(DeclaredShapes, ConditionsSayWhichPortsAreGiven) {
  op_.Inputs(Ports({{"x", "float", "[T]"},
                    PortSpec("scale", "float", "[]").ExactlyIf("format = fp8"),
                    PortSpec("lens", "float", "[T]").OnlyIf("scale")}))
      .Attr("format", std::string("bf16"), "")
      .OneOf({"bf16", "fp8"});
  const auto run = [this](bool scale, bool lens) {
    Value* value = graph_.AddInput(graph_.UniqueName("i"), DataType::kFloat, Shape{});
    return std::string(Run({value, scale ? value : nullptr, lens ? value : nullptr}, {}).message());
  };
  EXPECT_EQ(run(false, false), "");
  EXPECT_THAT(run(true, false), HasSubstr("input 1 \"scale\": is not expected with format = bf16"));
  EXPECT_THAT(run(false, true), HasSubstr("input 2 \"lens\": is not expected without \"scale\""));
  attributes_ = {{"format", Attribute{std::string("fp8"), "", ""}}};
  EXPECT_EQ(run(true, true), "");
  EXPECT_THAT(run(false, false), HasSubstr("input 1 \"scale\": is missing with format = fp8"));
  attributes_[0].second = Attribute{std::string("fp4"), "", ""};
  EXPECT_THAT(run(true, true),
              HasSubstr("attribute \"format\": expected bf16 or fp8, got \"fp4\""));
}

TEST_F(DeclaredShapes, TypesDependOnAttributes) {
  op_.Inputs(Ports({{"x", "uint8 if format = fp8, else T", "[T]"}}))
      .Outputs(Ports({{"y", "storage", "as x"}, {"z", "T", "as x"}}))
      .Types("T", {DataType::kFloat, DataType::kFloat16})
      .Attr("format", std::string("fp8"), "")
      .OneOf({"bf16", "fp8"})
      .Attr("storage", std::string("float8e4m3fn"), "")
      .OneOf({"float8e4m3fn", "uint8"});
  EXPECT_THAT(Message({Shape{3}}),
              HasSubstr("input 0 \"x\": expected type uint8 with format = fp8, got float"));
  type_ = DataType::kUint8;
  EXPECT_TRUE(Infer({Shape{3}}).ok());
  attributes_ = {{"format", Attribute{std::string("bf16"), "", ""}},
                 {"storage", Attribute{std::string("uint8"), "", ""}}};
  EXPECT_THAT(Message({Shape{3}}),
              HasSubstr("expected type float, float16 with format = bf16, got uint8"));
  type_ = DataType::kFloat16;
  ASSERT_TRUE(Infer({Shape{3}}).ok());
  EXPECT_EQ(outputs_[0].dtype, DataType::kUint8);
  EXPECT_EQ(outputs_[1].dtype, DataType::kFloat16);
}

TEST_F(DeclaredShapes, InferenceMayCheckMoreAndSetOthers) {
  op_.Inputs(Ports({{"x", "float", "[T, D]"}}))
      .Outputs(Ports({{"y", "float", "[T]"}}))
      .InferShapes([](ShapeContext& c) {
        c.SetOutput(0, DataType::kFloat, Shape{c.size("D") + c.size("T")});
        return absl::OkStatus();
      });
  ASSERT_TRUE(Infer({Shape{3, 8}}).ok());
  EXPECT_EQ(Output(0), "[11]");
}

// What a registry says of an op whose one input has this shape.
std::string DeclarationError(std::string_view shape, std::string_view type = "float") {
  OpRegistry registry;
  OpDef op("test", "Op", 1);
  op.Inputs(Ports({{"x", "float", "[N]"}})).Attr("format", std::string("fp8"), "");
  const Ports<1> wrong = [&] {
    constexpr Ports kOne({{"w", "", ""}});
    Ports<1> ports = kOne;
    ports.specs[0] = PortSpec("w", type, shape);
    return ports;
  }();
  return std::string(registry.Add(op.Inputs(wrong)).message());
}

TEST(Declaration, IsRefusedWhereItIsWrong) {
  EXPECT_EQ(DeclarationError("[N, D"),
            "op \"Op\": input \"w\": \"[N, D\": expected \",\" at 6, got the end");
  EXPECT_THAT(DeclarationError("[N] of tokens"), HasSubstr("expected the end at 5, got \"of\""));
  EXPECT_THAT(DeclarationError("[N; D]"), HasSubstr("expected \",\" at 3, got \";\""));
  EXPECT_THAT(DeclarationError("[N], N > 3"), HasSubstr("expected \"=\" at 8, got \">\""));
  EXPECT_THAT(DeclarationError("[..., ..., N]"), HasSubstr("expected a size at 7, got \"...\""));
  EXPECT_THAT(DeclarationError("[N] if format, [M]"), HasSubstr("expected \"if\" at 19"));
  EXPECT_THAT(DeclarationError("[N] if formats = fp8, else [M]"),
              HasSubstr("condition \"formats = fp8\": there is no attribute \"formats\""));
  EXPECT_THAT(DeclarationError("[N] if z, else [M]"),
              HasSubstr("condition \"z\": there is no attribute and no port \"z\""));
  EXPECT_THAT(DeclarationError("as y"), HasSubstr("there is no input \"y\""));
  EXPECT_THAT(DeclarationError("[N]", "flout"), HasSubstr("there is no type \"flout\""));
  EXPECT_THAT(DeclarationError("[N]", "format"), HasSubstr("there is no type \"format\""));
  EXPECT_EQ(DeclarationError("[N]: what it is; not checked"), "");
}

TEST(Ports, AreFoundByName) {
  constexpr Ports kIn({{"x", "float", "[N]"}, PortSpec("bias", "float", "[N]").Optional()});
  static_assert(kIn["bias"] == 1);
  static_assert(kIn.Find("scale") == -1);
  OpDef op("test", "Op", 1);
  op.Inputs(kIn);
  EXPECT_EQ(op.inputs()[kIn["bias"]].name, "bias");
  EXPECT_EQ(op.inputs()[kIn["bias"]].kind, PortKind::kOptional);
}

}  // namespace
}  // namespace pagefuse
