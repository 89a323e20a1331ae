// SPDX-License-Identifier: Apache-2.0
// IndexerQRopeQuant: rotates and quantises the indexer's query and folds the scales into the head
// weights. Equals vLLM's fused_indexer_q_rope_quant (DeepSeek-V4; with half-split pairs, V3.2).
#include "pagefuse/ops/kernels/indexer/indexer_q_rope_quant.h"

#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/hadamard_attribute.h"
#include "pagefuse/ops/pagefuse/rotated_rows.h"
#include "pagefuse/ops/pagefuse/run_call.h"
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

constexpr RotationPorts kRotation = RotationPortsOf(kIn, "q");
constexpr int64_t kMxfp4Group = 32;
constexpr char kFloat8[] = "float8e4m3fn";
constexpr char kBytes[] = "uint8";

struct Attributes {
  bool mxfp4 = false;
  bool is_plain = false;
  bool hadamard = false;
  bool interleaved = true;
  std::optional<int64_t> offset;  // of the rotated part; the end of the row without
  float softmax_scale = 0;
  float head_scale = 0;

  // fp8: one power of two a head, kept in the weights. mxfp4: a byte for 32 channels.
  GroupFormat Format() const {
    if (mxfp4) return {GroupCodes::kE2M1, GroupScale::kUe8m0, kMxfp4Floor};
    return {GroupCodes::kE4M3, GroupScale::kPowerOfTwo, kCacheScaleFloor};
  }
  int64_t Group(int64_t size) const { return mxfp4 ? kMxfp4Group : size; }
  RopeLayout Layout(int64_t size, int64_t rotated) const {
    return {rotated / 2, offset.value_or(size - rotated), interleaved};
  }
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

absl::Status Validate(const KernelArgs& args) { return CheckPositions(args, kRotation); }

absl::StatusOr<IndexerQCall> MakeCall(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Attributes a, ReadAttributes(*args.node));
  IndexerQCall call;
  ReadRows(args, kRotation, call);
  call.layout = a.Layout(call.size, call.table.rotated);
  call.is_plain = a.is_plain;
  call.hadamard = a.hadamard;
  call.group = a.Group(call.size);
  call.format = a.Format();
  call.codes = args.output(0).as<uint8_t>();
  if (a.mxfp4) call.scales = args.output(kOut["q_scale"]).as<uint8_t>();
  call.weight_type = args.input(kIn["weights"]).dtype;
  call.weights = args.input(kIn["weights"]).as<const uint8_t>();
  call.weights_out = args.output(1).as<float>();
  call.softmax_scale = a.softmax_scale;
  call.head_scale = a.head_scale;
  return call;
}

// q_out of float queries, and q_scale where it is an output; returns `weight` times a scale that
// is not.
std::string WriteCodes(BodyWriter& w, const GroupTextOptions& options, const std::string& query,
                       const std::string& weight, bool as_bytes) {
  const int64_t heads = options.lead[1], size = options.size;
  const GroupText groups = WriteGroups(w, query, options);
  if (options.format.codes == GroupCodes::kE2M1) {
    w.Set("q_out", StrCat("Reshape (", groups.codes, ", ", w.Ints({-1, heads, size / 2}), ")"));
    const std::string biased =
        w.Cast(w.Call("Add", {groups.exponent, w.Float(127)}), DataType::kUint8);
    w.Set("q_scale",
          StrCat("Reshape (", biased, ", ", w.Ints({-1, heads, size / options.group}), ")"));
    return weight;
  }
  const std::string codes = as_bytes ? w.BitCast(groups.codes, DataType::kUint8) : groups.codes;
  w.Set("q_out", StrCat("Reshape (", codes, ", ", w.Ints({-1, heads, size}), ")"));
  return w.Call("Mul", {weight, w.Reshape(groups.scale, {-1, heads})});
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const Attributes a, ReadAttributes(node));
  PF_ASSIGN_OR_RETURN(const std::string storage, node.StringAttribute("fp8_storage", kFloat8));
  PF_ASSIGN_OR_RETURN(const int64_t heads, NumberOf(node, kIn["q"], 1));
  PF_ASSIGN_OR_RETURN(const int64_t size, NumberOf(node, kIn["q"], 2));
  PF_ASSIGN_OR_RETURN(const int64_t rotated, NumberOf(node, kIn["cos_sin"], 1));
  const DataType type = node.input(kIn["q"])->dtype();
  const RopeLayout layout = a.Layout(size, rotated);
  BodyWriter w;
  const std::string x = w.CastFrom("q", type, DataType::kFloat);
  const CosSinText table =
      WriteCosSin(w, "cos_sin", node.input(kIn["cos_sin"])->dtype(), "positions");
  std::string query = WriteRope(
      w, x, table, {.layout = layout, .size = size, .heads = heads, .round_rotated = !a.is_plain});
  if (a.hadamard) query = WriteHadamardRotation(w, query, {-1, heads, size}, !a.is_plain);
  std::string weight = w.CastFrom("weights", node.input(kIn["weights"])->dtype(), DataType::kFloat);
  if (a.is_plain) {
    w.Set("q_out", StrCat("Cast <to = ", static_cast<int>(type), "> (", query, ")"));
  } else {
    const GroupTextOptions options = {.format = a.Format(),
                                      .lead = {-1, heads},
                                      .size = size,
                                      .group = a.Group(size),
                                      .clip = false};
    weight = WriteCodes(w, options, query, weight, storage == kBytes);
  }
  weight = w.Call("Mul", {weight, w.FloatAttribute("softmax_scale")});
  w.Set("weights_out", StrCat("Mul (", weight, ", ", w.FloatAttribute("head_scale"), ")"));
  return w.Function("IndexerQRopeQuant", "positions, q, cos_sin, weights",
                    a.mxfp4 ? "q_out, weights_out, q_scale" : "q_out, weights_out");
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
      .Attr("fp8_storage", std::string(kFloat8), "type of q_out for fp8")
      .OneOf({kFloat8, kBytes})
      .Let("unit", "32 if format = mxfp4, else 1")
      .Types("P", {kInt64, kInt32})
      .Types("T", {kBfloat16, kFloat16, kFloat})
      .Types("R", {kFloat, kBfloat16})
      .Types("W", {kBfloat16, kFloat16, kFloat})
      .InferShapes([](ShapeContext& c) { return CheckHadamardSize(c, kIn["q"]); })
      .Validate(Validate)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = RunCall<MakeCall, IndexerQRopeQuantPlain>})
      .AddKernel({.name = "hwy", .priority = 10, .run = RunCall<MakeCall, IndexerQRopeQuantHwy>});
}

}  // namespace pagefuse::pagefuse_ops
