// QNormRopeKvInsert: norm and rotation of the query, rotation and insert of the key row, for
// DeepSeek-V4's latent attention. Equals vLLM's
// fused_deepseek_v4_qnorm_rope_kv_rope_quant_insert and its two variants for full caches.
#include "pagefuse/ops/pagefuse/cache/qnorm_rope_kv_insert.h"

#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/checks.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr std::pair<std::string_view, QNormFormat> kFormats[] = {
    {"fp8_ue8m0", QNormFormat::kFp8Ue8m0},
    {"none", QNormFormat::kPlain},
    {"bf16", QNormFormat::kPlain},
    {"fp8", QNormFormat::kFp8},
};

absl::Status CheckPadding(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const QNormFormat format, ParseQNormFormat(c.node()));
  const std::optional<int64_t> heads = c.size("H").constant();
  const std::optional<int64_t> padded = c.size("Hp").constant();
  if (format == QNormFormat::kFp8Ue8m0 || !heads || heads == padded) return absl::OkStatus();
  return c.AttributeError("padded_heads", "expected 0 for a format other than fp8_ue8m0");
}

// Tokens a block: of the shape where that tells.
absl::StatusOr<PagedBytes> ReadPaged(const KernelArgs& args) {
  const TensorArg& cache = args.input(kQnIn["kv_cache"]);
  if (cache.dims.size() == 3) {
    const int64_t row_bytes = cache.dim(2) * BitWidth(cache.dtype) / 8;
    return PagedBytes{cache.dim(0), cache.dim(1), cache.dim(1) * row_bytes};
  }
  PF_ASSIGN_OR_RETURN(const int64_t block_size,
                      args.node->IntAttribute("block_size", kQnBlockSize));
  return PagedBytes{cache.dim(0), block_size, cache.dim(1)};
}

absl::Status Validate(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadPaged(args));
  PF_RETURN_IF_ERROR(CheckSlots(args, kQnIn["slot_mapping"], paged.num_blocks, paged.block_size));
  PF_RETURN_IF_ERROR(
      CheckIndices(args, kQnIn["positions"], args.input(kQnIn["cos_sin"]).dim(0), "positions"));
  PF_ASSIGN_OR_RETURN(const QNormFormat format, ParseQNormFormat(*args.node));
  if (format != QNormFormat::kFp8) return absl::OkStatus();
  PF_RETURN_IF_ERROR(CheckScale(args, kQnIn["kv_scale"]));
  return CheckScale(args, kQnIn["q_scale_inv"]);
}

absl::StatusOr<CacheRows> CacheRowsOf(const KernelArgs& args, const QNormCall& call) {
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadPaged(args));
  const TensorArg& cache = args.output(1);
  if (call.format == QNormFormat::kFp8Ue8m0) {
    return GroupedRows(call.row_format, paged, cache.data);
  }
  return PlainRows(call.size * BitWidth(cache.dtype) / 8, paged, cache.data);
}

absl::StatusOr<QNormCall> MakeCall(const KernelArgs& args) {
  QNormCall call;
  PF_ASSIGN_OR_RETURN(call.format, ParseQNormFormat(*args.node));
  PF_ASSIGN_OR_RETURN(call.epsilon, args.node->FloatAttribute("eps", kQnEpsilon));
  const TensorArg& query = args.input(kQnIn["q"]);
  call.type = query.dtype;
  call.row_type = args.output(1).dtype;
  call.tokens = query.dim(0);
  call.heads = query.dim(1);
  call.size = query.dim(2);
  call.padded_heads = args.output(0).dim(1);
  const TensorArg& table = args.input(kQnIn["cos_sin"]);
  call.table = {table.dtype, table.as<const uint8_t>(), table.dim(1)};
  call.layout = {call.table.pairs(), call.size - table.dim(1), /*interleaved=*/true};
  call.positions = IndicesOf(args.input(kQnIn["positions"]));
  call.query = query.as<const uint8_t>();
  call.kv = args.input(kQnIn["kv"]).as<const uint8_t>();
  call.query_out = args.output(0).as<uint8_t>();
  if (call.format == QNormFormat::kFp8) {
    call.kv_factor = 1.0f / *args.input(kQnIn["kv_scale"]).as<const float>();
    call.query_factor = *args.input(kQnIn["q_scale_inv"]).as<const float>();
  }
  PF_ASSIGN_OR_RETURN(const int64_t group,
                      args.node->IntAttribute("quant_group_size", kQnGroupSize));
  call.row_format = Fp8Ue8m0Row(call.layout.offset, call.table.rotated, group);
  PF_ASSIGN_OR_RETURN(call.rows, CacheRowsOf(args, call));
  call.slots.assign(call.tokens, -1);
  for (const SlotWrite& write : SlotWrites(args.input(kQnIn["slot_mapping"]))) {
    call.slots[write.token] = write.slot;
  }
  return call;
}

template <auto compute>
absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const QNormCall call, MakeCall(args));
  if (call.size > 0) compute(call);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<QNormFormat> ParseQNormFormat(const Node& node) {
  PF_ASSIGN_OR_RETURN(const std::string name, node.StringAttribute("format", "fp8_ue8m0"));
  for (const auto& [known, format] : kFormats) {
    if (name == known) return format;
  }
  return absl::InvalidArgumentError(
      StrCat("expected one of fp8_ue8m0, none, bf16, fp8, got \"", name, "\""));
}

OpDef QNormRopeKvInsertDef() {
  using enum DataType;
  return OpDef("pagefuse", "QNormRopeKvInsert", 1)
      .Doc(
          "Norms each query head (without weight) and rotates its last R channels; rotates the key "
          "row and writes it into its slot of the paged cache: as it is (none), as bfloat16 "
          "(bf16), as codes under one scale (fp8), or rounded to bfloat16, the channels that are "
          "not rotated then in groups under a power of two (fp8_ue8m0). Everything between inputs "
          "and results is float, rounded once. A negative slot is skipped; of two tokens with one "
          "slot the later wins.")
      .Inputs(kQnIn)
      .Outputs(kQnOut)
      .Attr("format", std::string("fp8_ue8m0"))
      .OneOf({"fp8_ue8m0", "none", "bf16", "fp8"})
      .Attr("eps", kQnEpsilon, "of the norm")
      .Attr("block_size", kQnBlockSize, "tokens a block, for fp8_ue8m0")
      .AtLeast(1)
      .Attr("quant_group_size", kQnGroupSize, "channels with one scale, for fp8_ue8m0")
      .AtLeast(1)
      .Attr("padded_heads", int64_t{0}, "heads of q_out, for fp8_ue8m0; 0: H")
      .AtLeast(0)
      .Attr("fp8_storage", std::string("float8e4m3fn"), "type of q_out for fp8")
      .OneOf({"float8e4m3fn", "uint8"})
      .Types("T", {kBfloat16, kFloat, kFloat16})
      .Types("F", {kFloat8E4M3FN, kUint8})
      .Types("I", {kInt64, kInt32})
      .Types("P", {kInt64, kInt32})
      .Types("R", {kFloat, kBfloat16})
      .Let("group", "quant_group_size if format = fp8_ue8m0, else 1")
      .Let("row_bytes", "D + R + (D - R) / quant_group_size + 1 if format = fp8_ue8m0, else 0")
      .Let("Hp", "padded_heads if padded_heads, else H")
      .InferShapes(CheckPadding)
      .Validate(Validate)
      .Decomposition(DecomposeQNormRopeKvInsert)
      .Alias(kQnOut["kv_cache_out"], kQnIn["kv_cache"])
      .AddKernel({.name = "reference", .run = Run<QNormRopeKvInsertPlain>})
      .AddKernel({.name = "hwy", .priority = 10, .run = Run<QNormRopeKvInsertHwy>});
}

}  // namespace pagefuse::pagefuse_ops
