// SPDX-License-Identifier: Apache-2.0
// KCacheDequantGather: decodes the last rows of each request from the paged cache of DeepSeek-V4's
// latent attention into a bfloat16 workspace. Equals vLLM's dequantize_and_gather_k_cache.
#include <algorithm>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/cache/block_tables.h"
#include "pagefuse/ops/pagefuse/cache/insert_op.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"workspace", "bfloat16", "[R, L, 512]"},
    PortSpec("kv_cache", "uint8", "[NB, S], S >= block_size * 584").InBlocks(),
    PortSpec("seq_lens", "int32", "[R]").Metadata(),
    PortSpec("block_table", "int32", "[R, MB]").Metadata(),
    PortSpec("gather_lens", "int32", "[R]: default seq_lens").Optional().Metadata(),
});
constexpr Ports kOut({{"workspace_out", "bfloat16", "as workspace"}});

// What a call reads, request by request.
struct GatherCall {
  PagedBytes paged;
  int64_t offset = 0;
  const TensorArg* lens = nullptr;
  const TensorArg* gather_lens = nullptr;

  TableRange Range(int64_t request) const {
    const int64_t count = IndexAt(*gather_lens, request);
    return {request, IndexAt(*lens, request) - count, count};
  }
};

absl::StatusOr<GatherCall> ReadCall(const KernelArgs& args) {
  GatherCall call;
  PF_ASSIGN_OR_RETURN(call.paged, ReadPaged(args, kIn["kv_cache"]));
  PF_ASSIGN_OR_RETURN(call.offset, args.node->IntAttribute("offset", 0));
  call.lens = &args.input(kIn["seq_lens"]);
  call.gather_lens =
      args.input(kIn["gather_lens"]).present() ? &args.input(kIn["gather_lens"]) : call.lens;
  return call;
}

absl::Status Validate(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const GatherCall call, ReadCall(args));
  const int64_t rows = args.input(kIn["workspace"]).dim(1);
  const int64_t columns = args.input(kIn["block_table"]).dim(1);
  const int count_input =
      args.input(kIn["gather_lens"]).present() ? kIn["gather_lens"] : kIn["seq_lens"];
  for (int64_t r = 0; r < call.lens->size(); ++r) {
    const int64_t length = IndexAt(*call.lens, r);
    const TableRange range = call.Range(r);
    if (length < 0 || (length + call.paged.block_size - 1) / call.paged.block_size > columns) {
      return InputValueError(args, kIn["seq_lens"],
                             StrCat("expected lengths from 0 to ", columns, " blocks of ",
                                    call.paged.block_size, ", got ", length, " at ", r));
    }
    if (range.count < 0 || range.first < 0) {
      return InputValueError(
          args, count_input,
          StrCat("expected from 0 to ", length, " rows, got ", range.count, " at ", r));
    }
    if (range.count > 0 && range.count > rows - call.offset) {
      return InputValueError(args, count_input,
                             StrCat("expected at most ", rows, " - ", call.offset,
                                    " rows (workspace, offset), got ", range.count, " at ", r));
    }
    PF_RETURN_IF_ERROR(CheckUsedBlocks(args, kIn["block_table"], range, call.paged));
  }
  return absl::OkStatus();
}

absl::StatusOr<GroupedGather> MakeCall(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const GatherCall call, ReadCall(args));
  const TensorArg& workspace = args.output(0);
  GroupedGather gather;
  gather.format = Fp8Ue8m0Row();
  gather.rows = GroupedRows(gather.format, call.paged, args.input(kIn["kv_cache"]).data);
  gather.workspace = workspace.as<uint8_t>();
  for (int64_t r = 0; r < call.lens->size(); ++r) {
    const TableRange range = call.Range(r);
    int64_t row = r * workspace.dim(1) + call.offset;
    ForSlots(args.input(kIn["block_table"]), range, call.paged.block_size, [&](int64_t slot) {
      gather.reads.push_back({slot, row++});
    });
  }
  return gather;
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PagedBytes paged;
  PF_ASSIGN_OR_RETURN(paged.block_size, node.IntAttribute("block_size", kTokensPerBlock));
  PF_ASSIGN_OR_RETURN(paged.block_bytes, NumberOf(node, kIn["kv_cache"], 1));
  PF_ASSIGN_OR_RETURN(const int64_t offset, node.IntAttribute("offset", 0));
  PF_ASSIGN_OR_RETURN(const int64_t rows, NumberOf(node, kIn["workspace"], 1));
  PF_ASSIGN_OR_RETURN(const int64_t columns, NumberOf(node, kIn["block_table"], 1));
  const bool gather_lens = node.input(kIn["gather_lens"]) != nullptr;
  const GroupedRowFormat format = Fp8Ue8m0Row();
  BodyWriter w;
  const auto column = [&](const std::string& lens) {
    return w.Call("Unsqueeze", {w.Cast(lens, DataType::kInt64), w.Ints({1})});
  };
  const std::string length = column("seq_lens");
  const std::string count = gather_lens ? column("gather_lens") : length;
  const std::string row = w.Call("Range", {w.Int(0), w.Int(rows), w.Int(1)});
  const std::string i = w.Call("Sub", {row, w.Int(offset)});
  const std::string valid =
      w.Call("And", {w.Call("GreaterOrEqual", {i, w.Int(0)}), w.Call("Less", {i, count})});
  const std::string last = w.Int(std::max<int64_t>(columns * paged.block_size - 1, 0));
  const std::string position =
      w.Call("Clip", {w.Call("Add", {w.Call("Sub", {length, count}), i}), w.Int(0), last});
  const std::string table = w.Cast("block_table", DataType::kInt64);
  const std::string block_size = w.Int(paged.block_size);
  const std::string block =
      w.Call("GatherElements <axis = 1>", {table, w.Call("Div", {position, block_size})});
  // Rows that are not valid read block 0.
  const std::string used = w.Call("Where", {valid, block, w.Int(0)});
  const std::string slot =
      w.Call("Add", {w.Call("Mul", {used, block_size}), w.Call("Mod", {position, block_size})});
  const std::string flat = w.Reshape("kv_cache", {-1});
  const std::string data = WriteTake(w, flat, slot, DataPart(format, paged));
  const std::string scales = WriteTake(w, flat, slot, ScalePart(format, paged));
  const std::string values = WriteGroupedRead(w, format, {-1, rows}, data, scales);
  const std::string mask = w.Call("Unsqueeze", {valid, w.Ints({-1})});
  w.Set("workspace_out", StrCat("Where (", mask, ", ", values, ", workspace)"));
  return w.Function(
      "KCacheDequantGather",
      StrCat("workspace, kv_cache, seq_lens, block_table", gather_lens ? ", gather_lens" : ""),
      "workspace_out");
}

}  // namespace

OpDef KCacheDequantGatherDef() {
  return OpDef("pagefuse", "KCacheDequantGather", 1)
      .Doc(
          "Decodes the last gather_lens rows of each request's sequence from a paged fp8_ue8m0 "
          "cache to bfloat16, into rows offset, offset + 1, ... of the request's part of the "
          "workspace. Other rows keep their contents.")
      .Inputs(kIn)
      .Outputs(kOut)
      .Attr("block_size", kTokensPerBlock, "tokens a block")
      .AtLeast(1)
      .Attr("offset", int64_t{0}, "first workspace row of each request that is written")
      .AtLeast(0)
      .Validate(Validate)
      .Decomposition(Decompose)
      .Alias(kOut["workspace_out"], kIn["workspace"])
      .AddKernel({.name = "reference", .run = RunCall<MakeCall, GatherGroupedRows>})
      .AddKernel({.name = "hwy", .priority = 10, .run = RunCall<MakeCall, GatherGroupedRowsHwy>});
}

}  // namespace pagefuse::pagefuse_ops
