// QNormRopeKvInsert in standard ONNX ops, as text.
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/cache/qnorm_rope_kv_insert.h"

namespace pagefuse::pagefuse_ops {
namespace {

// What the text depends on.
struct BodyOptions {
  QNormFormat format = QNormFormat::kFp8Ue8m0;
  DataType type = DataType::kBfloat16;
  DataType cache_type = DataType::kUint8;
  DataType query_type = DataType::kFloat8E4M3FN;  // of q_out, for kFp8
  DataType table_type = DataType::kFloat;
  DataType slot_type = DataType::kInt64;
  int64_t heads = 0;
  int64_t padded_heads = 0;  // 0: heads
  int64_t size = 0;
  int64_t rotated = 0;
  int64_t group = kQnGroupSize;
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
    w.Set("q_out", o.query_type == DataType::kUint8 ? StrCat("BitCast <to = 2> (", codes, ")")
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

// Rows of the cache's type into a cache [blocks, block_size, size].
void WriteDense(BodyWriter& w, const BodyOptions& o, const std::string& rows,
                const std::string& slots) {
  const bool typed_fp8 = o.cache_type == DataType::kFloat8E4M3FN;
  const std::string cache = typed_fp8 ? w.BitCast("kv_cache", DataType::kUint8) : "kv_cache";
  const std::string updated = WriteRowPut(w, cache, rows, slots, o.size);
  const std::string shape = w.Ints({-1, o.paged.block_size, o.size});
  if (!typed_fp8) {
    w.Set("kv_cache_out", StrCat("Reshape (", updated, ", ", shape, ")"));
    return;
  }
  const std::string paged = w.Call("Reshape", {updated, shape});
  w.Set("kv_cache_out", StrCat("BitCast <to = 17> (", paged, ")"));
}

void WriteKv(BodyWriter& w, const BodyOptions& o, const CosSinText& table) {
  w.Comment("key row: rotation");
  const KeptRows kept = WriteKeptRows(w, "slot_mapping", o.slot_type);
  const auto keep = [&](const std::string& rows) {
    return w.Call("Gather <axis = 0>", {rows, kept.keep});
  };
  const std::string x = w.CastFrom(keep("kv"), o.type, DataType::kFloat);
  const std::string rotated = WriteRope(w, x, {keep(table.cos), keep(table.sin)}, o.Rope(0));
  if (o.format == QNormFormat::kFp8) {
    const std::string factor = w.Call("Reciprocal", {w.Call("Squeeze", {"kv_scale"})});
    WriteDense(w, o, w.BitCast(WriteFp8(w, rotated, factor), DataType::kUint8), kept.slots);
    return;
  }
  if (o.format == QNormFormat::kPlain) {
    WriteDense(w, o, w.CastFrom(rotated, DataType::kFloat, o.cache_type), kept.slots);
    return;
  }
  const std::string narrow = w.Cast(rotated, DataType::kBfloat16);
  const GroupedRowFormat format = Fp8Ue8m0Row(o.size - o.rotated, o.rotated, o.group);
  const std::string coded = w.Cast(w.Slice(narrow, 0, format.coded, 1), DataType::kFloat);
  const std::string plain = w.Slice(narrow, format.coded, format.elements(), 1);
  const std::string tail = WriteBytes(w, plain, DataType::kBfloat16, format.plain);
  WriteGroupedPut(w, {.format = format, .paged = o.paged},
                  {.x = coded, .tail = tail, .slots = kept.slots, .cache = "kv_cache"},
                  "kv_cache_out");
}

std::string Body(const BodyOptions& o) {
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

absl::StatusOr<std::string> DecomposeQNormRopeKvInsert(const Node& node) {
  BodyOptions o;
  PF_ASSIGN_OR_RETURN(o.format, ParseQNormFormat(node));
  o.type = node.input(kQnIn["q"])->dtype();
  o.cache_type = node.input(kQnIn["kv_cache"])->dtype();
  o.table_type = node.input(kQnIn["cos_sin"])->dtype();
  o.slot_type = node.input(kQnIn["slot_mapping"])->dtype();
  PF_ASSIGN_OR_RETURN(const std::string storage,
                      node.StringAttribute("fp8_storage", "float8e4m3fn"));
  if (storage == "uint8") o.query_type = DataType::kUint8;
  PF_ASSIGN_OR_RETURN(o.heads, NumberOf(node, kQnIn["q"], 1));
  PF_ASSIGN_OR_RETURN(o.size, NumberOf(node, kQnIn["q"], 2));
  PF_ASSIGN_OR_RETURN(o.rotated, NumberOf(node, kQnIn["cos_sin"], 1));
  PF_ASSIGN_OR_RETURN(o.padded_heads, node.IntAttribute("padded_heads", 0));
  if (o.format == QNormFormat::kFp8Ue8m0) {
    PF_ASSIGN_OR_RETURN(o.paged.block_size, node.IntAttribute("block_size", kQnBlockSize));
    PF_ASSIGN_OR_RETURN(o.paged.block_bytes, NumberOf(node, kQnIn["kv_cache"], 1));
    PF_ASSIGN_OR_RETURN(o.group, node.IntAttribute("quant_group_size", kQnGroupSize));
    return Body(o);
  }
  PF_ASSIGN_OR_RETURN(o.paged.block_size, NumberOf(node, kQnIn["kv_cache"], 1));
  return Body(o);
}

}  // namespace pagefuse::pagefuse_ops
