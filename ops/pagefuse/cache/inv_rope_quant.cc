// SPDX-License-Identifier: Apache-2.0
// InvRopeQuant: undoes the rotation of the attention output and quantises it in groups for the
// grouped output projection. Equals vLLM's fused_inv_rope_fp8_quant.
#include "pagefuse/ops/kernels/inserts/inv_rope_quant.h"

#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/rotated_rows.h"
#include "pagefuse/ops/pagefuse/run_call.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"o", "T",
     "[T, H, D], H % n_groups = 0, D % quant_group_size = 0, scales * quant_group_size = D"},
    PortSpec("positions", "P", "[T]").Metadata(),
    PortSpec("cos_sin", "R", "[P, R], R % 2 = 0, R <= D: R/2 cosines, then R/2 sines").Metadata(),
});
constexpr Ports kOut({
    {"o_fp8", "fp8_storage", "[T, n_groups, H/n_groups * D]"},
    {"o_scale", "int32 if scale_format = ue8m0_int32, else float",
     "[T, n_groups, H/n_groups] if scale_format = ue8m0_int32, "
     "else [T, n_groups, H/n_groups * scales]"},
});

constexpr RotationPorts kRotation = RotationPortsOf(kIn, "o");
constexpr int64_t kGroup = 128;
constexpr char kFloatScales[] = "float32";
constexpr char kPackedScales[] = "ue8m0_int32";
constexpr int64_t kPackedGroups = 4;

absl::Status Validate(const KernelArgs& args) { return CheckPositions(args, kRotation); }

absl::StatusOr<InvRopeCall> MakeCall(const KernelArgs& args) {
  InvRopeCall call;
  ReadRows(args, kRotation, call);
  PF_ASSIGN_OR_RETURN(call.group, args.node->IntAttribute("quant_group_size", kGroup));
  // Four bytes of UE8M0 are the packed int32, low byte first.
  const bool packed = args.output(1).dtype == DataType::kInt32;
  call.format = {GroupCodes::kE4M3, packed ? GroupScale::kUe8m0 : GroupScale::kPowerOfTwo,
                 kOutputScaleFloor};
  call.codes = args.output(0).as<uint8_t>();
  call.scales = args.output(1).as<uint8_t>();
  return call;
}

// Four exponents a head as the bytes of one int32, low byte first.
std::string PackScales(BodyWriter& w, const std::string& exponent, int64_t heads) {
  const std::string bytes =
      w.Reshape(w.Cast(w.Call("Add", {exponent, w.Float(127)}), DataType::kUint32),
                {-1, heads, kPackedGroups});
  std::string word;
  for (int64_t i = 0; i < kPackedGroups; ++i) {
    std::string byte = w.Slice(bytes, i, i + 1, -1);
    if (i > 0) {
      const std::string shift = w.Cast(w.Int(8 * i), DataType::kUint32);
      byte = w.Call("BitShift <direction = \"LEFT\">", {byte, shift});
    }
    word = i == 0 ? byte : w.Call("BitwiseOr", {word, byte});
  }
  return w.BitCast(word, DataType::kInt32);
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t heads, NumberOf(node, kIn["o"], 1));
  PF_ASSIGN_OR_RETURN(const int64_t size, NumberOf(node, kIn["o"], 2));
  PF_ASSIGN_OR_RETURN(const int64_t rotated, NumberOf(node, kIn["cos_sin"], 1));
  PF_ASSIGN_OR_RETURN(const int64_t n_groups, node.IntAttribute("n_groups", 1));
  PF_ASSIGN_OR_RETURN(const int64_t group, node.IntAttribute("quant_group_size", kGroup));
  PF_ASSIGN_OR_RETURN(const std::string scales, node.StringAttribute("scale_format", kFloatScales));
  PF_ASSIGN_OR_RETURN(const std::string storage,
                      node.StringAttribute("fp8_storage", "float8e4m3fn"));
  BodyWriter w;
  const std::string x = w.CastFrom("o", node.input(kIn["o"])->dtype(), DataType::kFloat);
  const CosSinText table =
      WriteCosSin(w, "cos_sin", node.input(kIn["cos_sin"])->dtype(), "positions");
  const RopeLayout layout = {rotated / 2, size - rotated, /*interleaved=*/true};
  const std::string row = WriteRope(w, x, table, {layout, size, heads, RopeDirection::kInverse});
  const GroupTextOptions options = {
      .format = {GroupCodes::kE4M3, GroupScale::kPowerOfTwo, kOutputScaleFloor},
      .lead = {-1, heads},
      .size = size,
      .group = group};
  const GroupText groups = WriteGroups(w, row, options);
  const int64_t group_heads = heads / n_groups;
  std::string codes = groups.codes;
  if (storage == "uint8") codes = w.BitCast(codes, DataType::kUint8);
  w.Set("o_fp8", StrCat("Reshape (", codes, ", ", w.Ints({-1, n_groups, group_heads * size}), ")"));
  const bool packed = scales == kPackedScales;
  const int64_t count = group_heads * (packed ? 1 : size / group);
  const std::string scale = packed ? PackScales(w, groups.exponent, heads) : groups.scale;
  w.Set("o_scale", StrCat("Reshape (", scale, ", ", w.Ints({-1, n_groups, count}), ")"));
  return w.Function("InvRopeQuant", "o, positions, cos_sin", "o_fp8, o_scale");
}

}  // namespace

OpDef InvRopeQuantDef() {
  using enum DataType;
  return OpDef("pagefuse", "InvRopeQuant", 1)
      .Doc(
          "Undoes the rotation of the last R channels of each head and quantises groups of "
          "channels to float8e4m3fn under power-of-two scales; heads are laid out in n_groups rows "
          "a token.")
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("n_groups", "groups of heads")
      .AtLeast(1)
      .Attr("quant_group_size", kGroup, "channels with one scale")
      .AtLeast(1)
      .Attr("scale_format", std::string(kFloatScales),
            "ue8m0_int32: four exponent bytes a head in one int32")
      .OneOf({kFloatScales, kPackedScales})
      .Attr("fp8_storage", std::string("float8e4m3fn"), "type of o_fp8")
      .OneOf({"float8e4m3fn", "uint8"})
      .Let("scales", "4 if scale_format = ue8m0_int32, else D / quant_group_size")
      .Types("T", {kBfloat16, kFloat16, kFloat})
      .Types("P", {kInt64, kInt32})
      .Types("R", {kFloat, kBfloat16})
      .Validate(Validate)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = RunCall<MakeCall, InvRopeQuantPlain>})
      .AddKernel({.name = "hwy", .priority = 10, .run = RunCall<MakeCall, InvRopeQuantHwy>});
}

}  // namespace pagefuse::pagefuse_ops
