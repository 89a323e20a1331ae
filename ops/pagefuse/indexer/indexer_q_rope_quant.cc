// IndexerQRopeQuant: rotates and quantises the indexer's query and folds the scales into the head
// weights. Equals vLLM's fused_indexer_q_rope_quant (DeepSeek-V4; with half-split pairs, V3.2).
#include "pagefuse/ops/kernels/indexer/indexer_q_rope_quant.h"

#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/hadamard_attribute.h"
#include "pagefuse/ops/pagefuse/indexer/indexer_q_rope_quant_body.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    PortSpec("positions", "P", "[T]").Metadata(),
    {"q", "T", "[T, H, D], D >= 1, D % unit = 0"},
    PortSpec("cos_sin", "R",
             "[P, R], R % 2 = 0, R <= D, R + rotary_offset <= D, R % unit = 0: "
             "R/2 cosines, then R/2 sines")
        .Metadata(),
    {"weights", "W", "[T, H]"},
});
constexpr Ports kOut({
    {"q_out", "T if format = none, uint8 if format = mxfp4, else fp8_storage",
     "[T, H, D/2] if format = mxfp4, else [T, H, D]"},
    {"weights_out", "float", "[T, H]"},
    PortSpec("q_scale", "uint8", "[T, H, D/32]").ExactlyIf("format = mxfp4"),
});

// Not looked up in templates: clang 14 takes no consteval call there.
constexpr int kQPort = kIn["q"], kCosSinPort = kIn["cos_sin"], kPositionsPort = kIn["positions"],
              kQScaleResult = kOut["q_scale"], kWeightsPort = kIn["weights"];

struct Attributes {
  bool mxfp4 = false;
  bool is_plain = false;
  bool hadamard = false;
  bool interleaved = true;
  std::optional<int64_t> offset;  // of the rotated part; the end of the row without
  float softmax_scale = 0;
  float head_scale = 0;
};

absl::StatusOr<Attributes> ReadAttributes(const Node& node) {
  Attributes a;
  PF_ASSIGN_OR_RETURN(const std::string format, node.StringAttribute("format", "fp8"));
  a.mxfp4 = format == "mxfp4";
  a.is_plain = format == "none";
  PF_ASSIGN_OR_RETURN(a.hadamard, HasHadamard(node));
  PF_ASSIGN_OR_RETURN(const int64_t interleaved, node.IntAttribute("interleaved", 1));
  a.interleaved = interleaved != 0;
  if (node.attribute("rotary_offset") != nullptr) {
    PF_ASSIGN_OR_RETURN(a.offset, node.IntAttribute("rotary_offset", 0));
  }
  PF_ASSIGN_OR_RETURN(a.softmax_scale, node.FloatAttribute("softmax_scale", 0));
  PF_ASSIGN_OR_RETURN(a.head_scale, node.FloatAttribute("head_scale", 0));
  return a;
}

absl::Status Validate(const KernelArgs& args) {
  return CheckIndices(args, kIn["positions"], args.input(kIn["cos_sin"]).dim(0), "positions");
}

template <auto compute>
absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Attributes a, ReadAttributes(*args.node));
  const TensorArg& q = args.input(kQPort);
  const TensorArg& table = args.input(kCosSinPort);
  IndexerQCall call;
  call.type = q.dtype;
  call.source = q.as<const uint8_t>();
  call.tokens = q.dim(0);
  call.heads = q.dim(1);
  call.size = q.dim(2);
  call.table = {table.dtype, table.as<const uint8_t>(), table.dim(1)};
  call.layout = {call.table.pairs(), a.offset.value_or(call.size - table.dim(1)), a.interleaved};
  call.positions = IndicesOf(args.input(kPositionsPort));
  IndexerQBody body;
  body.mxfp4 = a.mxfp4;
  body.size = call.size;
  call.is_plain = a.is_plain;
  call.hadamard = a.hadamard;
  call.group = body.group();
  call.format = body.format();
  call.codes = args.output(0).as<uint8_t>();
  if (a.mxfp4) call.scales = args.output(kQScaleResult).as<uint8_t>();
  call.weight_type = args.input(kWeightsPort).dtype;
  call.weights = args.input(kWeightsPort).as<const uint8_t>();
  call.weights_out = args.output(1).as<float>();
  call.softmax_scale = a.softmax_scale;
  call.head_scale = a.head_scale;
  if (call.rows() > 0) compute(call);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const Attributes a, ReadAttributes(node));
  PF_ASSIGN_OR_RETURN(const std::string storage,
                      node.StringAttribute("fp8_storage", "float8e4m3fn"));
  IndexerQBody body;
  body.mxfp4 = a.mxfp4;
  body.is_plain = a.is_plain;
  body.hadamard = a.hadamard;
  if (storage == "uint8") body.storage = DataType::kUint8;
  body.type = node.input(kIn["q"])->dtype();
  body.table_type = node.input(kIn["cos_sin"])->dtype();
  body.weight_type = node.input(kIn["weights"])->dtype();
  PF_ASSIGN_OR_RETURN(body.heads, NumberOf(node, kIn["q"], 1));
  PF_ASSIGN_OR_RETURN(body.size, NumberOf(node, kIn["q"], 2));
  PF_ASSIGN_OR_RETURN(const int64_t rotated, NumberOf(node, kIn["cos_sin"], 1));
  body.layout = {rotated / 2, a.offset.value_or(body.size - rotated), a.interleaved};
  return body.Text();
}

}  // namespace

OpDef IndexerQRopeQuantDef() {
  using enum DataType;
  return OpDef("pagefuse", "IndexerQRopeQuant", 1)
      .Doc(
          "Rotates R channels of each head of the indexer's query, rounds them to bfloat16, and "
          "quantises the head: fp8 under one power of two, which goes into the head's weight, or "
          "mxfp4 with a scale for 32 channels; or leaves it as numbers, without rounding (none). "
          "weights_out = weights (* query scale) * softmax_scale * head_scale.")
      .Inputs(kIn)
      .Outputs(kOut)
      .Attr("format", std::string("fp8"))
      .OneOf({"fp8", "mxfp4", "none"})
      .RequiredAttr("softmax_scale", "factor of the weights, a float")
      .RequiredAttr("head_scale", "factor of the weights, a float")
      .FlagAttr("interleaved", int64_t{1}, "1: pairs (2i, 2i + 1); 0: pairs (i, i + R/2)")
      .Attr("rotary_offset", std::monostate(), "first rotated channel; D - R if absent")
      .AtLeast(0)
      .FlagAttr(kHadamard, int64_t{0}, kHadamardDoc)
      .Attr("fp8_storage", std::string("float8e4m3fn"), "type of q_out for fp8")
      .OneOf({"float8e4m3fn", "uint8"})
      .Let("unit", "32 if format = mxfp4, else 1")
      .Types("P", {kInt64, kInt32})
      .Types("T", {kBfloat16, kFloat16, kFloat})
      .Types("R", {kFloat, kBfloat16})
      .Types("W", {kBfloat16, kFloat16, kFloat})
      .InferShapes([](ShapeContext& c) { return CheckHadamardSize(c, kQPort); })
      .Validate(Validate)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = Run<IndexerQRopeQuantPlain>})
      .AddKernel({.name = "hwy", .priority = 10, .run = Run<IndexerQRopeQuantHwy>});
}

}  // namespace pagefuse::pagefuse_ops
