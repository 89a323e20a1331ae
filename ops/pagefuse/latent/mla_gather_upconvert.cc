// SPDX-License-Identifier: Apache-2.0
// MlaGatherUpconvert: decodes the fp8_ds_mla rows of whole requests into one bfloat16 workspace.
// Equals vLLM's cp_gather_and_upconvert_fp8_kv_cache.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/cache/block_tables.h"
#include "pagefuse/ops/pagefuse/cache/insert_op.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    PortSpec("kv_cache", "uint8", "[NB, BS, 656]").InBlocks(),
    PortSpec("block_table", "int32", "[Q, MB]").Metadata(),
    PortSpec("seq_lens", "int32", "[Q]").Metadata(),
    PortSpec("workspace_starts", "int32", "[Q]").Metadata(),
});
constexpr Ports kOut({{"workspace", "bfloat16", "[rows, 576]"}});

// The rows of the workspace: up to the last one of any request.
absl::StatusOr<Dim> Rows(const ShapeContext& c) {
  const auto lens = c.input_ints(kIn["seq_lens"]);
  const auto starts = c.input_ints(kIn["workspace_starts"]);
  if (!lens || !starts) return Dim::Unknown();
  int64_t rows = 0;
  for (size_t r = 0; r < std::min(lens->size(), starts->size()); ++r) {
    if ((*lens)[r] < 0) {
      return c.InputError(kIn["seq_lens"],
                          StrCat("expected lengths of at least 0, got ", (*lens)[r]));
    }
    if ((*starts)[r] < 0) {
      return c.InputError(kIn["workspace_starts"],
                          StrCat("expected rows of at least 0, got ", (*starts)[r]));
    }
    rows = std::max(rows, (*starts)[r] + (*lens)[r]);
  }
  return Dim(rows);
}

// Requests own disjoint rows.
absl::Status CheckOverlap(const KernelArgs& args) {
  const TensorArg& lens = args.input(kIn["seq_lens"]);
  const TensorArg& starts = args.input(kIn["workspace_starts"]);
  std::vector<int64_t> order;
  for (int64_t r = 0; r < lens.size(); ++r) {
    if (IndexAt(lens, r) > 0) order.push_back(r);
  }
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return IndexAt(starts, a) < IndexAt(starts, b); });
  for (size_t i = 1; i < order.size(); ++i) {
    const int64_t end = IndexAt(starts, order[i - 1]) + IndexAt(lens, order[i - 1]);
    if (IndexAt(starts, order[i]) >= end) continue;
    return InputValueError(
        args, kIn["workspace_starts"],
        StrCat("expected rows of its own for each request, got overlap of ", order[i - 1], " and ",
               order[i], " at row ", IndexAt(starts, order[i])));
  }
  return absl::OkStatus();
}

absl::Status Validate(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadPaged(args, kIn["kv_cache"]));
  const int64_t capacity = CheckedMul(args.input(kIn["block_table"]).dim(1), paged.block_size)
                               .value_or(int64_t{1} << 62);
  for (int64_t r = 0; r < args.input(kIn["seq_lens"]).size(); ++r) {
    const int64_t length = IndexAt(args.input(kIn["seq_lens"]), r);
    if (length < 0 || length > capacity) {
      return InputValueError(
          args, kIn["seq_lens"],
          StrCat("expected lengths from 0 to ", capacity,
                 " (columns of \"block_table\" * block size), got ", length, " at ", r));
    }
    if (IndexAt(args.input(kIn["workspace_starts"]), r) < 0) {
      return InputValueError(args, kIn["workspace_starts"],
                             StrCat("expected rows of at least 0, got ",
                                    IndexAt(args.input(kIn["workspace_starts"]), r), " at ", r));
    }
    PF_RETURN_IF_ERROR(CheckUsedBlocks(args, kIn["block_table"], {r, 0, length}, paged));
  }
  return CheckOverlap(args);
}

// Sets the rows that no request owns to zero.
void ClearGaps(const KernelArgs& args) {
  const TensorArg& workspace = args.output(0);
  const int64_t row_bytes = 2 * workspace.dim(1);
  std::vector<bool> owned(workspace.dim(0));
  for (int64_t r = 0; r < args.input(kIn["seq_lens"]).size(); ++r) {
    const int64_t start = IndexAt(args.input(kIn["workspace_starts"]), r);
    std::fill_n(owned.begin() + start, IndexAt(args.input(kIn["seq_lens"]), r), true);
  }
  for (int64_t row = 0; row < workspace.dim(0); ++row) {
    if (!owned[row]) std::memset(workspace.as<uint8_t>() + row * row_bytes, 0, row_bytes);
  }
}

absl::StatusOr<GroupedGather> MakeCall(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadPaged(args, kIn["kv_cache"]));
  ClearGaps(args);
  GroupedGather gather;
  gather.format = Fp8DsMlaRow();
  gather.rows = GroupedRows(gather.format, paged, args.input(kIn["kv_cache"]).data);
  gather.workspace = args.output(0).as<uint8_t>();
  for (int64_t r = 0; r < args.input(kIn["seq_lens"]).size(); ++r) {
    int64_t row = IndexAt(args.input(kIn["workspace_starts"]), r);
    const int64_t count = IndexAt(args.input(kIn["seq_lens"]), r);
    ForSlots(args.input(kIn["block_table"]), {r, 0, count}, paged.block_size, [&](int64_t slot) {
      gather.reads.push_back({slot, row++});
    });
  }
  return gather;
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(int64_t block_size, NumberOf(node, kIn["kv_cache"], 1));
  block_size = std::max<int64_t>(block_size, 1);  // of blocks without room nothing is read
  PF_ASSIGN_OR_RETURN(const int64_t columns, NumberOf(node, kIn["block_table"], 1));
  const GroupedRowFormat format = Fp8DsMlaRow();
  BodyWriter w;
  // One request of no rows behind the others, so that there is one.
  const std::string none = w.Ints({0});
  const std::string starts =
      w.Call("Concat <axis = 0>", {w.Cast("workspace_starts", DataType::kInt64), none});
  const std::string lens =
      w.Call("Concat <axis = 0>", {w.Cast("seq_lens", DataType::kInt64), none});
  const std::string no_blocks = w.Call("Expand", {none, w.Ints({1, columns})});
  const std::string table =
      w.Call("Concat <axis = 0>", {w.Cast("block_table", DataType::kInt64), no_blocks});
  const std::string ends = w.Call("Add", {starts, lens});
  const std::string rows = w.Call("ReduceMax <keepdims = 0>", {ends});
  const std::string row = w.Call("Range", {w.Int(0), rows, w.Int(1)});
  w.Comment("the request that owns each row");
  const std::string row_column = w.Call("Unsqueeze", {row, w.Ints({1})});
  const std::string inside = w.Cast(w.Call("And", {w.Call("GreaterOrEqual", {row_column, starts}),
                                                   w.Call("Less", {row_column, ends})}),
                                    DataType::kInt64);
  const std::string owner = w.Call("ArgMax <axis = 1, keepdims = 0>", {inside});
  const std::string owned = w.Cast(w.Call("ReduceMax", {inside, w.Ints({1})}), DataType::kBool);
  const std::string first = w.Call("Gather <axis = 0>", {starts, owner});
  const std::string last = w.Int(std::max<int64_t>(columns * block_size - 1, 0));
  const std::string position = w.Call("Clip", {w.Call("Sub", {row, first}), w.Int(0), last});
  const std::string blocks =
      w.Call("GatherElements <axis = 1>",
             {w.Call("Gather <axis = 0>", {table, owner}),
              w.Call("Unsqueeze", {w.Call("Div", {position, w.Int(block_size)}), w.Ints({1})})});
  const std::string used =
      w.Call("Squeeze", {w.Call("Where", {owned, blocks, w.Int(0)}), w.Ints({1})});
  const std::string slot = w.Call("Add", {w.Call("Mul", {used, w.Int(block_size)}),
                                          w.Call("Mod", {position, w.Int(block_size)})});
  const std::string bytes =
      w.Call("Gather <axis = 0>", {w.Reshape("kv_cache", {-1, format.TokenBytes()}), slot});
  const std::string scales =
      w.Slice(bytes, format.CodeBytes(), format.CodeBytes() + format.ScaleBytes(), -1);
  const std::string values = WriteGroupedRead(w, format, {-1}, bytes, scales);
  const std::string zero = w.Cast(w.Float(0), DataType::kBfloat16);
  w.Set("workspace", StrCat("Where (", owned, ", ", values, ", ", zero, ")"));
  return w.Function("MlaGatherUpconvert", "kv_cache, block_table, seq_lens, workspace_starts",
                    "workspace");
}

}  // namespace

OpDef MlaGatherUpconvertDef() {
  return OpDef("pagefuse", "MlaGatherUpconvert", 1)
      .Doc(
          "Decodes all rows of each request from a paged fp8_ds_mla cache to bfloat16, into the "
          "workspace from row workspace_starts on. Rows of no request are zero.")
      .Inputs(kIn)
      .Outputs(kOut)
      .Let("rows", "max(workspace_starts + seq_lens)", Rows)
      .Validate(Validate)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = RunCall<MakeCall, GatherGroupedRows>})
      .AddKernel({.name = "hwy", .priority = 10, .run = RunCall<MakeCall, GatherGroupedRowsHwy>});
}

}  // namespace pagefuse::pagefuse_ops
