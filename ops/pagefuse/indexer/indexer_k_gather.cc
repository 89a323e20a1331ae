// SPDX-License-Identifier: Apache-2.0
// IndexerKGather: the indexer keys of whole requests out of their paged cache, one request behind
// the other. Equals vLLM's cp_gather_indexer_k_quant_cache (DeepSeek-V3.2).
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/cache/block_tables.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    PortSpec(
        "kv_cache", "uint8",
        "[NB, BS, G * (quant_block_size + 4)] or [NB, BS, 1, G * (quant_block_size + 4)], G >= 1: "
        "codes of G groups, then their scales")
        .InBlocks(),
    PortSpec("block_table", "int32", "[Q, MB]").Metadata(),
    PortSpec("cu_seq_lens", "int32", "[Q + 1]").Metadata(),
    PortSpec("num_rows", "int64", "[] or [1]").Optional().Metadata(),
});
constexpr Ports kOut({
    {"k", "fp8_storage", "[rows, G * quant_block_size]"},
    {"k_scale", "float", "[rows, G]"},
});
constexpr int64_t kGroup = 128;
constexpr int64_t kScaleBytes = sizeof(float);

// Without the input: up to the last row of the last request.
absl::StatusOr<Dim> NumRows(const ShapeContext& c) {
  if (c.has_input(kIn["num_rows"])) {
    return HeldSize(c, kIn["num_rows"], std::numeric_limits<int64_t>::max());
  }
  const std::optional<std::vector<int64_t>> starts = c.input_ints(kIn["cu_seq_lens"]);
  if (!starts || starts->empty()) return Dim::Unknown();
  const std::optional<int64_t> room = (c.size("Q") * c.size("MB") * c.size("BS")).constant();
  if (starts->back() >= 0 && starts->back() <= room.value_or(starts->back())) {
    return Dim(starts->back());
  }
  return c.InputError(
      kIn["cu_seq_lens"],
      StrCat("expected 0 to the ", room.value_or(0),
             " tokens that the block table has room for last, got ", starts->back()));
}

PagedBytes PagedOf(const TensorArg& cache) {
  return {.num_blocks = cache.dim(0),
          .block_size = std::max<int64_t>(cache.dim(1), 1),
          .block_bytes = cache.block_bytes()};
}

absl::Status Validate(const KernelArgs& args) {
  const PagedBytes paged = PagedOf(args.input(kIn["kv_cache"]));
  const TensorArg& starts = args.input(kIn["cu_seq_lens"]);
  const int32_t* start = starts.as<const int32_t>();
  const int64_t capacity =
      CheckedMul(args.input(kIn["block_table"]).dim(1), args.input(kIn["kv_cache"]).dim(1))
          .value_or(std::numeric_limits<int64_t>::max());
  const int64_t requests = starts.size() - 1;
  if (start[0] != 0) {
    return InputValueError(args, kIn["cu_seq_lens"], StrCat("expected 0 first, got ", start[0]));
  }
  for (int64_t r = 0; r < requests; ++r) {
    const int64_t length = int64_t{start[r + 1]} - start[r];
    if (length < 0 || length > capacity) {
      return InputValueError(args, kIn["cu_seq_lens"],
                             StrCat("expected 0 to ", capacity,
                                    " tokens a request (columns of \"block_table\" * block size), "
                                    "got ",
                                    length, " at request ", r));
    }
    PF_RETURN_IF_ERROR(CheckUsedBlocks(args, kIn["block_table"], {r, 0, length}, paged));
  }
  if (args.output(0).dim(0) >= start[requests]) return absl::OkStatus();
  return InputValueError(args, kIn["num_rows"],
                         StrCat("expected at least ", start[requests],
                                ", the last of \"cu_seq_lens\", got ", args.output(0).dim(0)));
}

// One call in parsed form.
struct GatherCall {
  GroupedRowFormat format;
  CacheRows keys;
  const TensorArg* table = nullptr;
  const int32_t* starts = nullptr;
  int64_t requests = 0;
  uint8_t* codes = nullptr;
  uint8_t* scales = nullptr;
  int64_t rows = 0;

  int64_t owned_rows() const { return starts[requests]; }
  // Copies `count` keys of one block to the rows from `row` on.
  void Copy(const RowAddress& from, int64_t row, int64_t count) const {
    std::memcpy(codes + row * format.CodeBytes(), from.data, count * format.CodeBytes());
    std::memcpy(scales + row * format.ScaleBytes(), from.scale, count * format.ScaleBytes());
  }
  void Clear(int64_t row, int64_t count) const {
    if (count <= 0) return;
    std::memset(codes + row * format.CodeBytes(), 0, count * format.CodeBytes());
    std::memset(scales + row * format.ScaleBytes(), 0, count * format.ScaleBytes());
  }
};

GatherCall MakeCall(const KernelArgs& args) {
  GatherCall call;
  const int64_t size = args.output(0).dim(1);
  call.format = IndexerFp8Row(size, size / args.output(1).dim(1));
  call.keys = GroupedRows(call.format, PagedOf(args.input(kIn["kv_cache"])),
                          args.input(kIn["kv_cache"]).data);
  call.table = &args.input(kIn["block_table"]);
  call.starts = args.input(kIn["cu_seq_lens"]).as<const int32_t>();
  call.requests = args.input(kIn["cu_seq_lens"]).size() - 1;
  call.codes = args.output(0).as<uint8_t>();
  call.scales = args.output(1).as<uint8_t>();
  call.rows = args.output(0).dim(0);
  return call;
}

absl::Status Reference(KernelArgs& args) {
  const GatherCall call = MakeCall(args);
  for (int64_t r = 0; r < call.requests; ++r) {
    for (int64_t i = 0; call.starts[r] + i < call.starts[r + 1]; ++i) {
      const int64_t slot = SlotOf(*call.table, r, i, call.keys.block_size);
      call.Copy(call.keys.AtSlot(slot, 0), call.starts[r] + i, 1);
    }
  }
  call.Clear(call.owned_rows(), call.rows - call.owned_rows());
  return absl::OkStatus();
}

// Rows [begin, end), whole runs of keys within a block at a time.
void GatherRuns(const GatherCall& call, int64_t begin, int64_t end) {
  const int64_t owned_end = std::min(end, call.owned_rows());
  int64_t request =
      std::upper_bound(call.starts, call.starts + call.requests + 1, begin) - call.starts - 1;
  for (int64_t row = begin; row < owned_end;) {
    while (call.starts[request + 1] <= row) ++request;
    const int64_t token = row - call.starts[request];
    const int64_t left_in_block = call.keys.block_size - token % call.keys.block_size;
    const int64_t left = std::min<int64_t>(call.starts[request + 1], owned_end) - row;
    const int64_t count = std::min(left_in_block, left);
    const int64_t slot = SlotOf(*call.table, request, token, call.keys.block_size);
    call.Copy(call.keys.AtSlot(slot, 0), row, count);
    row += count;
  }
  const int64_t first_clear = std::max(begin, call.owned_rows());
  call.Clear(first_clear, end - first_clear);
}

absl::Status Runs(KernelArgs& args) {
  const GatherCall call = MakeCall(args);
  ParallelFor(call.rows, 2 * call.format.TokenBytes(),
              [&](int64_t begin, int64_t end) { GatherRuns(call, begin, end); });
  return absl::OkStatus();
}

// What the nodes depend on. Requests and columns of the block table are read from its shape.
struct IndexerKGatherBody {
  GroupedRowFormat format;
  int64_t block_size = 0;
  bool has_num_rows = false;
  bool uint8_codes = false;

  std::string Text() const;
};

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

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t group, node.IntAttribute("quant_block_size", kGroup));
  PF_ASSIGN_OR_RETURN(const int64_t width, NumberOf(node, kIn["kv_cache"], -1));
  PF_ASSIGN_OR_RETURN(const std::string storage,
                      node.StringAttribute("fp8_storage", "float8e4m3fn"));
  IndexerKGatherBody body;
  body.format = IndexerFp8Row(width / (group + kScaleBytes) * group, group);
  PF_ASSIGN_OR_RETURN(body.block_size, NumberOf(node, kIn["kv_cache"], 1));
  body.has_num_rows = node.input(kIn["num_rows"]) != nullptr;
  body.uint8_codes = storage == "uint8";
  return body.Text();
}

}  // namespace

OpDef IndexerKGatherDef() {
  using enum DataType;
  return OpDef("pagefuse", "IndexerKGather", 1)
      .Doc(
          "Copies the indexer keys of whole requests out of their paged cache: row cu_seq_lens[r] "
          "+ i is token i of request r, its codes and its scales. Rows behind the last request are "
          "zero.")
      .Inputs(kIn)
      .Outputs(kOut)
      .Attr("quant_block_size", kGroup, "channels with one scale")
      .Within(1, std::numeric_limits<int32_t>::max())
      .Attr("fp8_storage", std::string("float8e4m3fn"), "type of k")
      .OneOf({"float8e4m3fn", "uint8"})
      .Let("rows", "num_rows, or the last of cu_seq_lens", NumRows)
      .Validate(Validate)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = Reference})
      .AddKernel({.name = "runs", .priority = 10, .run = Runs});
}

}  // namespace pagefuse::pagefuse_ops
