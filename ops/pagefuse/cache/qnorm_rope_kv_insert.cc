// QNormRopeKvInsert: norm and rotation of the query, rotation and insert of the key row, for
// DeepSeek-V4's latent attention. Equals vLLM's
// fused_deepseek_v4_qnorm_rope_kv_rope_quant_insert and its two variants for full caches.
#include "pagefuse/ops/pagefuse/cache/qnorm_rope_kv_insert.h"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/numeric/convert.h"
#include "pagefuse/ops/pagefuse/checks.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr std::pair<std::string_view, QNormFormat> kFormats[] = {
    {"fp8_ue8m0", QNormFormat::kFp8Ue8m0},
    {"bf16", QNormFormat::kBf16},
    {"fp8", QNormFormat::kFp8},
};

bool IsFp8(DataType type) { return type == DataType::kFloat8E4M3FN || type == DataType::kUint8; }

absl::Status CheckCacheType(const ShapeContext& c, QNormFormat format) {
  const DataType type = c.input_type(kQnCache);
  const bool fits = type == DataType::kUndefined ||
                    (format == QNormFormat::kFp8Ue8m0 && type == DataType::kUint8) ||
                    (format == QNormFormat::kBf16 && type == DataType::kBfloat16) ||
                    (format == QNormFormat::kFp8 && IsFp8(type));
  if (fits) return absl::OkStatus();
  const char* expected = format == QNormFormat::kFp8Ue8m0 ? "uint8"
                         : format == QNormFormat::kBf16   ? "bfloat16"
                                                          : "float8e4m3fn or uint8";
  return c.InputError(
      kQnCache, StrCat("expected type ", expected, " for this format, got ", DataTypeName(type)));
}

absl::Status CheckCache(const ShapeContext& c, QNormFormat format) {
  PF_RETURN_IF_ERROR(CheckCacheType(c, format));
  PF_ASSIGN_OR_RETURN(const int64_t block_size, ReadIntAttribute(c, "block_size", kQnBlockSize, 1));
  const auto size = DimOf(c, kQnQuery, 2);
  if (format != QNormFormat::kFp8Ue8m0) {
    return CheckDims(c, kQnCache, {std::nullopt, std::nullopt, size},
                     StrCat("[NB, BS, ", size ? size->ToString() : "D", "]"));
  }
  const GroupedRowFormat row = Fp8Ue8m0Row();
  PF_RETURN_IF_ERROR(CheckDims(c, kQnQuery, {std::nullopt, std::nullopt, Dim(row.elements())},
                               StrCat("[N, H, ", row.elements(), "]")));
  return CheckBlockBytes(c, kQnCache, block_size, row.TokenBytes());
}

absl::Status CheckScales(const ShapeContext& c, QNormFormat format) {
  if (format != QNormFormat::kFp8) return absl::OkStatus();
  for (const int input : {kQnKvScale, kQnQueryScale}) {
    if (!c.has_input(input)) return c.InputError(input, "is required by format \"fp8\"");
    const Shape* shape = c.input_shape(input);
    if (shape == nullptr || shape->rank() == 0) continue;
    PF_RETURN_IF_ERROR(CheckDims(c, input, {Dim(1)}, "one scale, [] or [1]"));
  }
  return absl::OkStatus();
}

// Heads of q_out: those of q, or padded_heads.
absl::StatusOr<Dim> OutputHeads(ShapeContext& c, QNormFormat format) {
  PF_ASSIGN_OR_RETURN(const int64_t padded, ReadIntAttribute(c, "padded_heads", 0, 0));
  const std::optional<Dim> heads = DimOf(c, kQnQuery, 1);
  if (padded == 0) return heads ? *heads : c.FreshDim();
  const auto count = KnownDim(c, kQnQuery, 1);
  if (count && padded < *count) {
    return c.AttributeError("padded_heads",
                            StrCat("expected at least ", *count, " heads, got ", padded));
  }
  if (format != QNormFormat::kFp8Ue8m0 && count && padded != *count) {
    return c.AttributeError("padded_heads", "expected 0 for a format other than fp8_ue8m0");
  }
  return Dim(padded);
}

absl::Status InferShapes(ShapeContext& c) {
  const absl::StatusOr<QNormFormat> format = ParseQNormFormat(c.node());
  if (!format.ok()) return c.AttributeError("format", StdView(format.status().message()));
  PF_RETURN_IF_ERROR(CheckRank(c, kQnQuery, 3));
  const auto tokens = DimOf(c, kQnQuery, 0);
  const auto size = DimOf(c, kQnQuery, 2);
  PF_RETURN_IF_ERROR(CheckDims(c, kQnKv, {tokens, size}, "a row for each token of \"q\", [N, D]"));
  PF_RETURN_IF_ERROR(CheckCache(c, *format));
  PF_RETURN_IF_ERROR(CheckSlotCount(c, kQnSlots, kQnQuery));
  PF_RETURN_IF_ERROR(CheckDims(c, kQnPositions, {tokens}, "one for each token of \"q\""));
  PF_RETURN_IF_ERROR(CheckCosSin(c, kQnCosSin, size));
  PF_RETURN_IF_ERROR(CheckScales(c, *format));
  PF_ASSIGN_OR_RETURN(const Dim heads, OutputHeads(c, *format));
  PF_ASSIGN_OR_RETURN(const DataType storage, ReadFp8Storage(c));
  const DataType type = *format == QNormFormat::kFp8 ? storage : DataType::kBfloat16;
  c.SetOutput(0, type,
              tokens && size ? std::optional<Shape>(Shape({*tokens, heads, *size})) : std::nullopt);
  SetSameOutput(c, 1, kQnCache);
  return absl::OkStatus();
}

// Tokens a block: of the shape where that tells.
absl::StatusOr<PagedBytes> ReadPaged(const KernelArgs& args) {
  const TensorArg& cache = args.input(kQnCache);
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
  PF_RETURN_IF_ERROR(CheckSlots(args, kQnSlots, paged.num_blocks, paged.block_size));
  PF_RETURN_IF_ERROR(CheckIndices(args, kQnPositions, args.input(kQnCosSin).dim(0), "positions"));
  PF_ASSIGN_OR_RETURN(const QNormFormat format, ParseQNormFormat(*args.node));
  for (const int input : {kQnKvScale, kQnQueryScale}) {
    if (format != QNormFormat::kFp8) break;
    const float scale = *args.input(input).as<const float>();
    if (std::isfinite(scale) && scale > 0) continue;
    return InputValueError(args, input, StrCat("expected a finite positive scale, got ", scale));
  }
  return absl::OkStatus();
}

absl::StatusOr<QNormCall> MakeCall(const KernelArgs& args) {
  QNormCall call;
  PF_ASSIGN_OR_RETURN(call.format, ParseQNormFormat(*args.node));
  PF_ASSIGN_OR_RETURN(call.epsilon, args.node->FloatAttribute("eps", kQnEpsilon));
  const TensorArg& query = args.input(kQnQuery);
  call.tokens = query.dim(0);
  call.heads = query.dim(1);
  call.size = query.dim(2);
  call.padded_heads = args.output(0).dim(1);
  const TensorArg& table = args.input(kQnCosSin);
  call.table = {table.dtype, table.as<const uint8_t>(), table.dim(1)};
  call.layout = {call.table.pairs(), call.size - table.dim(1), /*interleaved=*/true};
  call.positions = args.input(kQnPositions);
  call.query = query.as<const uint8_t>();
  call.kv = args.input(kQnKv).as<const uint8_t>();
  call.query_out = args.output(0).as<uint8_t>();
  if (call.format == QNormFormat::kFp8) {
    call.kv_factor = 1.0f / *args.input(kQnKvScale).as<const float>();
    call.query_factor = *args.input(kQnQueryScale).as<const float>();
  }
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadPaged(args));
  void* cache = args.output(1).data;
  const int64_t row_bytes = call.format == QNormFormat::kBf16 ? 2 * call.size : call.size;
  call.rows = call.format == QNormFormat::kFp8Ue8m0 ? GroupedRows(call.RowFormat(), paged, cache)
                                                    : PlainRows(row_bytes, paged, cache);
  call.slots.assign(call.tokens, -1);
  for (const SlotWrite& write : SlotWrites(args.input(kQnSlots))) {
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

// A row of bfloat16 at `from` to x, rotated to the token's position.
void LoadRotated(const QNormCall& call, int64_t token, const uint8_t* from, bool norm,
                 std::vector<float>& x) {
  // The type is a float type: never an error.
  DecodeToFloat(DataType::kBfloat16, from, call.size, x.data()).IgnoreError();
  if (norm) NormRow(nullptr, call.epsilon, call.size, x.data());
  RotateByTable(call.layout, call.table, IndexAt(call.positions, token), x.data());
}

// x * factor as e4m3fn, or x as bfloat16.
void StoreRow(const QNormCall& call, float factor, const std::vector<float>& x, uint8_t* to) {
  if (call.format != QNormFormat::kFp8) {
    EncodeFromFloat(DataType::kBfloat16, x.data(), call.size, to).IgnoreError();
    return;
  }
  for (int64_t i = 0; i < call.size; ++i) to[i] = EncodeFloat<E4M3FNFormat>(x[i] * factor);
}

}  // namespace

absl::StatusOr<QNormFormat> ParseQNormFormat(const Node& node) {
  PF_ASSIGN_OR_RETURN(const std::string name, node.StringAttribute("format", "fp8_ue8m0"));
  for (const auto& [known, format] : kFormats) {
    if (name == known) return format;
  }
  return absl::InvalidArgumentError(
      StrCat("expected one of fp8_ue8m0, bf16, fp8, got \"", name, "\""));
}

void QNormRopeKvInsertPlain(const QNormCall& call) {
  std::vector<float> x(call.size);
  std::vector<uint8_t> rounded(2 * call.size);
  for (int64_t t = 0; t < call.tokens; ++t) {
    for (int64_t head = 0; head < call.padded_heads; ++head) {
      uint8_t* out = call.query_out + (t * call.padded_heads + head) * call.QueryOutBytes();
      if (head >= call.heads) {
        std::memset(out, 0, call.QueryOutBytes());
        continue;
      }
      LoadRotated(call, t, call.query + (t * call.heads + head) * 2 * call.size, true, x);
      StoreRow(call, call.query_factor, x, out);
    }
    if (call.slots[t] < 0) continue;
    const RowAddress row = call.rows.AtSlot(call.slots[t], 0);
    LoadRotated(call, t, call.kv + t * 2 * call.size, false, x);
    if (call.format != QNormFormat::kFp8Ue8m0) {
      StoreRow(call, call.kv_factor, x, row.data);
      continue;
    }
    // Every element is rounded to bfloat16 before it is quantised or copied.
    const GroupedRowFormat format = call.RowFormat();
    EncodeFromFloat(DataType::kBfloat16, x.data(), call.size, rounded.data()).IgnoreError();
    DecodeToFloat(DataType::kBfloat16, rounded.data(), call.size, x.data()).IgnoreError();
    EncodeGroupedRow(format, x.data(), rounded.data() + 2 * format.coded, row);
  }
}

OpDef QNormRopeKvInsertDef() {
  using enum DataType;
  const auto required = PortKind::kRequired;
  const auto optional = PortKind::kOptional;
  const auto metadata = PortRole::kMetadata;
  return OpDef("pagefuse", "QNormRopeKvInsert", 1)
      .Doc(
          "Norms each query head (without weight) and rotates its last R channels; rotates the key "
          "row and writes it into its slot of the paged cache. Everything between inputs and "
          "results is float, rounded once. A negative slot is skipped; of two tokens with one slot "
          "the later wins.")
      .Input("q", "bfloat16", "[N, H, D]")
      .Input("kv", "bfloat16", "[N, D]")
      .Input("kv_cache", "C", "[NB, S] for fp8_ue8m0, else [NB, BS, D]")
      .Input("slot_mapping", "I", "[N'], N' <= N", required, metadata)
      .Input("positions", "P", "[N]", required, metadata)
      .Input("cos_sin", "R", "[P, R]: R/2 cosines, then R/2 sines", required, metadata)
      .Input("kv_scale", "float", "[] or [1], for fp8", optional)
      .Input("q_scale_inv", "float", "[] or [1], for fp8", optional)
      .Output("q_out", "Q", "[N, Hp, D]")
      .Output("kv_cache_out", "C", "as kv_cache")
      .Attr("format", std::string("fp8_ue8m0"), "fp8_ue8m0, bf16 or fp8")
      .Attr("eps", kQnEpsilon, "of the norm")
      .Attr("block_size", kQnBlockSize, "tokens a block, for fp8_ue8m0")
      .Attr("padded_heads", int64_t{0}, "Hp, heads of q_out, for fp8_ue8m0; 0: H")
      .Attr("fp8_storage", std::string("float8e4m3fn"),
            "type of q_out for fp8: float8e4m3fn or uint8")
      .Types("C", {kUint8, kBfloat16, kFloat8E4M3FN})
      .Types("I", {kInt64, kInt32})
      .Types("P", {kInt64, kInt32})
      .Types("R", {kFloat, kBfloat16})
      .Types("Q", {kBfloat16, kFloat8E4M3FN, kUint8})
      .InferShapes(InferShapes)
      .Validate(Validate)
      .Decomposition(DecomposeQNormRopeKvInsert)
      .Variants(QNormRopeKvInsertVariants)
      .Alias(1, kQnCache)
      .AddKernel({.name = "reference", .run = Run<QNormRopeKvInsertPlain>})
      .AddKernel({.name = "hwy", .priority = 10, .run = Run<QNormRopeKvInsertHwy>});
}

}  // namespace pagefuse::pagefuse_ops
