// SPDX-License-Identifier: Apache-2.0
// RopeCacheInsert: per-head RMS norm of query and key (optional), RoPE, and the insert of key and
// value into the paged cache, in one pass over the step's tokens. By definition the composition of
// RMSNormalization, RotaryEmbedding and PagedCacheInsert, computed in float and rounded once.
#include "pagefuse/ops/kernels/inserts/rope_cache_insert.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/pagefuse/cache/cache_insert_body.h"
#include "pagefuse/ops/pagefuse/cache/insert_op.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"query", "T", "[T, Hq, D], R % 2 = 0, R + rotary_offset <= D"},
    {"key", "T", "[T', Hk, D], T' >= T"},
    {"value", "T", "[T', Hk, Dv]"},
    PortSpec("key_cache", "C", "[NB, BS, Hk, D]").InBlocks(),
    PortSpec("value_cache", "C", "[NB, BS, Hk, Dv]").InBlocks(),
    PortSpec("slot_mapping", "I", "[T]").Metadata(),
    PortSpec("positions", "P", "[T]").Optional().Metadata(),
    PortSpec("cos", "R", "[P, R/2] if positions, else [T, R/2]").Metadata(),
    PortSpec("sin", "R", "as cos").Metadata(),
    PortSpec("q_norm_weight", "W", "[D]").RequiredIf("k_norm_weight"),
    PortSpec("k_norm_weight", "W", "[D]").RequiredIf("q_norm_weight"),
    PortSpec("k_scale", "float", "[], [1] or [Hk]").Optional(),
    PortSpec("v_scale", "float", "[], [1] or [Hk]").Optional(),
    PortSpec("k_scale_cache", "float", "[NB, BS, Hk]").InBlocks().Optional(),
    PortSpec("v_scale_cache", "float", "[NB, BS, Hk]").InBlocks().Optional(),
});
constexpr Ports kOut({
    {"query_out", "T", "[T, Hq, D]"},
    {"key_cache_out", "C", "as key_cache"},
    {"value_cache_out", "C", "as value_cache"},
    PortSpec("k_scale_cache_out", "float", "as k_scale_cache").Optional(),
    PortSpec("v_scale_cache_out", "float", "as v_scale_cache").Optional(),
});
constexpr CacheInsertPorts kPorts = CacheInsertPortsOf(kIn, kOut);
constexpr float kEpsilon = 1e-6f;

absl::Status CheckFormat(ShapeContext& c) { return CheckCacheInsert(c, kPorts); }

absl::Status Validate(const KernelArgs& args) {
  PF_RETURN_IF_ERROR(ValidateCacheInsert(args, kPorts));
  if (!args.input(kIn["positions"]).present()) return absl::OkStatus();
  return CheckIndices(args, kIn["positions"], args.input(kIn["cos"]).dim(0), "positions");
}

absl::StatusOr<RopeCall> MakeCall(const KernelArgs& args) {
  RopeCall call;
  const TensorArg& query = args.input(kIn["query"]);
  const TensorArg& cos = args.input(kIn["cos"]);
  call.type = query.dtype;
  call.tokens = query.dim(0);
  call.heads = query.dim(1);
  call.size = query.dim(2);
  call.query = query.as<const uint8_t>();
  call.query_out = args.output(0).as<uint8_t>();
  call.positions = IndicesOf(args.input(kIn["positions"]));
  call.table_type = cos.dtype;
  call.cos = cos.as<const uint8_t>();
  call.sin = args.input(kIn["sin"]).as<const uint8_t>();
  call.layout.pairs = cos.dim(1);
  PF_ASSIGN_OR_RETURN(call.layout.offset, args.node->IntAttribute("rotary_offset", 0));
  PF_ASSIGN_OR_RETURN(const int64_t interleaved, args.node->IntAttribute("interleaved", 0));
  call.layout.interleaved = interleaved == 1;
  PF_ASSIGN_OR_RETURN(call.epsilon, args.node->FloatAttribute("epsilon", kEpsilon));
  PF_ASSIGN_OR_RETURN(call.q_norm, onnx_ops::DecodedFloats(args.input(kIn["q_norm_weight"])));
  PF_ASSIGN_OR_RETURN(call.k_norm, onnx_ops::DecodedFloats(args.input(kIn["k_norm_weight"])));
  PF_ASSIGN_OR_RETURN(call.sides, MakeCacheSides(args, kPorts));
  call.slots = SlotsOfTokens(call.sides.writes, call.tokens);
  return call;
}

// What decides the nodes before the insert.
struct RopeBody {
  InsertBodies insert;
  DataType type = DataType::kFloat;         // of query, key and value
  DataType table_type = DataType::kFloat;   // of cos and sin
  DataType weight_type = DataType::kFloat;  // of the norm weights
  DataType position_type = DataType::kInt64;
  bool norm = false;
  bool positions = true;
  int64_t offset = 0;
  // Rotated channels, where they are not all from `offset` on.
  bool partial = false;
};

// A node `name = Cast <to = 1> (value)` unless the type is float; returns the name of the float
// value.
std::string CastToFloat(const std::string& value, DataType type, std::string& text) {
  if (type == DataType::kFloat) return value;
  absl::StrAppend(&text, "  ", value, "_float = Cast <to = 1> (", value, ")\n");
  return absl::StrCat(value, "_float");
}

// Tables as RotaryEmbedding wants them where each token is a batch of its own: rows by position [P,
// R/2] and positions [T, 1], or one row a token [T, 1, R/2].
std::string TableNodes(const RopeBody& body, std::string& tables) {
  std::string text;
  const std::string cos = CastToFloat("cos", body.table_type, text);
  const std::string sin = CastToFloat("sin", body.table_type, text);
  absl::StrAppend(&text, "  token_axis = Constant <value_ints: ints = [1]> ()\n");
  if (!body.positions) {
    absl::StrAppend(&text, "  cos_rows = Unsqueeze (", cos, ", token_axis)\n",
                    "  sin_rows = Unsqueeze (", sin, ", token_axis)\n");
    tables = "cos_rows, sin_rows";
    return text;
  }
  std::string positions = "positions";
  if (body.position_type != DataType::kInt64) {
    absl::StrAppend(&text, "  positions_long = Cast <to = 7> (positions)\n");
    positions = "positions_long";
  }
  absl::StrAppend(&text, "  position_ids = Unsqueeze (", positions, ", token_axis)\n");
  tables = absl::StrCat(cos, ", ", sin, ", position_ids");
  return text;
}

// Norm and rotation of `source` [T, H, D]; defines `<p>_rotated` as float.
std::string RotateNodes(const RopeBody& body, const std::string& p, const std::string& source,
                        const std::string& tables) {
  std::string text;
  std::string x = CastToFloat(source, body.type, text);
  if (body.norm) {
    const std::string weight = CastToFloat(absl::StrCat(p, "_norm_weight"), body.weight_type, text);
    absl::StrAppend(&text, "  ", p, "_normed = RMSNormalization <axis = -1, epsilon = @epsilon> (",
                    x, ", ", weight, ")\n");
    x = absl::StrCat(p, "_normed");
  }
  // [T, H, 1, D]: a sequence of one token for each of T batches.
  absl::StrAppend(&text, "  ", p, "_4d = Unsqueeze (", x, ", sequence_axis)\n");
  const std::string attributes =
      body.partial ? "interleaved = @interleaved, rotary_embedding_dim = @rotary_embedding_dim"
                   : "interleaved = @interleaved";
  std::string rotary_in = absl::StrCat(p, "_4d");
  if (body.offset > 0) {
    absl::StrAppend(&text, absl::Substitute(
                               "  $0_start = Constant <value_ints: ints = [0]> ()\n"
                               "  $0_offset = Constant <value_ints: ints = [$1]> ()\n"
                               "  $0_end = Constant <value_ints: ints = [9223372036854775807]> ()\n"
                               "  $0_last = Constant <value_ints: ints = [3]> ()\n"
                               "  $0_front = Slice ($0_4d, $0_start, $0_offset, $0_last)\n"
                               "  $0_tail = Slice ($0_4d, $0_offset, $0_end, $0_last)\n",
                               p, body.offset));
    rotary_in = absl::StrCat(p, "_tail");
  }
  absl::StrAppend(&text, "  ", p, "_rope = RotaryEmbedding <", attributes, "> (", rotary_in, ", ",
                  tables, ")\n");
  std::string rotated = absl::StrCat(p, "_rope");
  if (body.offset > 0) {
    absl::StrAppend(&text,
                    absl::Substitute("  $0_whole = Concat <axis = 3> ($0_front, $0_rope)\n", p));
    rotated = absl::StrCat(p, "_whole");
  }
  absl::StrAppend(&text, "  ", p, "_rotated = Squeeze (", rotated, ", sequence_axis)\n");
  return text;
}

// The first T of T' rows of `source`: those that have a slot and a position.
std::string TrimNodes(const std::string& source) {
  return absl::Substitute(
      "  $0_begin = Constant <value_ints: ints = [0]> ()\n"
      "  $0_count = Shape <start = 0, end = 1> (query)\n"
      "  $0_trimmed = Slice ($0, $0_begin, $0_count, $0_begin)\n",
      source);
}

std::string BodyText(const RopeBody& body, bool trim) {
  const CacheFormat& format = body.insert.key.format;
  std::string text =
      absl::StrCat("RopeCacheInsert (query, key, value, key_cache, value_cache, slot_mapping",
                   body.positions ? ", positions" : "", ", cos, sin",
                   body.norm ? ", q_norm_weight, k_norm_weight" : "",
                   InsertSignature(format, format.has_tensor_scale(), "query_out, "));
  std::string tables;
  text += TableNodes(body, tables);
  text += "  sequence_axis = Constant <value_ints: ints = [2]> ()\n";
  text += RotateNodes(body, "q", "query", tables);
  absl::StrAppend(&text, body.type == DataType::kFloat
                             ? "  query_out = Identity (q_rotated)\n"
                             : absl::StrCat("  query_out = Cast <to = ",
                                            static_cast<int>(body.type), "> (q_rotated)\n"));
  if (trim) absl::StrAppend(&text, TrimNodes("key"));
  absl::StrAppend(&text, RotateNodes(body, "k", trim ? "key_trimmed" : "key", tables), SlotNodes());
  InsertBody key = body.insert.key;
  key.source_type = DataType::kFloat;
  absl::StrAppend(&text, KeyInsertNodes(key, "kc", "k_rotated"),
                  ValueInsertNodes(body.insert.value, "vc", "value"), "}\n");
  return text;
}

DataType TypeOf(const Node& node, int input, DataType otherwise) {
  return node.input(input) == nullptr ? otherwise : node.input(input)->dtype();
}

std::optional<int64_t> Rows(const Value& value) {
  return value.shape() && value.shape()->rank() > 0 ? (*value.shape())[0].constant() : std::nullopt;
}

// RMSNormalization (with norm weights), RotaryEmbedding and the nodes of PagedCacheInsert, in
// float.
absl::StatusOr<std::string> Decompose(const Node& node) {
  RopeBody body;
  PF_ASSIGN_OR_RETURN(body.insert, ReadInsertBodies(node, kPorts));
  PF_ASSIGN_OR_RETURN(body.offset, node.IntAttribute("rotary_offset", 0));
  PF_ASSIGN_OR_RETURN(const int64_t rotary_dim, node.IntAttribute("rotary_embedding_dim", 0));
  body.partial = rotary_dim != 0;
  body.type = TypeOf(node, kIn["query"], DataType::kFloat);
  body.table_type = TypeOf(node, kIn["cos"], DataType::kFloat);
  body.weight_type = TypeOf(node, kIn["q_norm_weight"], DataType::kFloat);
  body.position_type = TypeOf(node, kIn["positions"], DataType::kInt64);
  body.norm = node.input(kIn["q_norm_weight"]) != nullptr;
  body.positions = node.input(kIn["positions"]) != nullptr;
  // Keys past the tokens of the query are dropped; where the counts are the same there is nothing
  // to drop.
  const auto tokens = Rows(*node.input(kIn["query"]));
  const bool trim = tokens != Rows(*node.input(kIn["key"]));
  return BodyText(body, trim);
}

}  // namespace

OpDef RopeCacheInsertDef() {
  using enum DataType;
  OpDef op("pagefuse", "RopeCacheInsert", 1);
  op.Doc(
        "Norms (optional) and rotates query and key, and writes key and value into their slots "
        "of a paged cache. Everything between inputs and results is float, rounded once.")
      .Inputs(kIn)
      .Outputs(kOut)
      .FlagAttr("interleaved", int64_t{0}, "0: channel i pairs with i + R/2; 1: 2i with 2i + 1")
      .Attr("rotary_embedding_dim", int64_t{0}, "the rotated channels; 0: all of D")
      .AtLeast(0)
      .Attr("rotary_offset", int64_t{0}, "first rotated channel")
      .AtLeast(0)
      .Attr("epsilon", kEpsilon, "of the norms")
      .Attr("kv_quant_mode", std::string("none"), KvQuantModeNames(/*with_signs=*/false))
      .Attr("int8_rounding", std::string("half_even"))
      .OneOf({"half_even", "toward_zero"})
      .Types("T", {kFloat, kFloat16, kBfloat16})
      .Types("C", {kFloat, kFloat16, kBfloat16, kFloat8E4M3FN, kInt8, kUint8})
      .Types("P", {kInt64, kInt32})
      .Types("R", {kFloat, kFloat16, kBfloat16})
      .Types("W", {kFloat, kFloat16, kBfloat16})
      .Let("R", "rotary_embedding_dim if rotary_embedding_dim, else D")
      .InferShapes(CheckFormat)
      .Validate(Validate)
      .Decomposition(Decompose)
      .InPlace(kOut["query_out"], kIn["query"]);
  return DeclareInsert(op, RunCall<MakeCall, RopeCacheInsertPlain>,
                       RunCall<MakeCall, RopeCacheInsertHwy>);
}

}  // namespace pagefuse::pagefuse_ops
