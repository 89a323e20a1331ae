// SPDX-License-Identifier: Apache-2.0
// CombineTopKWindow: rows of the prefill workspace that each token attends to, compressed rows
// first, then its sliding window. Equals vLLM's combine_topk_swa_indices (DeepSeek-V4).
#include "pagefuse/ops/kernels/indexer/combine_topk_window.h"

#include <algorithm>
#include <limits>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"topk_indices", "int32", "[T, K]"},
    PortSpec("query_start_loc", "int32", "[Q + 1]").Metadata(),
    PortSpec("seq_lens", "int32", "[Q]").Metadata(),
    PortSpec("gather_lens", "int32", "[Q]").Metadata(),
    PortSpec("workspace_rows", "int64", "[] or [1]").Metadata(),
    PortSpec("window_offset", "int64", "[] or [1]").Metadata(),
});
constexpr Ports kOut({
    {"combined", "int32", "[T, width]"},
    {"lens", "int32", "[T]"},
});
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
// The output width is a multiple of this: the public attention kernels read whole tiles.
constexpr int64_t kWidthMultiple = 128;

struct Attributes {
  int64_t window = 0;
  int64_t ratio = 1;
  int64_t topk = 0;

  int64_t width() const {
    return (topk + window + kWidthMultiple - 1) / kWidthMultiple * kWidthMultiple;
  }
};

absl::StatusOr<Attributes> ReadAttributes(const Node& node) {
  Attributes a;
  PF_ASSIGN_OR_RETURN(a.window, node.IntAttribute("window_size", 0));
  PF_ASSIGN_OR_RETURN(a.ratio, node.IntAttribute("compress_ratio", 1));
  PF_ASSIGN_OR_RETURN(a.topk, node.IntAttribute("topk", 0));
  return a;
}

absl::StatusOr<Dim> OutputWidth(const ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const Attributes a, ReadAttributes(c.node()));
  return Dim(a.width());
}

struct Call {
  Attributes attributes;
  const int32_t* topk = nullptr;
  int64_t topk_columns = 0;
  const int32_t* starts = nullptr;
  const int32_t* seq_lens = nullptr;
  const int32_t* gather_lens = nullptr;
  int64_t requests = 0;
  int64_t tokens = 0;
  int64_t workspace_rows = 0;
  int64_t window_offset = 0;

  int64_t start(int64_t r) const { return int64_t{starts[r]} - starts[0]; }
  int64_t query_len(int64_t r) const { return start(r + 1) - start(r); }
};

absl::StatusOr<Call> MakeCall(const KernelArgs& args) {
  Call call;
  PF_ASSIGN_OR_RETURN(call.attributes, ReadAttributes(*args.node));
  call.topk = args.input(kIn["topk_indices"]).as<const int32_t>();
  call.topk_columns = args.input(kIn["topk_indices"]).dim(1);
  call.tokens = args.input(kIn["topk_indices"]).dim(0);
  call.starts = args.input(kIn["query_start_loc"]).as<const int32_t>();
  call.seq_lens = args.input(kIn["seq_lens"]).as<const int32_t>();
  call.gather_lens = args.input(kIn["gather_lens"]).as<const int32_t>();
  call.requests = args.input(kIn["seq_lens"]).dim(0);
  call.workspace_rows = *args.input(kIn["workspace_rows"]).as<const int64_t>();
  call.window_offset = *args.input(kIn["window_offset"]).as<const int64_t>();
  return call;
}

// The row of one token; its request owns it.
CombinedRow RowOf(const Call& call, int64_t request, int64_t token) {
  const Attributes& a = call.attributes;
  const int64_t seen =
      call.seq_lens[request] - call.query_len(request) + (token - call.start(request)) + 1;
  CombinedRow row;
  row.compressed = std::min(seen / a.ratio, a.topk);
  row.window = std::min(seen, a.window);
  row.topk = call.topk + token * call.topk_columns;
  row.first_row = call.workspace_rows * request;
  row.first_window_row = row.first_row + call.window_offset + seen - row.window -
                         (int64_t{call.seq_lens[request]} - call.gather_lens[request]);
  row.width = a.width();
  return row;
}

absl::Status CheckScalars(const KernelArgs& args, const Call& call) {
  // Far from the ends of int64, so that the sums of RowOf cannot overflow.
  constexpr int64_t kMost = int64_t{1} << 31;
  const auto check = [&](int input, int64_t value) {
    if (value >= 0 && value <= kMost) return absl::OkStatus();
    return InputValueError(args, input, StrCat("expected 0 to ", kMost, ", got ", value));
  };
  PF_RETURN_IF_ERROR(check(kIn["workspace_rows"], call.workspace_rows));
  return check(kIn["window_offset"], call.window_offset);
}

absl::Status CheckStarts(const KernelArgs& args, const Call& call) {
  for (int64_t r = 0; r < call.requests; ++r) {
    if (call.query_len(r) >= 0) continue;
    return InputValueError(
        args, kIn["query_start_loc"],
        StrCat("falls from ", call.starts[r], " to ", call.starts[r + 1], " at request ", r));
  }
  if (call.start(call.requests) == call.tokens) return absl::OkStatus();
  return InputValueError(args, kIn["query_start_loc"],
                         StrCat("expected ", call.tokens, " tokens, as \"topk_indices\" has, got ",
                                call.start(call.requests)));
}

absl::Status CheckRequest(const KernelArgs& args, const Call& call, int64_t r) {
  const int64_t query = call.query_len(r);
  if (call.seq_lens[r] < query) {
    return InputValueError(args, kIn["seq_lens"],
                           StrCat("expected at least the ", query, " query tokens of request ", r,
                                  ", got ", call.seq_lens[r]));
  }
  if (query == 0) return absl::OkStatus();
  // The first token's window begins first.
  const int64_t before = call.seq_lens[r] - query;
  const int64_t window = std::min(before + 1, call.attributes.window);
  const int64_t needed = window == 0 ? 0 : query + window - 1;
  if (call.gather_lens[r] < needed || call.gather_lens[r] > call.seq_lens[r]) {
    return InputValueError(
        args, kIn["gather_lens"],
        StrCat("expected ", needed, " to ", call.seq_lens[r], ", the rows that the ", query,
               " query tokens of request ", r, " see, got ", call.gather_lens[r]));
  }
  const int64_t compressed =
      std::min(call.seq_lens[r] / call.attributes.ratio, call.attributes.topk);
  if (compressed > call.topk_columns) {
    return InputValueError(args, kIn["topk_indices"],
                           StrCat("expected at least ", compressed, " columns for request ", r,
                                  ", got ", call.topk_columns));
  }
  return absl::OkStatus();
}

// Every row number that is written fits int32.
absl::Status CheckRange(const KernelArgs& args, const CombinedRow& row, int64_t token) {
  if (row.first_window_row + row.window - 1 > kMaxInt32) {
    return InputValueError(args, kIn["workspace_rows"],
                           StrCat("token ", token, " gets workspace row ",
                                  row.first_window_row + row.window - 1, ", beyond int32"));
  }
  for (int64_t i = 0; i < row.compressed; ++i) {
    if (row.topk[i] + row.first_row <= kMaxInt32) continue;
    return InputValueError(args, kIn["topk_indices"],
                           StrCat("index ", row.topk[i], " at [", token, ", ", i,
                                  "] gives a workspace row beyond int32"));
  }
  return absl::OkStatus();
}

absl::Status Validate(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, MakeCall(args));
  PF_RETURN_IF_ERROR(CheckScalars(args, call));
  PF_RETURN_IF_ERROR(CheckStarts(args, call));
  for (int64_t r = 0; r < call.requests; ++r) {
    PF_RETURN_IF_ERROR(CheckRequest(args, call, r));
    for (int64_t t = call.start(r); t < call.start(r + 1); ++t) {
      PF_RETURN_IF_ERROR(CheckRange(args, RowOf(call, r, t), t));
    }
  }
  return absl::OkStatus();
}

template <auto write>
absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, MakeCall(args));
  int32_t* combined = args.output(0).as<int32_t>();
  int32_t* lens = args.output(1).as<int32_t>();
  for (int64_t r = 0; r < call.requests; ++r) {
    const int64_t first = call.start(r);
    const auto rows = [&](int64_t begin, int64_t end) {
      for (int64_t t = first + begin; t < first + end; ++t) {
        const CombinedRow row = RowOf(call, r, t);
        write(row, combined + t * row.width);
        lens[t] = static_cast<int32_t>(row.compressed + row.window);
      }
    };
    ParallelFor(call.query_len(r), call.attributes.width() * 8, rows);
  }
  return absl::OkStatus();
}

constexpr char kBody[] = R"(
CombineTopKWindow (topk_indices, query_start_loc, seq_lens, gather_lens, workspace_rows,
                   window_offset) => (combined, lens) {
  absolute = Cast <to = 7> (query_start_loc)
  l_0 = Constant <value_ints: ints = [0]> ()
  l_1 = Constant <value_ints: ints = [1]> ()
  l_end = Constant <value_ints: ints = [2147483647]> ()
  origin = Slice (absolute, l_0, l_1, l_0)
  starts = Sub (absolute, origin)
  ends = Slice (starts, l_1, l_end, l_0)
  i_0 = Constant <value_int: int = 0> ()
  i_1 = Constant <value_int: int = 1> ()
  token_count = Shape <start = 0, end = 1> (topk_indices)
  token_limit = Squeeze (token_count)
  token = Range (i_0, token_limit, i_1)
  token_column = Unsqueeze (token, l_1)
  ends_row = Unsqueeze (ends, l_0)
  past = GreaterOrEqual (token_column, ends_row)
  past_count = Cast <to = 7> (past)
  req = ReduceSum <keepdims = 0> (past_count, l_1)
  lengths = Cast <to = 7> (seq_lens)
  gathered = Cast <to = 7> (gather_lens)
  from_end = Sub (lengths, ends)
  from_end_token = Gather <axis = 0> (from_end, req)
  pos = Add (from_end_token, token)
  seen = Add (pos, i_1)
  ratio = Constant <value_int = @compress_ratio> ()
  complete = Div (seen, ratio)
  topk = Constant <value_int = @topk> ()
  compressed = Min (complete, topk)
  a = Unsqueeze (compressed, l_1)
  window = Constant <value_int = @window_size> ()
  visible = Min (seen, window)
  b = Unsqueeze (visible, l_1)
  tile = Constant <value_int: int = 128> ()
  tile_less_one = Constant <value_int: int = 127> ()
  both = Add (topk, window)
  rounded = Add (both, tile_less_one)
  tiles = Div (rounded, tile)
  width = Mul (tiles, tile)
  column = Range (i_0, width, i_1)
  column_row = Unsqueeze (column, l_0)
  req_column = Unsqueeze (req, l_1)
  first_row = Mul (req_column, workspace_rows)
  indices = Cast <to = 7> (topk_indices)
  index_count = Shape <start = 1, end = 2> (topk_indices)
  index_limit = Squeeze (index_count)
  last_index = Sub (index_limit, i_1)
  safe_column = Min (column, last_index)
  chosen = Gather <axis = 1> (indices, safe_column)
  compressed_row = Add (chosen, first_row)
  skipped = Sub (lengths, gathered)
  skipped_token = Gather <axis = 0> (skipped, req)
  skipped_column = Unsqueeze (skipped_token, l_1)
  window_base = Add (first_row, window_offset)
  seen_column = Unsqueeze (seen, l_1)
  window_start = Sub (seen_column, b)
  window_index = Sub (window_start, skipped_column)
  window_first = Add (window_base, window_index)
  past_compressed = Sub (column_row, a)
  window_row = Add (window_first, past_compressed)
  count = Add (a, b)
  in_compressed = Less (column_row, a)
  in_count = Less (column_row, count)
  i_m1 = Constant <value_int: int = -1> ()
  window_or_none = Where (in_count, window_row, i_m1)
  rows = Where (in_compressed, compressed_row, window_or_none)
  combined = Cast <to = 6> (rows)
  count_flat = Squeeze (count, l_1)
  lens = Cast <to = 6> (count_flat)
}
)";

}  // namespace

OpDef CombineTopKWindowDef() {
  return OpDef("pagefuse", "CombineTopKWindow", 1)
      .Doc(
          "Rows of the prefill workspace that each token attends to: the first min((pos + 1) / "
          "compress_ratio, topk) of its compressed rows, then its last min(pos + 1, window_size) "
          "rows, then -1. lens counts the rows.")
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("window_size", "tokens of the sliding window, the token itself included")
      .Within(0, kMaxInt32)
      .Attr("compress_ratio", int64_t{1}, "tokens a compressed row")
      .Within(1, kMaxInt32)
      .Attr("topk", int64_t{0}, "compressed rows a token at most; 0 without compression")
      .Within(0, kMaxInt32)
      .Let("width", "topk + window_size, rounded up to 128", OutputWidth)
      .Validate(Validate)
      .Decomposition(kBody)
      .AddKernel({.name = "reference", .run = Run<CombineRow>})
      .AddKernel({.name = "hwy", .priority = 10, .run = Run<CombineRowHwy>});
}

}  // namespace pagefuse::pagefuse_ops
