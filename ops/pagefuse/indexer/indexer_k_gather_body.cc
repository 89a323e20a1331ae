#include "pagefuse/ops/pagefuse/indexer/indexer_k_gather_body.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/body_writer.h"

namespace pagefuse::pagefuse_ops {
namespace {

// Each output row's slot int64 [rows], and whether a request owns the row, bool [rows, 1].
struct RowSlots {
  std::string slots;
  std::string owned;
};

RowSlots WriteRowSlots(BodyWriter& w, const IndexerKGatherBody& body) {
  const std::string requests = w.Call("Shape <start = 0, end = 1>", {"block_table"});
  const std::string columns = w.Call("Shape <start = 1, end = 2>", {"block_table"});
  const std::string first = w.Ints({0});
  const std::string one = w.Ints({1});
  const std::string starts = w.Cast("cu_seq_lens", DataType::kInt64);
  const std::string past_last = w.Call("Add", {requests, one});
  const std::string limit =
      body.has_num_rows
          ? w.Call("Squeeze", {"num_rows"})
          : w.Call("Squeeze", {w.Call("Slice", {starts, requests, past_last, first})});
  const std::string row = w.Call("Range", {w.Int(0), limit, w.Int(1)});
  const std::string ends = w.Call("Slice", {starts, one, past_last, first});
  const std::string past = w.Call("GreaterOrEqual", {w.Call("Unsqueeze", {row, one}), ends});
  const std::string request =
      w.Call("ReduceSum <keepdims = 0>", {w.Cast(past, DataType::kInt64), one});
  const std::string request_count = w.Call("Squeeze", {requests});
  const std::string owned = w.Call("Less", {request, request_count});
  const std::string owned_column = w.Call("Unsqueeze", {owned, one});
  const std::string last_request = w.Call("Sub", {request_count, w.Int(1)});
  const std::string safe_request = w.Call("Min", {request, last_request});
  const std::string start = w.Call("Gather <axis = 0>", {starts, safe_request});
  const std::string token = w.Call("Sub", {row, start});
  const std::string capacity =
      w.Call("Mul", {w.Call("Squeeze", {columns}), w.Int(body.block_size)});
  const std::string safe_token = w.Call("Min", {token, w.Call("Sub", {capacity, w.Int(1)})});
  const std::string table = w.Cast("block_table", DataType::kInt64);
  const std::string entries = w.Call("Gather <axis = 0>", {table, safe_request});
  const std::string column = w.Call("Div", {safe_token, w.Int(body.block_size)});
  const std::string block = w.Call(
      "Squeeze",
      {w.Call("GatherElements <axis = 1>", {entries, w.Call("Unsqueeze", {column, one})}), one});
  const std::string offset = w.Call("Mod", {safe_token, w.Int(body.block_size)});
  const std::string slots = w.Call("Add", {w.Call("Mul", {block, w.Int(body.block_size)}), offset});
  // Rows past the last request read slot 0, and not what the table holds behind its end.
  return {w.Call("Where", {owned, slots, w.Int(0)}), owned_column};
}

}  // namespace

std::string IndexerKGatherBody::Text() const {
  BodyWriter w;
  const RowSlots rows = WriteRowSlots(w, *this);
  const PagedBytes paged = {.block_size = block_size,
                            .block_bytes = block_size * format.TokenBytes()};
  const std::string flat = w.Reshape("kv_cache", {-1});
  const std::string zero = w.Cast(w.Int(0), DataType::kUint8);
  const std::string bytes = WriteTake(w, flat, rows.slots, DataPart(format, paged));
  if (uint8_codes) {
    w.Set("k", StrCat("Where (", rows.owned, ", ", bytes, ", ", zero, ")"));
  } else {
    const std::string codes = w.Call("Where", {rows.owned, bytes, zero});
    w.Set("k", StrCat("BitCast <to = 17> (", codes, ")"));
  }
  const std::string scale_bytes = WriteTake(w, flat, rows.slots, ScalePart(format, paged));
  const std::string scales =
      WriteFromBytes(w, scale_bytes, DataType::kFloat, {-1, format.num_groups()});
  w.Set("k_scale", StrCat("Where (", rows.owned, ", ", scales, ", ", w.Float(0), ")"));
  return w.Function("IndexerKGather",
                    StrCat("kv_cache, block_table, cu_seq_lens", has_num_rows ? ", num_rows" : ""),
                    "k, k_scale");
}

}  // namespace pagefuse::pagefuse_ops
