// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention_body.h"

#include "absl/strings/str_format.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/packed_batch_text.h"

namespace pagefuse {

// Entries of a list that count.
std::string SparseMlaBody::ValidListed(const Source& source, const std::string& indices) {
  const std::string listed = Call("GreaterOrEqual", {indices, Int(0)});
  if (source.lens.empty()) return listed;
  const std::string columns = Call("Shape <start = 1, end = 2>", {source.indices});
  const std::string count = Call("Squeeze", {columns});
  const std::string place = Call("Range", {Int(0), count, Int(1)});
  const std::string lens = Cast(source.lens, DataType::kInt64);
  const std::string limit = Call("Unsqueeze", {lens, Ints({1})});
  return Call("And", {listed, Call("Less", {place, limit})});
}

std::string SparseMlaBody::ListedRows(const Source& source) {
  const std::string indices = Cast(source.indices, DataType::kInt64);
  valid_ = ValidListed(source, indices);
  return RowsAt(source, Call("Where", {valid_, indices, Int(0)}));
}

// The numbers of all rows that the table can name, and which of them the token sees.
std::string SparseMlaBody::DenseRows() {
  pagefuse_ops::WriteTokenPositions(*this, "q");
  const Source source{"kv_cache", "", "", "block_size", o_.attributes.block_size};
  Set("columns", "Shape <start = 1, end = 2> (block_table)");
  if (o_.attributes.format == LatentFormat::kFp8Ue8m0) {
    const std::string size =
        Constant("block_size", StrCat("value_int: int = ", o_.attributes.block_size));
    Set("tokens1", StrCat("Unsqueeze (", size, ", l_0)"));
  } else {
    const std::string dims = Add("Shape <start = 1, end = -1> (kv_cache)");
    Set("tokens1", StrCat("ReduceProd <keepdims = 1> (", dims, ", l_0)"));
  }
  Set("tokens", "Squeeze (tokens1)");
  Set("n", "Mul (columns, tokens1)");
  const std::string first = Call("Mul", {Cast("rows", DataType::kInt64), "tokens"});
  const std::string within = Add("Range (i_0, tokens, i_1)");
  const std::string slots = Call("Add", {Call("Unsqueeze", {first, Ints({2})}), within});
  const std::string shape = Add("Concat <axis = 0> (n_tokens1, n)");
  const std::string numbers = Call("Reshape", {slots, shape});
  const std::string place = Call("Range", {"i_0", Add("Squeeze (n)"), "i_1"});
  const bool causal = o_.attributes.is_causal;
  const std::string limit = Call("Unsqueeze", {causal ? "pos" : "len", "l_1"});
  valid_ = Call(causal ? "LessOrEqual" : "Less", {place, limit});
  return RowsAt(source, Call("Where", {valid_, numbers, "i_0"}));
}

// Rows with these numbers [T, K], as float [T, K, D].
std::string SparseMlaBody::RowsAt(const Source& source, const std::string& numbers) {
  switch (o_.attributes.format) {
    case LatentFormat::kPlain:
      return PlainRowsAt(source.cache, numbers);
    case LatentFormat::kFp8DsMla:
      return DsMlaRowsAt(source.cache, numbers);
    case LatentFormat::kFp8Ue8m0:
      return Ue8m0RowsAt(source, numbers);
  }
  return "";
}

std::string SparseMlaBody::PlainRowsAt(const std::string& cache, const std::string& numbers) {
  const std::string size = Call("Shape <start = -1>", {cache});
  const std::string shape = Call("Concat <axis = 0>", {Ints({-1}), size});
  const std::string flat = Call("Reshape", {cache, shape});
  return CastFrom(Call("Gather <axis = 0>", {flat, numbers}), o_.cache_type, DataType::kFloat);
}

std::string SparseMlaBody::DsMlaRowsAt(const std::string& cache, const std::string& numbers) {
  const GroupedRowFormat f = o_.attributes.grouped(o_.row_size);
  const std::string flat = Reshape(cache, {-1, f.TokenBytes()});
  const std::string rows = Call("Gather <axis = 0>", {flat, numbers});
  const std::string scales = Slice(rows, f.CodeBytes(), f.PlainOffset(), -1);
  return Cast(pagefuse_ops::WriteGroupedRead(*this, f, {0, 0}, rows, scales), DataType::kFloat);
}

// flat[base + 0, count) for each base [T, K].
std::string SparseMlaBody::BytesAt(const std::string& base, const std::string& flat,
                                   int64_t count) {
  const std::string range = Call("Range", {Int(0), Int(count), Int(1)});
  const std::string at = Call("Add", {Call("Unsqueeze", {base, Ints({-1})}), range});
  return Call("Gather <axis = 0>", {flat, at});
}

// As WriteTake, but for any number of bytes a block.
std::string SparseMlaBody::Ue8m0RowsAt(const Source& source, const std::string& numbers) {
  const GroupedRowFormat f = o_.attributes.grouped(o_.row_size);
  const std::string flat = Reshape(source.cache, {-1});
  const std::string tokens =
      Constant(source.block_size, StrCat("value_int: int = ", source.block_size_value));
  const std::string block = Call("Div", {numbers, tokens});
  const std::string offset = Call("Mod", {numbers, tokens});
  const std::string bytes = Call("Squeeze", {Call("Shape <start = 1, end = 2>", {source.cache})});
  const std::string start = Call("Mul", {block, bytes});
  const std::string in_data = Call("Mul", {offset, Int(f.DataBytes())});
  const std::string data = BytesAt(Call("Add", {start, in_data}), flat, f.DataBytes());
  const std::string scale_part = Call("Mul", {tokens, Int(f.DataBytes())});
  const std::string scale_start = Call("Add", {start, scale_part});
  const std::string in_scales = Call("Mul", {offset, Int(f.ScaleBytes())});
  const std::string scales = BytesAt(Call("Add", {scale_start, in_scales}), flat, f.ScaleBytes());
  return Cast(pagefuse_ops::WriteGroupedRead(*this, f, {0, 0}, data, scales), DataType::kFloat);
}

void SparseMlaBody::Softmax(const std::string& rows, const std::string& valid) {
  Comment("softmax over the valid rows");
  const std::string q = CastFrom("q", o_.query_type, DataType::kFloat);
  const std::string columns = Call("Transpose <perm = [0, 2, 1]>", {rows});
  const std::string dots = Call("MatMul", {q, columns});
  const std::string factor = Constant(
      "factor", StrCat("value_float: float = ", absl::StrFormat("%.9e", o_.attributes.scale)));
  const std::string scores = Call("Mul", {dots, factor});
  const std::string mask = Call("Unsqueeze", {valid, Ints({1})});
  Set("neg_inf", StrCat("Log (", Float(0), ")"));
  const std::string s = Call("Where", {mask, scores, "neg_inf"});
  const std::string max = Call("ReduceMax", {s, Ints({-1})});
  Set("no_row", StrCat("Less (", max, ", ", Float(-3.4e38f), ")"));
  Set("m", StrCat("Where (no_row, ", Float(0), ", ", max, ")"));
  const std::string e = Call("Exp", {Call("Sub", {s, "m"})});
  const std::string sum = Call("ReduceSum", {e, Ints({-1})});
  Set("l", StrCat("Where (no_row, ", Float(1), ", ", sum, ")"));
  const std::string size = Ints({o_.attributes.head_dim_v});
  const std::string values = Call("Slice", {rows, Ints({0}), size, Ints({2})});
  Outputs(Call("Div", {Call("MatMul", {e, values}), "l"}));
}

void SparseMlaBody::Outputs(std::string o) {
  Set("logsum", StrCat("Add (m, ", Add("Log (l)"), ")"));
  if (o_.has_sink) {
    Comment("attention sink");
    const std::string sink = Call("Unsqueeze", {"attn_sink", Ints({0, 2})});
    const std::string above = Call("Exp", {Call("Sub", {sink, "logsum"})});
    o = Call("Div", {o, Call("Add", {Float(1), above})});
  }
  const std::string result = Call("Where", {"no_row", Float(0), o});
  Set("out", StrCat("Cast <to = ", static_cast<int>(o_.query_type), "> (", result, ")"));
  if (!o_.has_lse) return;
  const std::string infinity = Add("Neg (neg_inf)");
  const std::string lse = Call("Where", {"no_row", infinity, "logsum"});
  Set("lse", StrCat("Squeeze (", lse, ", ", Ints({-1}), ")"));
}

std::string SparseMlaBody::Inputs() const {
  std::string inputs = "q, kv_cache";
  const auto add = [&](bool present, std::string_view name) {
    if (present) StrAppend(&inputs, ", ", name);
  };
  add(!o_.dense, "indices");
  add(o_.has_lens, "topk_lens");
  add(o_.has_sink, "attn_sink");
  add(o_.has_extra, "extra_kv_cache, extra_indices");
  add(o_.has_extra_lens, "extra_topk_lens");
  add(o_.dense, "block_table, seq_lens, query_start_loc");
  return inputs;
}

std::string SparseMlaBody::Text() {
  std::string rows;
  if (o_.dense) {
    rows = DenseRows();
  } else {
    Comment("the listed rows");
    rows = ListedRows({"kv_cache", "indices", o_.has_lens ? "topk_lens" : "", "block_size",
                       o_.attributes.block_size});
  }
  std::string valid = valid_;
  if (o_.has_extra) {
    const std::string more =
        ListedRows({"extra_kv_cache", "extra_indices", o_.has_extra_lens ? "extra_topk_lens" : "",
                    "extra_block_size", o_.attributes.extra_block_size});
    valid = Call("Concat <axis = 1>", {valid, valid_});
    rows = Call("Concat <axis = 1>", {rows, more});
  }
  // What row 0, which stands in for rows that are not listed, holds must not matter, even if it is
  // not finite.
  rows = Call("Where", {Call("Unsqueeze", {valid, Ints({2})}), rows, Float(0)});
  Softmax(rows, valid);
  const bool bytes = o_.attributes.format != LatentFormat::kPlain;
  return StrCat("<domain: \"pagefuse\", opset_import: [\"\" : ", bytes ? 26 : 23, "]>\n",
                Function("SparseMlaAttention", Inputs(), o_.has_lse ? "out, lse" : "out"));
}

}  // namespace pagefuse
