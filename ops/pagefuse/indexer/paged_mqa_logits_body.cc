// SPDX-License-Identifier: Apache-2.0
// PagedMqaLogits in standard ONNX ops. Every size comes from a shape, so that one text fits any
// cache.
#include "pagefuse/ops/pagefuse/indexer/paged_mqa_logits_body.h"

#include <string_view>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/body_writer.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr char kConstants[] = R"(  i_0 = Constant <value_int: int = 0> ()
  i_1 = Constant <value_int: int = 1> ()
  i_4 = Constant <value_int: int = 4> ()
  l_m1 = Constant <value_ints: ints = [-1]> ()
  l_0 = Constant <value_ints: ints = [0]> ()
  l_1 = Constant <value_ints: ints = [1]> ()
  l_2 = Constant <value_ints: ints = [2]> ()
  l_3 = Constant <value_ints: ints = [3]> ()
  l_4 = Constant <value_ints: ints = [4]> ()
)";

// Of q [B, n, H, D].
constexpr char kSequenceSizes[] = R"(  sequences_1 = Shape <start = 0, end = 1> (q)
  queries_1 = Shape <start = 1, end = 2> (q)
  heads_1 = Shape <start = 2, end = 3> (q)
  size_1 = Shape <start = 3, end = 4> (q)
  queries = Squeeze (queries_1)
)";

// Of q [T, H, D].
constexpr char kPackedSizes[] = R"(  sequences_1 = Shape <start = 0, end = 1> (block_tables)
  size_1 = Shape <start = 2, end = 3> (q)
)";

constexpr char kCacheSizes[] = R"(  blocks_1 = Shape <start = 0, end = 1> (kv_cache)
  block_size_1 = Shape <start = 1, end = 2> (kv_cache)
  columns_1 = Shape <start = 1, end = 2> (block_tables)
  size = Squeeze (size_1)
  blocks = Squeeze (blocks_1)
  block_size = Squeeze (block_size_1)
  columns = Squeeze (columns_1)
)";

constexpr char kGivenLength[] = "  length_1 = Reshape (max_model_len, l_1)\n";
constexpr char kTableLength[] = "  length_1 = Mul (columns_1, block_size_1)\n";

// Slots of all positions: int64 [B, L].
constexpr char kSlots[] = R"(  length = Squeeze (length_1)
  key = Range (i_0, length, i_1)
  key_column = Div (key, block_size)
  last_column = Sub (columns, i_1)
  safe_column = Min (key_column, last_column)
  table = Cast <to = 7> (block_tables)
  entries = Gather <axis = 1> (table, safe_column)
  last_block = Sub (blocks, i_1)
  block = Clip (entries, i_0, last_block)
  first_slot = Mul (block, block_size)
  key_offset = Mod (key, block_size)
  slot = Add (first_slot, key_offset)
)";

// Codes and scales out of the blocks: | codes of all tokens | scales of all tokens |.
constexpr char kTakeCodes[] = R"(  token_bytes = Add (size, i_4)
  block_bytes = Mul (block_size, token_bytes)
  flat = Reshape (kv_cache, l_m1)
  code_block = Div (slot, block_size)
  code_token = Mod (slot, block_size)
  code_block_start = Mul (code_block, block_bytes)
  code_token_start = Mul (code_token, size)
  code_start = Add (code_block_start, code_token_start)
  code_start_column = Unsqueeze (code_start, l_m1)
  code_step = Range (i_0, size, i_1)
  code_at = Add (code_start_column, code_step)
  code_bytes = Gather <axis = 0> (flat, code_at)
  codes = BitCast <to = 17> (code_bytes)
  keys = Cast <to = 1> (codes)
  scale_block = Div (slot, block_size)
  scale_token = Mod (slot, block_size)
  scale_block_start = Mul (scale_block, block_bytes)
  scale_token_start = Mul (scale_token, i_4)
  scale_in_part = Add (scale_block_start, scale_token_start)
  scale_base = Mul (block_size, size)
  scale_start = Add (scale_in_part, scale_base)
  scale_start_column = Unsqueeze (scale_start, l_m1)
  scale_step = Range (i_0, i_4, i_1)
  scale_at = Add (scale_start_column, scale_step)
  scale_bytes = Gather <axis = 0> (flat, scale_at)
  byte_0 = Slice (scale_bytes, l_0, l_1, l_m1)
  bits_0 = Cast <to = 12> (byte_0)
)";

// Packed codes and scales out of the blocks: `code_bytes` and `scale_bytes` of all slots.
constexpr char kTakePacked[] = R"(  i_2 = Constant <value_int: int = 2> ()
  i_32 = Constant <value_int: int = 32> ()
  code_count = Div (size, i_2)
  group_count = Div (size, i_32)
  token_bytes = Add (code_count, group_count)
  block_bytes = Mul (block_size, token_bytes)
  flat = Reshape (kv_cache, l_m1)
  code_block = Div (slot, block_size)
  code_token = Mod (slot, block_size)
  block_start = Mul (code_block, block_bytes)
  code_token_start = Mul (code_token, code_count)
  code_start = Add (block_start, code_token_start)
  code_start_column = Unsqueeze (code_start, l_m1)
  code_step = Range (i_0, code_count, i_1)
  code_at = Add (code_start_column, code_step)
  code_bytes = Gather <axis = 0> (flat, code_at)
  scale_token_start = Mul (code_token, group_count)
  all_codes = Mul (block_size, code_count)
  scale_part = Add (block_start, all_codes)
  scale_start = Add (scale_part, scale_token_start)
  scale_start_column = Unsqueeze (scale_start, l_m1)
  scale_step = Range (i_0, group_count, i_1)
  scale_at = Add (scale_start_column, scale_step)
  scale_bytes = Gather <axis = 0> (flat, scale_at)
)";

// `elements` [.., D/2, 2] under `scales` [.., D/32]: keys in float.
constexpr char kScaleElements[] = R"(  scale_of_group = Unsqueeze (scales, l_m1)
  lead_2 = Shape <start = 0, end = 2> (slot)
  group_count_1 = Reshape (group_count, l_1)
  i_32_1 = Reshape (i_32, l_1)
  group_shape = Concat <axis = 0> (lead_2, group_count_1, i_32_1)
  groups = Reshape (elements, group_shape)
  scaled_groups = Mul (groups, scale_of_group)
  key_shape = Concat <axis = 0> (lead_2, size_1)
  keys = Reshape (scaled_groups, key_shape)
)";

// Byte `i` of a little-endian float joins the bits below it.
std::string JoinByte(int i) {
  const std::string n = StrCat(i);
  return StrCat("  byte_", n, " = Slice (scale_bytes, l_", n, ", l_", i + 1, ", l_m1)\n  wide_", n,
                " = Cast <to = 12> (byte_", n, ")\n  i_", 8 * i,
                " = Constant <value_int: int = ", 8 * i, "> ()\n  shift_", n,
                " = Cast <to = 12> (i_", 8 * i, ")\n  high_", n,
                " = BitShift <direction = \"LEFT\"> (wide_", n, ", shift_", n, ")\n  bits_", n,
                " = BitwiseOr (bits_", i - 1, ", high_", n, ")\n");
}

constexpr char kScaleOfSequence[] = R"(  scale_column = BitCast <to = 1> (bits_3)
  scale_shape = Concat <axis = 0> (sequences_1, l_1, length_1)
  scale_across = Reshape (scale_column, scale_shape)
)";

// The rows of a cache of numbers.
constexpr char kTakeRows[] = R"(  row_shape = Concat <axis = 0> (l_m1, size_1)
  flat = Reshape (kv_cache, row_shape)
)";

// rectified [B, n, H, L], logits [B * n, L].
constexpr char kSequenceDots[] = R"(  query_heads = Mul (queries_1, heads_1)
  query_shape = Concat <axis = 0> (sequences_1, query_heads, size_1)
  query_rows = Reshape (queries_float, query_shape)
  keys_across = Transpose <perm = [0, 2, 1]> (keys)
  dots = MatMul (query_rows, keys_across)
)";
constexpr char kSequenceSums[] = R"(  lead = Shape <start = 0, end = 3> (q)
  dots_shape = Concat <axis = 0> (lead, length_1)
  by_head = Reshape (rectified, dots_shape)
  weight_shape = Concat <axis = 0> (lead, l_1)
  weight_column = Reshape (weights, weight_shape)
  weighted = Mul (by_head, weight_column)
  sums = ReduceSum <keepdims = 0> (weighted, l_2)
  lens = Cast <to = 7> (context_lens)
  queries_before = Sub (queries, i_1)
  first_seen = Sub (lens, queries_before)
  first_seen_column = Unsqueeze (first_seen, l_1)
  query_step = Range (i_0, queries, i_1)
  tokens_seen = Add (first_seen_column, query_step)
)";
constexpr char kSequenceEnd[] = R"(  seen_column = Unsqueeze (seen, l_2)
  inside = Less (key, seen_column)
  f_0 = Constant <value_float: float = 0.0> ()
  neg_inf = Log (f_0)
  masked = Where (inside, sums, neg_inf)
  rows_1 = Mul (sequences_1, queries_1)
  logits_shape = Concat <axis = 0> (rows_1, length_1)
  logits = Reshape (masked, logits_shape)
)";

// `seq` [T]: the sequence of each token; tokens_seen [T]: the tokens up to it.
constexpr char kOwners[] = R"(  starts = Cast <to = 7> (query_start_loc)
  l_max = Constant <value_ints: ints = [2147483647]> ()
  ends = Slice (starts, l_1, l_max, l_0)
  tokens_1 = Shape <start = 0, end = 1> (q)
  tokens = Squeeze (tokens_1)
  token = Range (i_0, tokens, i_1)
  token_column = Unsqueeze (token, l_1)
  end_row = Unsqueeze (ends, l_0)
  past = GreaterOrEqual (token_column, end_row)
  past_count = Cast <to = 7> (past)
  seq = ReduceSum <keepdims = 0> (past_count, l_1)
  lens = Cast <to = 7> (context_lens)
  len = Gather <axis = 0> (lens, seq)
  end = Gather <axis = 0> (ends, seq)
  to_end = Sub (end, token)
  pos = Sub (len, to_end)
  tokens_seen = Add (pos, i_1)
  keys_of_token = Gather <axis = 0> (keys, seq)
  keys_across = Transpose <perm = [0, 2, 1]> (keys_of_token)
  dots = MatMul (queries_float, keys_across)
)";
constexpr char kPackedSums[] = R"(  weight_column = Unsqueeze (weights, l_2)
  weighted = Mul (rectified, weight_column)
  sums = ReduceSum <keepdims = 0> (weighted, l_1)
)";
constexpr char kPackedEnd[] = R"(  seen_column = Unsqueeze (seen, l_1)
  inside = Less (key, seen_column)
  f_0 = Constant <value_float: float = 0.0> ()
  neg_inf = Log (f_0)
  logits = Where (inside, sums, neg_inf)
)";

std::string AsFloat(DataType type, std::string_view from, std::string_view to) {
  if (type == DataType::kFloat) return StrCat("  ", to, " = Identity (", from, ")\n");
  if (type != DataType::kUint8) return StrCat("  ", to, " = Cast <to = 1> (", from, ")\n");
  return StrCat("  ", to, "_codes = BitCast <to = 17> (", from, ")\n  ", to, " = Cast <to = 1> (",
                to, "_codes)\n");
}

std::string PackedKeys() {
  BodyWriter w;
  w.Set("elements", StrCat("Identity (", WriteE2m1Elements(w, "code_bytes"), ")"));
  w.Set("scales", StrCat("Identity (", WriteUe8m0Scales(w, "scale_bytes"), ")"));
  return StrCat(kTakePacked, WithPrefix(w.lines(), "of_", {"elements", "scales"}), kScaleElements);
}

std::string Keys(const PagedMqaLogitsBody& body) {
  if (body.packed_keys) return PackedKeys();
  if (body.key_type == DataType::kUint8) {
    return StrCat(kTakeCodes, JoinByte(1), JoinByte(2), JoinByte(3), kScaleOfSequence);
  }
  return StrCat(kTakeRows, "  stored = Gather <axis = 0> (flat, slot)\n",
                AsFloat(body.key_type, "stored", "keys"));
}

// `rectified` of `dots`.
std::string Rectified(const PagedMqaLogitsBody& body) {
  if (body.key_type != DataType::kUint8 || body.packed_keys) return "  rectified = Relu (dots)\n";
  std::string text;
  if (body.packed) text = "  scale_of_token = Gather <axis = 0> (scale_across, seq)\n";
  return StrCat(text, "  scaled = Mul (dots, ", body.packed ? "scale_of_token" : "scale_across",
                ")\n  rectified = Relu (scaled)\n");
}

std::string Seen(const PagedMqaLogitsBody& body) {
  if (body.ratio == 1) return "  seen = Identity (tokens_seen)\n";
  return StrCat("  ratio = Constant <value_int: int = ", body.ratio,
                "> ()\n  seen = Div (tokens_seen, ratio)\n");
}

}  // namespace

std::string PagedMqaLogitsBody::Inputs() const {
  return StrCat("q, kv_cache, weights, context_lens, block_tables",
                has_length ? ", max_model_len" : "", packed ? ", query_start_loc" : "");
}

std::string PagedMqaLogitsBody::Lines() const {
  return StrCat(kConstants, packed ? kPackedSizes : kSequenceSizes, kCacheSizes,
                has_length ? kGivenLength : kTableLength, kSlots, Keys(*this),
                AsFloat(query_type, "q", "queries_float"), packed ? kOwners : kSequenceDots,
                Rectified(*this), packed ? kPackedSums : kSequenceSums, Seen(*this),
                packed ? kPackedEnd : kSequenceEnd);
}

std::string PagedMqaLogitsBody::Text() const {
  return StrCat("PagedMqaLogits (", Inputs(), ") => (logits) {\n", Lines(), "}\n");
}

}  // namespace pagefuse::pagefuse_ops
