#include "pagefuse/ops/pagefuse/cache/rope_cache_insert_body.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/pagefuse/cache/cache_insert_body.h"

namespace pagefuse::pagefuse_ops {
namespace {

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
  const std::string inputs = JoinNames(
      {"query, key, value, key_cache, value_cache, slot_mapping", body.positions ? "positions" : "",
       "cos, sin", body.norm ? "q_norm_weight, k_norm_weight" : "",
       format.has_tensor_scale() ? "k_scale, v_scale" : "",
       format.has_row_scales() ? "k_scale_cache, v_scale_cache" : ""});
  const std::string outputs =
      JoinNames({"query_out, key_cache_out, value_cache_out",
                 format.has_row_scales() ? "k_scale_cache_out, v_scale_cache_out" : ""});
  std::string text = absl::StrCat("RopeCacheInsert (", inputs, ") => (", outputs, ") {\n");
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
  absl::StrAppend(
      &text, InsertNodes(key, {"kc", "k_rotated", "key_cache", "k_scale", "k_scale_cache"}),
      InsertNodes(body.insert.value, {"vc", "value", "value_cache", "v_scale", "v_scale_cache"}),
      "}\n");
  return text;
}

DataType TypeOf(const Node& node, int input, DataType otherwise) {
  return node.input(input) == nullptr ? otherwise : node.input(input)->dtype();
}

std::optional<int64_t> Rows(const Value& value) {
  return value.shape() && value.shape()->rank() > 0 ? (*value.shape())[0].constant() : std::nullopt;
}

}  // namespace

absl::StatusOr<std::string> RopeCacheInsertBody(const Node& node) {
  RopeBody body;
  PF_ASSIGN_OR_RETURN(body.insert, ReadInsertBodies(node, kRopePorts));
  PF_ASSIGN_OR_RETURN(body.offset, node.IntAttribute("rotary_offset", 0));
  PF_ASSIGN_OR_RETURN(const int64_t rotary_dim, node.IntAttribute("rotary_embedding_dim", 0));
  body.partial = rotary_dim != 0;
  body.type = TypeOf(node, kRopeIn["query"], DataType::kFloat);
  body.table_type = TypeOf(node, kRopeIn["cos"], DataType::kFloat);
  body.weight_type = TypeOf(node, kRopeIn["q_norm_weight"], DataType::kFloat);
  body.position_type = TypeOf(node, kRopeIn["positions"], DataType::kInt64);
  body.norm = node.input(kRopeIn["q_norm_weight"]) != nullptr;
  body.positions = node.input(kRopeIn["positions"]) != nullptr;
  // Keys past the tokens of the query are dropped; where the counts are the same there is nothing
  // to drop.
  const auto tokens = Rows(*node.input(kRopeIn["query"]));
  const bool trim = tokens != Rows(*node.input(kRopeIn["key"]));
  return BodyText(body, trim);
}

}  // namespace pagefuse::pagefuse_ops
