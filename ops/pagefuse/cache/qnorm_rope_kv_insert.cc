// SPDX-License-Identifier: Apache-2.0
// QNormRopeKvInsert: norm and rotation of the query, rotation and insert of the key row, for
// DeepSeek-V4's latent attention. Equals vLLM's
// fused_deepseek_v4_qnorm_rope_kv_rope_quant_insert and its two variants for full caches.
#include "pagefuse/ops/pagefuse/cache/qnorm_rope_kv_insert.h"

#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/inserts/qnorm_rope_kv_insert.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/cache/insert_op.h"
#include "pagefuse/ops/pagefuse/rotated_rows.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr const auto& kIn = kQnIn;
constexpr const auto& kOut = kQnOut;
constexpr InsertPorts kPorts = InsertPortsOf(kIn);
constexpr int64_t kGroupSize = 64;
constexpr float kEpsilon = 1e-6f;

constexpr std::pair<std::string_view, QNormFormat> kFormats[] = {
    {"fp8_ue8m0", QNormFormat::kFp8Ue8m0},
    {"none", QNormFormat::kPlain},
    {"bf16", QNormFormat::kPlain},
    {"fp8", QNormFormat::kFp8},
};

// The attribute `format`.
absl::StatusOr<QNormFormat> ParseFormat(const Node& node) {
  PF_ASSIGN_OR_RETURN(const std::string name, node.StringAttribute("format", "fp8_ue8m0"));
  for (const auto& [known, format] : kFormats) {
    if (name == known) return format;
  }
  return absl::InvalidArgumentError(
      StrCat("expected one of fp8_ue8m0, none, bf16, fp8, got \"", name, "\""));
}

absl::Status CheckPadding(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const QNormFormat format, ParseFormat(c.node()));
  const std::optional<int64_t> heads = c.size("H").constant();
  const std::optional<int64_t> padded = c.size("Hp").constant();
  if (format == QNormFormat::kFp8Ue8m0 || !heads || heads == padded) return absl::OkStatus();
  return c.AttributeError("padded_heads", "expected 0 for a format other than fp8_ue8m0");
}

constexpr RotationPorts kRotation = RotationPortsOf(kIn, "q");

absl::Status Validate(const KernelArgs& args) {
  PF_RETURN_IF_ERROR(ValidSlots(kPorts)(args));
  PF_RETURN_IF_ERROR(CheckPositions(args, kRotation));
  PF_ASSIGN_OR_RETURN(const QNormFormat format, ParseFormat(*args.node));
  if (format != QNormFormat::kFp8) return absl::OkStatus();
  PF_RETURN_IF_ERROR(CheckScale(args, kIn["kv_scale"]));
  return CheckScale(args, kIn["q_scale_inv"]);
}

absl::StatusOr<QNormCall> MakeCall(const KernelArgs& args) {
  QNormCall call;
  ReadRows(args, kRotation, call);
  PF_ASSIGN_OR_RETURN(call.format, ParseFormat(*args.node));
  PF_ASSIGN_OR_RETURN(call.epsilon, args.node->FloatAttribute("eps", kEpsilon));
  call.padded_heads = args.output(0).dim(1);
  call.kv = args.input(kIn["kv"]).as<const uint8_t>();
  call.query_out = args.output(0).as<uint8_t>();
  if (call.format == QNormFormat::kFp8) {
    call.kv_factor = 1.0f / *args.input(kIn["kv_scale"]).as<const float>();
    call.query_factor = *args.input(kIn["q_scale_inv"]).as<const float>();
  }
  PF_ASSIGN_OR_RETURN(const int64_t group, args.node->IntAttribute("quant_group_size", kGroupSize));
  call.row_format = Fp8Ue8m0Row(call.layout.offset, call.table.rotated, group);
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadPaged(args, kPorts.cache));
  const TensorArg& cache = args.output(1);
  call.row_type = cache.dtype;
  call.rows = call.format == QNormFormat::kFp8Ue8m0
                  ? GroupedRows(call.row_format, paged, cache.data)
                  : PlainRows(call.size * BitWidth(cache.dtype) / 8, paged, cache.data);
  call.slots = SlotsOfTokens(SlotWrites(args.input(kPorts.slot_mapping)), call.tokens);
  return call;
}

// What the text of the decomposition depends on.
struct BodyOptions {
  QNormFormat format;
  DataType type, cache_type, table_type, slot_type;
  std::string storage;  // of q_out, for kFp8
  int64_t heads, padded_heads, size, rotated, group;
  PagedBytes paged;

  RopeText Rope(int64_t rope_heads) const {
    return {{rotated / 2, size - rotated, /*interleaved=*/true}, size, rope_heads};
  }
};

// x times a factor as e4m3fn.
std::string WriteFp8(BodyWriter& w, const std::string& x, const std::string& factor) {
  const std::string clipped =
      w.Call("Clip", {w.Call("Mul", {x, factor}), w.Float(-kE4M3Max), w.Float(kE4M3Max)});
  return w.Call("Cast <to = 17, saturate = 1>", {clipped});
}

void WriteQuery(BodyWriter& w, const BodyOptions& o, const CosSinText& table) {
  w.Comment("query: norm without weight, rotation");
  const std::string x = w.CastFrom("q", o.type, DataType::kFloat);
  const std::string normed = WriteNorm(w, x, w.FloatAttribute("eps"));
  const std::string rotated = WriteRope(w, normed, table, o.Rope(o.heads));
  if (o.format == QNormFormat::kFp8) {
    const std::string codes = WriteFp8(w, rotated, w.Call("Squeeze", {"q_scale_inv"}));
    w.Set("q_out", o.storage == "uint8" ? StrCat("BitCast <to = 2> (", codes, ")")
                                        : StrCat("Identity (", codes, ")"));
    return;
  }
  if (o.padded_heads <= o.heads) {
    w.Set("q_out", StrCat("Cast <to = ", static_cast<int>(o.type), "> (", rotated, ")"));
    return;
  }
  const std::string narrow = w.CastFrom(rotated, DataType::kFloat, o.type);
  w.Set("q_out",
        StrCat("Pad (", narrow, ", ", w.Ints({0, 0, 0, 0, o.padded_heads - o.heads, 0}), ")"));
}

void WriteKv(BodyWriter& w, const BodyOptions& o, const CosSinText& table) {
  w.Comment("key row: rotation");
  const KeptRows kept = WriteKeptRows(w, "slot_mapping", o.slot_type);
  const auto keep = [&](const std::string& rows) {
    return w.Call("Gather <axis = 0>", {rows, kept.keep});
  };
  const std::string x = w.CastFrom(keep("kv"), o.type, DataType::kFloat);
  const std::string rotated = WriteRope(w, x, {keep(table.cos), keep(table.sin)}, o.Rope(0));
  const RowPut put = {o.cache_type, o.paged.block_size, o.size};
  if (o.format == QNormFormat::kFp8) {
    const std::string factor = w.Call("Reciprocal", {w.Call("Squeeze", {"kv_scale"})});
    return WriteRowPut(w, put, w.BitCast(WriteFp8(w, rotated, factor), DataType::kUint8),
                       kept.slots);
  }
  if (o.format == QNormFormat::kPlain) {
    return WriteRowPut(w, put, w.CastFrom(rotated, DataType::kFloat, o.cache_type), kept.slots);
  }
  const GroupedRowFormat format = Fp8Ue8m0Row(o.size - o.rotated, o.rotated, o.group);
  const std::string narrow = w.Cast(rotated, DataType::kBfloat16);
  WriteGroupedPut(w, {.format = format, .paged = o.paged}, WriteGroupedRows(w, format, narrow),
                  kept.slots);
}

absl::StatusOr<BodyOptions> ReadOptions(const Node& node) {
  BodyOptions o;
  PF_ASSIGN_OR_RETURN(o.format, ParseFormat(node));
  o.type = node.input(kIn["q"])->dtype();
  o.cache_type = node.input(kPorts.cache)->dtype();
  o.table_type = node.input(kIn["cos_sin"])->dtype();
  o.slot_type = node.input(kPorts.slot_mapping)->dtype();
  PF_ASSIGN_OR_RETURN(o.storage, node.StringAttribute("fp8_storage", "float8e4m3fn"));
  PF_ASSIGN_OR_RETURN(o.heads, NumberOf(node, kIn["q"], 1));
  PF_ASSIGN_OR_RETURN(o.size, NumberOf(node, kIn["q"], 2));
  PF_ASSIGN_OR_RETURN(o.rotated, NumberOf(node, kIn["cos_sin"], 1));
  PF_ASSIGN_OR_RETURN(o.padded_heads, node.IntAttribute("padded_heads", 0));
  PF_ASSIGN_OR_RETURN(o.group, node.IntAttribute("quant_group_size", kGroupSize));
  if (o.format == QNormFormat::kFp8Ue8m0) {
    PF_ASSIGN_OR_RETURN(o.paged.block_size, node.IntAttribute("block_size", kTokensPerBlock));
    PF_ASSIGN_OR_RETURN(o.paged.block_bytes, NumberOf(node, kPorts.cache, 1));
  } else {
    PF_ASSIGN_OR_RETURN(o.paged.block_size, NumberOf(node, kPorts.cache, 1));
  }
  return o;
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const BodyOptions o, ReadOptions(node));
  BodyWriter w;
  const CosSinText table = WriteCosSin(w, "cos_sin", o.table_type, "positions");
  WriteQuery(w, o, table);
  WriteKv(w, o, table);
  return w.Function("QNormRopeKvInsert",
                    StrCat("q, kv, kv_cache, slot_mapping, positions, cos_sin",
                           o.format == QNormFormat::kFp8 ? ", kv_scale, q_scale_inv" : ""),
                    "q_out, kv_cache_out");
}

}  // namespace

OpDef QNormRopeKvInsertDef() {
  using enum DataType;
  OpDef op("pagefuse", "QNormRopeKvInsert", 1);
  op.Doc(
        "Norms each query head (without weight) and rotates its last R channels; rotates the key "
        "row and writes it into its slot of the paged cache: as it is (none), as bfloat16 "
        "(bf16), as codes under one scale (fp8), or rounded to bfloat16, the channels that are "
        "not rotated then in groups under a power of two (fp8_ue8m0). Everything between inputs "
        "and results is float, rounded once. A negative slot is skipped; of two tokens with one "
        "slot the later wins.")
      .Inputs(kIn)
      .Outputs(kOut)
      .Attr("format", std::string("fp8_ue8m0"))
      .OneOf({"fp8_ue8m0", "none", "bf16", "fp8"})
      .Attr("eps", kEpsilon, "of the norm")
      .Attr("block_size", kTokensPerBlock, "tokens a block, for fp8_ue8m0")
      .AtLeast(1)
      .Attr("quant_group_size", kGroupSize, "channels with one scale, for fp8_ue8m0")
      .AtLeast(1)
      .Attr("padded_heads", int64_t{0}, "heads of q_out, for fp8_ue8m0; 0: H")
      .AtLeast(0)
      .Attr("fp8_storage", std::string("float8e4m3fn"), "type of q_out for fp8")
      .OneOf({"float8e4m3fn", "uint8"})
      .Types("T", {kBfloat16, kFloat, kFloat16})
      .Types("F", {kFloat8E4M3FN, kUint8})
      .Types("P", {kInt64, kInt32})
      .Types("R", {kFloat, kBfloat16})
      .Let("group", "quant_group_size if format = fp8_ue8m0, else 1")
      .Let("row_bytes", "D + R + (D - R) / quant_group_size + 1 if format = fp8_ue8m0, else 0")
      .Let("Hp", "padded_heads if padded_heads, else H")
      .InferShapes(CheckPadding)
      .Validate(Validate)
      .Decomposition(Decompose);
  return DeclareInsert(op, RunCall<MakeCall, QNormRopeKvInsertPlain>,
                       RunCall<MakeCall, QNormRopeKvInsertHwy>);
}

}  // namespace pagefuse::pagefuse_ops
