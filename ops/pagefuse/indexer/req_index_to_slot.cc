// SPDX-License-Identifier: Apache-2.0
// ReqIndexToSlot: token indices within requests to cache slots, or to rows of the prefill
// workspace. Equals vLLM's triton_convert_req_index_to_global_index (DeepSeek-V3.2).
#include <limits>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/indexer/slot_lookup.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    PortSpec("req_id", "int32", "[T]").Metadata(),
    PortSpec("block_table", "int32", "[Q, MB]").Metadata(),
    {"token_indices", "int32", "[T, K]"},
    PortSpec("prefill_request_id", "int32", "[T]").RequiredIf("workspace_starts").Metadata(),
    PortSpec("workspace_starts", "int32", "[P]").RequiredIf("prefill_request_id").Metadata(),
});
constexpr Ports kOut({
    {"slots", "int32", "[T, K]"},
    {"valid_counts", "int32", "[T]"},
});

// The prefill request of a token, -1 for a decode token.
int64_t PrefillOf(const KernelArgs& args, int64_t token) {
  const TensorArg& ids = args.input(kIn["prefill_request_id"]);
  return ids.present() ? std::max(ids.as<const int32_t>()[token], -1) : -1;
}

SlotRow RowOf(const KernelArgs& args, int64_t token, int64_t block_size) {
  const TensorArg& indices = args.input(kIn["token_indices"]);
  const TensorArg& table = args.input(kIn["block_table"]);
  const int64_t columns = table.dim(1);
  SlotRow row;
  row.count = indices.dim(1);
  row.indices = indices.as<const int32_t>() + token * row.count;
  // The table's width limits prefill indices too.
  row.limit = IndexLimit(columns, block_size);
  const int64_t prefill = PrefillOf(args, token);
  if (prefill >= 0) {
    row.start = args.input(kIn["workspace_starts"]).as<const int32_t>()[prefill];
  } else {
    row.table =
        table.as<const int32_t>() + args.input(kIn["req_id"]).as<const int32_t>()[token] * columns;
  }
  return row;
}

absl::Status CheckPrefills(const KernelArgs& args) {
  const TensorArg& starts = args.input(kIn["workspace_starts"]);
  if (!starts.present()) return absl::OkStatus();
  for (int64_t i = 0; i < starts.size(); ++i) {
    const int64_t start = starts.as<const int32_t>()[i];
    if (start >= 0) continue;
    return InputValueError(args, kIn["workspace_starts"],
                           StrCat("expected 0 or more, got ", start, " at ", i));
  }
  for (int64_t t = 0; t < args.input(kIn["prefill_request_id"]).size(); ++t) {
    const int64_t id = PrefillOf(args, t);
    if (id < starts.size()) continue;
    return InputValueError(args, kIn["prefill_request_id"],
                           StrCat("expected requests below ", starts.size(),
                                  ", the size of \"workspace_starts\", got ", id, " at ", t));
  }
  return absl::OkStatus();
}

// A workspace row must fit int32.
absl::Status CheckPrefillRow(const KernelArgs& args, const SlotRow& row) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (row.start + row.limit - 1 <= kMax) return absl::OkStatus();
  for (int64_t i = 0; i < row.count; ++i) {
    if (row.indices[i] >= row.limit || int64_t{row.indices[i]} + row.start <= kMax) continue;
    return InputValueError(
        args, kIn["workspace_starts"],
        StrCat("start ", row.start, " and index ", row.indices[i], " give a row beyond int32"));
  }
  return absl::OkStatus();
}

absl::Status Validate(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t block_size, args.node->IntAttribute("block_size", 1));
  PF_RETURN_IF_ERROR(
      CheckIndices(args, kIn["req_id"], args.input(kIn["block_table"]).dim(0), "requests"));
  PF_RETURN_IF_ERROR(CheckPrefills(args));
  const bool usable = WholeTableIsUsable(args.input(kIn["block_table"]), block_size);
  for (int64_t t = 0; t < args.input(kIn["token_indices"]).dim(0); ++t) {
    const SlotRow row = RowOf(args, t, block_size);
    if (row.table == nullptr) {
      PF_RETURN_IF_ERROR(CheckPrefillRow(args, row));
    } else if (!usable) {
      PF_RETURN_IF_ERROR(CheckSlotRow(args, row, block_size, kIn["block_table"],
                                      args.input(kIn["req_id"]).as<const int32_t>()[t]));
    }
  }
  return absl::OkStatus();
}

// `slot`: what a valid index becomes. With a workspace, prefill tokens get rows of it.
constexpr char kTableNodes[] = R"(
  index = Cast <to = 7> (token_indices)
  i_0 = Constant <value_int: int = 0> ()
  given = GreaterOrEqual (index, i_0)
  block_size = Constant <value_int = @block_size> ()
  columns = Shape <start = 1, end = 2> (block_table)
  capacity = Mul (columns, block_size)
  inside = Less (index, capacity)
  valid = And (given, inside)
  safe = Where (valid, index, i_0)
  table = Cast <to = 7> (block_table)
  req = Cast <to = 7> (req_id)
  rows = Gather <axis = 0> (table, req)
  column = Div (safe, block_size)
  block = GatherElements <axis = 1> (rows, column)
  first = Mul (block, block_size)
  offset = Mod (safe, block_size)
  table_slot = Add (first, offset)
  l_1 = Constant <value_ints: ints = [1]> ()
  i_m1 = Constant <value_int: int = -1> ()
)";
constexpr char kWorkspaceNodes[] = R"(  prefill = Cast <to = 7> (prefill_request_id)
  starts = Cast <to = 7> (workspace_starts)
  safe_prefill = Max (prefill, i_0)
  start = Gather <axis = 0> (starts, safe_prefill)
  is_prefill = GreaterOrEqual (prefill, i_0)
  is_prefill_column = Unsqueeze (is_prefill, l_1)
  start_column = Unsqueeze (start, l_1)
  row = Add (safe, start_column)
  slot = Where (is_prefill_column, row, table_slot)
  slots64 = Where (valid, slot, i_m1)
)";
constexpr char kPlainNodes[] = "  slots64 = Where (valid, table_slot, i_m1)\n";
constexpr char kLastNodes[] = R"(  slots = Cast <to = 6> (slots64)
  counted = Cast <to = 7> (valid)
  count = ReduceSum <keepdims = 0> (counted, l_1)
  valid_counts = Cast <to = 6> (count)
}
)";

absl::StatusOr<std::string> Decompose(const Node& node) {
  const bool workspace = node.input(kIn["prefill_request_id"]) != nullptr;
  return StrCat("ReqIndexToSlot (req_id, block_table, token_indices",
                workspace ? ", prefill_request_id, workspace_starts" : "",
                ") => (slots, valid_counts) {", kTableNodes,
                workspace ? kWorkspaceNodes : kPlainNodes, kLastNodes);
}

}  // namespace

OpDef ReqIndexToSlotDef() {
  OpDef op =
      OpDef("pagefuse", "ReqIndexToSlot", 1)
          .Doc(
              "Turns token indices within requests into slots of the paged cache; of tokens with a "
              "prefill request, into rows of the prefill workspace: workspace_starts[id] + v. -1 "
              "for a "
              "negative index and for one past the block table. valid_counts counts the others.")
          .Inputs(kIn)
          .Outputs(kOut)
          .RequiredAttr("block_size", "tokens a block")
          .Within(1, std::numeric_limits<int32_t>::max())
          .Validate(Validate)
          .Decomposition(Decompose);
  AddSlotLookupKernels(op, RowOf);
  return op;
}

}  // namespace pagefuse::pagefuse_ops
