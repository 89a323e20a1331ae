// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/attention/paged_attention_body.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/packed_batch_text.h"

namespace pagefuse {
namespace {

// Reads a byte of a uint8 twin as the f8 code that it is.
constexpr std::string_view kBitCastToF8 = "BitCast <to = 17>";

}  // namespace

std::string PagedAttentionBody::Float(std::string_view name, float value) {
  const std::string number = absl::StrFormat("%.9g", value);
  const bool is_whole = number.find_first_of(".en") == std::string::npos;
  return Constant(name, StrCat("value_float: float = ", number, is_whole ? ".0" : ""));
}

void PagedAttentionBody::Positions() {
  Set("f_0", "Constant <value_float: float = 0.0> ()");
  Set("neg_inf", "Log (f_0)");
  pagefuse_ops::WriteTokenPositions(
      w_, "query",
      o_.has_query_start_loc ? pagefuse_ops::TokensOf::kStarts : pagefuse_ops::TokensOf::kOneEach);
}

void PagedAttentionBody::Dims() {
  Set("heads", "Shape <start = 1, end = 2> (query)");
  Set("d", "Shape <start = 2, end = 3> (query)");
  const std::string_view cache = o_.turboquant ? "kv_cache" : "key_cache";
  Set("hk", StrCat("Shape <start = 2, end = 3> (", cache, ")"));
  Set("g", "Div (heads, hk)");
  Set("columns", "Shape <start = 1, end = 2> (block_table)");
  Set("block_size", StrCat("Shape <start = 1, end = 2> (", cache, ")"));
  Set("n", "Mul (columns, block_size)");
  Set("kv_shape", "Concat <axis = 0> (n_tokens1, n, hk, d)");
  Set("q_shape", "Concat <axis = 0> (n_tokens1, hk, g, d)");
  if (o_.has_sink || o_.has_alibi) Set("head_shape", "Concat <axis = 0> (l_1, hk, g, l_1)");
}

// What is multiplied of the elements of a cache, as float: numbers, or codes. `side`: "k" or "v".
std::string PagedAttentionBody::CacheNumbers(std::string_view side, std::string_view cache) {
  std::string x(cache);
  DataType type = format().element;
  if (o_.stored_cache_type != type) x = Add(StrCat(kBitCastToF8, " (", x, ")"));
  if (f8_query()) return Cast(x, type, DataType::kFloat);
  const RowFormat& row = format().row();
  if (!row.decode_text.empty()) {
    w_.Lines(
        absl::StrReplaceAll(AbslView(row.decode_text), {{"$p", std::string(side)},
                                                        {"$x", x},
                                                        {"$scales", StrCat(side, "_scale_cache")},
                                                        {"$scale", StrCat(side, "_scale")}}));
    x = StrCat(side, "_numbers");
    type = DataType::kFloat;
  }
  if (row.operand == RowOperand::kNumber) {
    x = Cast(x, type, o_.compute_type);
    type = o_.compute_type;
  }
  return Cast(x, type, DataType::kFloat);
}

// Rows of each token's sequence, [T, Hk, N, D].
void PagedAttentionBody::Gathered(std::string_view values, std::string_view name) {
  const std::string blocks = Add(StrCat("Gather <axis = 0> (", values, ", rows)"));
  const std::string tokens = Add(StrCat("Reshape (", blocks, ", kv_shape)"));
  Set(name, StrCat("Transpose <perm = [0, 2, 1, 3]> (", tokens, ")"));
}

// Scales of each token's sequence, [T, Hk, 1, N].
void PagedAttentionBody::ScaleRows(std::string_view cache, std::string_view name) {
  const std::string blocks = Add(StrCat("Gather <axis = 0> (", cache, ", rows)"));
  const std::string shape = Add("Concat <axis = 0> (n_tokens1, n, hk)");
  const std::string tokens = Add(StrCat("Reshape (", blocks, ", ", shape, ")"));
  const std::string heads = Add(StrCat("Transpose <perm = [0, 2, 1]> (", tokens, ")"));
  Set(name, StrCat("Unsqueeze (", heads, ", ", Ints({2}), ")"));
}

void PagedAttentionBody::KeysAndValues() {
  w_.Comment("the keys and values of each token's sequence");
  if (o_.turboquant) {
    Set("slot_size", "Shape <start = 3> (kv_cache)");
    const std::string blocks = Add("Gather <axis = 0> (kv_cache, rows)");
    const std::string shape = Add("Concat <axis = 0> (n_tokens1, n, hk, slot_size)");
    Set("slots", StrCat("Reshape (", blocks, ", ", shape, ")"));
    WriteTurboQuantTables(*o_.turboquant, w_);
    WriteTurboQuantRows(*o_.turboquant, w_);
    Set("k", "Transpose <perm = [0, 2, 1, 3]> (k_rows)");
    Set("v", "Transpose <perm = [0, 2, 1, 3]> (v_rows)");
    return;
  }
  if (transforms()) WriteHadamard(w_);
  Gathered(CacheNumbers("k", "key_cache"), "k");
  if (codes()) ScaleRows("k_scale_cache", "ks");
  Gathered(CacheNumbers("v", "value_cache"), "v");
  if (codes()) ScaleRows("v_scale_cache", "vs");
}

std::string PagedAttentionBody::Query() {
  std::string x = "query";
  if (f8_query() && o_.query_type == DataType::kUint8) {
    x = Add(StrCat(kBitCastToF8, " (", x, ")"));
  }
  x = Cast(x, o_.compute_type, DataType::kFloat);
  if (o_.turboquant && o_.turboquant->has_rotated_keys()) {
    const std::string inverse = Add("Transpose <perm = [1, 0]> (rotation)");
    x = Add(StrCat("MatMul (", x, ", ", inverse, ")"));
  }
  if (transforms()) {
    const std::string signed_x = Add(StrCat("Mul (", x, ", rht_signs)"));
    x = Add(StrCat("MatMul (", signed_x, ", hadamard)"));
    x = Cast(Cast(x, DataType::kFloat, o_.compute_type), o_.compute_type, DataType::kFloat);
  }
  return Add(StrCat("Reshape (", x, ", q_shape)"));
}

// Scaled and capped scores, [T, Hk, G, N].
std::string PagedAttentionBody::Scores() {
  w_.Comment("scores [T, Hk, G, N]");
  const std::string q = Query();
  const std::string kt = Add("Transpose <perm = [0, 1, 3, 2]> (k)");
  std::string s = Add(StrCat("MatMul (", q, ", ", kt, ")"));
  std::string scale;
  if (o_.attributes.scale) {
    scale = Float("scale", *o_.attributes.scale);
  } else {
    const std::string size = Add("Cast <to = 1> (d)");
    scale = Add(StrCat("Reciprocal (", Add(StrCat("Sqrt (", size, ")")), ")"));
  }
  if (transforms()) {
    const std::string size = Add("Cast <to = 1> (d)");
    scale = Add(StrCat("Div (", scale, ", ", size, ")"));
  } else if (f8_query()) {
    scale = Add(StrCat("Mul (", scale, ", q_scale)"));
    scale = Add(StrCat("Mul (", scale, ", k_scale)"));
  } else if (codes()) {
    scale = Add(StrCat("Mul (", scale, ", ks)"));
  }
  s = Add(StrCat("Mul (", s, ", ", scale, ")"));
  if (o_.attributes.softcap > 0) {
    const std::string cap = Float("cap", o_.attributes.softcap);
    s = Add(StrCat("Div (", s, ", ", cap, ")"));
    s = Add(StrCat("Tanh (", s, ")"));
    s = Add(StrCat("Mul (", s, ", ", cap, ")"));
  }
  return s;
}

std::string PagedAttentionBody::Text() {
  Positions();
  Dims();
  KeysAndValues();
  const std::string scores = Scores();
  Mask();
  Softmax(Bias(Add(StrCat("Where (mask, ", scores, ", neg_inf)"))));
  Output();
  if (o_.has_lse) Lse();

  const std::vector<std::string> inputs = Inputs();
  const bool bit_casts = w_.lines().find("BitCast") != std::string::npos;
  return StrCat("<domain: \"pagefuse\", opset_import: [\"\" : ", bit_casts ? 26 : 23, "]>\n",
                o_.turboquant ? "TurboQuantAttention (" : "PagedAttention (",
                absl::StrJoin(inputs, ", "), ") => (output", o_.has_lse ? ", lse" : "", ") {\n",
                w_.lines(), "}\n");
}

std::vector<std::string> PagedAttentionBody::Inputs() const {
  std::vector<std::string> inputs = {"query",           "key_cache", "value_cache",
                                     "query_start_loc", "seq_lens",  "block_table"};
  const auto add_if = [&](bool present, std::string_view name) {
    if (present) inputs.emplace_back(name);
  };
  if (o_.turboquant) {
    inputs = {"query", "kv_cache", "block_table", "seq_lens"};
    const bool tables = o_.turboquant->has_rotated_keys();
    add_if(o_.has_query_start_loc, "query_start_loc");
    add_if(tables && o_.turboquant->has_rotation, "rotation");
    add_if(tables && o_.turboquant->has_centroids, "centroids");
    add_if(o_.has_sink, "head_sink");
    return inputs;
  }
  const bool per_tensor = format().has_tensor_scale();
  const bool per_token_head = format().has_row_scales();
  add_if(per_tensor, "k_scale"), add_if(per_tensor, "v_scale");
  add_if(f8_query(), "q_scale");
  add_if(per_token_head, "k_scale_cache"), add_if(per_token_head, "v_scale_cache");
  add_if(o_.has_sink, "head_sink");
  add_if(o_.has_alibi, "alibi_slopes");
  add_if(o_.has_qq_bias, "qq_bias");
  add_if(o_.has_ranges, "mm_prefix_range");
  add_if(o_.has_causal_flags, "causal_flags");
  add_if(o_.has_output_scale, "output_scale");
  add_if(transforms(), "rht_signs");
  return inputs;
}

}  // namespace pagefuse
