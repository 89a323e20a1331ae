// SPDX-License-Identifier: Apache-2.0
// TopKSlots: the top-k indices of each token to slots of the paged cache. Equals vLLM's
// compute_global_topk_indices_and_lens (DeepSeek-V4).
#include <limits>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/indexer/slot_lookup.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"topk_indices", "int32", "[T, K]"},
    PortSpec("token_to_req", "int32", "[T]").Metadata(),
    PortSpec("block_table", "int32", "[Q, MB]").Metadata(),
    PortSpec("is_valid", "bool", "[T]").Metadata(),
});
constexpr Ports kOut({
    {"slots", "int32", "[T, K]"},
    {"lens", "int32", "[T]"},
});

// Token t; a padding token has no valid index.
SlotRow RowOf(const KernelArgs& args, int64_t token, int64_t block_size) {
  const TensorArg& indices = args.input(kIn["topk_indices"]);
  const TensorArg& table = args.input(kIn["block_table"]);
  const int64_t columns = table.dim(1);
  SlotRow row;
  row.count = indices.dim(1);
  row.indices = indices.as<const int32_t>() + token * row.count;
  row.table = table.as<const int32_t>() +
              args.input(kIn["token_to_req"]).as<const int32_t>()[token] * columns;
  if (args.input(kIn["is_valid"]).as<const uint8_t>()[token] != 0)
    row.limit = IndexLimit(columns, block_size);
  return row;
}

absl::Status Validate(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t block_size, args.node->IntAttribute("block_size", 1));
  PF_RETURN_IF_ERROR(
      CheckIndices(args, kIn["token_to_req"], args.input(kIn["block_table"]).dim(0), "requests"));
  const bool usable = WholeTableIsUsable(args.input(kIn["block_table"]), block_size);
  for (int64_t t = 0; t < args.input(kIn["topk_indices"]).dim(0); ++t) {
    const SlotRow row = RowOf(args, t, block_size);
    for (int64_t i = 0; row.limit > 0 && i < row.count; ++i) {
      if (row.indices[i] < row.limit) continue;
      return InputValueError(
          args, kIn["topk_indices"],
          StrCat("expected indices below ", row.limit, ", what the block table has room for, got ",
                 row.indices[i], " at [", t, ", ", i, "]"));
    }
    if (usable) continue;
    PF_RETURN_IF_ERROR(CheckSlotRow(args, row, block_size, kIn["block_table"],
                                    args.input(kIn["token_to_req"]).as<const int32_t>()[t]));
  }
  return absl::OkStatus();
}

constexpr char kBody[] = R"(
TopKSlots (topk_indices, token_to_req, block_table, is_valid) => (slots, lens) {
  index = Cast <to = 7> (topk_indices)
  i_0 = Constant <value_int: int = 0> ()
  given = GreaterOrEqual (index, i_0)
  l_1 = Constant <value_ints: ints = [1]> ()
  token_valid = Unsqueeze (is_valid, l_1)
  valid = And (given, token_valid)
  safe = Where (valid, index, i_0)
  table = Cast <to = 7> (block_table)
  req = Cast <to = 7> (token_to_req)
  rows = Gather <axis = 0> (table, req)
  block_size = Constant <value_int = @block_size> ()
  column = Div (safe, block_size)
  block = GatherElements <axis = 1> (rows, column)
  first = Mul (block, block_size)
  offset = Mod (safe, block_size)
  slot = Add (first, offset)
  i_m1 = Constant <value_int: int = -1> ()
  slots64 = Where (valid, slot, i_m1)
  slots = Cast <to = 6> (slots64)
  counted = Cast <to = 7> (valid)
  count = ReduceSum <keepdims = 0> (counted, l_1)
  lens = Cast <to = 6> (count)
}
)";

}  // namespace

OpDef TopKSlotsDef() {
  OpDef op =
      OpDef("pagefuse", "TopKSlots", 1)
          .Doc(
              "Turns each token's top-k indices within its request into slots of the paged cache: "
              "block_table[req, v / block_size] * block_size + v mod block_size, -1 for a negative "
              "v and for padding tokens. lens counts the slots that are not -1.")
          .Inputs(kIn)
          .Outputs(kOut)
          .RequiredAttr("block_size", "tokens a block")
          .Within(1, std::numeric_limits<int32_t>::max())
          .Validate(Validate)
          .Decomposition(kBody);
  AddSlotLookupKernels(op, RowOf);
  return op;
}

}  // namespace pagefuse::pagefuse_ops
