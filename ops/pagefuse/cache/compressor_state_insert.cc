// SPDX-License-Identifier: Apache-2.0
// CompressorStateInsert: stores the step's keys and scores, the scores with the position embedding
// of their window added, as compressor state. Equals vLLM's save_partial_states.
#include "pagefuse/ops/kernels/inserts/compressor_state_insert.h"

#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/cache/insert_op.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"kv", "T", "[T, w]"},
    {"score", "T", "[T, w]"},
    {"ape", "float", "[compress_ratio, w]"},
    PortSpec("positions", "P", "[T'']: one for each slot, and more").Metadata(),
    PortSpec("slot_mapping", "I", "[T'], T' <= T, T' <= T''").Metadata(),
    PortSpec("state_cache", "float", "[NB, BS, 2 * W], W >= w").InBlocks(),
});
constexpr Ports kOut({{"state_cache_out", "float", "as state_cache"}});
constexpr InsertPorts kPorts = InsertPortsOf(kIn, "state_cache");

absl::Status Validate(const KernelArgs& args) {
  PF_RETURN_IF_ERROR(ValidSlots(kPorts)(args));
  const TensorArg& slots = args.input(kPorts.slot_mapping);
  for (int64_t t = 0; t < slots.size(); ++t) {
    const int64_t position = IndexAt(args.input(kIn["positions"]), t);
    if (IndexAt(slots, t) < 0 || position >= 0) continue;
    return InputValueError(args, kIn["positions"],
                           StrCat("expected positions of at least 0, got ", position, " at ", t));
  }
  return absl::OkStatus();
}

absl::StatusOr<StateInsert> MakeCall(const KernelArgs& args) {
  const TensorArg& state = args.output(0);
  StateInsert insert;
  insert.type = args.input(kIn["kv"]).dtype;
  insert.width = args.input(kIn["kv"]).dim(1);
  insert.half = state.dim(2) / 2;
  insert.kv = args.input(kIn["kv"]).as<const uint8_t>();
  insert.score = args.input(kIn["score"]).as<const uint8_t>();
  insert.ape = args.input(kIn["ape"]).as<const float>();
  insert.positions = IndicesOf(args.input(kIn["positions"]));
  PF_ASSIGN_OR_RETURN(insert.ratio, args.node->IntAttribute("compress_ratio", 1));
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadPaged(args, kPorts.cache));
  insert.rows = PlainRows(4 * state.dim(2), paged, state.data);
  if (insert.width > 0) insert.writes = SlotWrites(args.input(kPorts.slot_mapping));
  return insert;
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t ratio, node.IntAttribute("compress_ratio", 1));
  PF_ASSIGN_OR_RETURN(const int64_t width, NumberOf(node, kIn["kv"], 1));
  PF_ASSIGN_OR_RETURN(const int64_t block_size, NumberOf(node, kPorts.cache, 1));
  PF_ASSIGN_OR_RETURN(const int64_t row, NumberOf(node, kPorts.cache, 2));
  BodyWriter w;
  const KeptRows kept = WriteKeptRows(w, "slot_mapping", node.input(kPorts.slot_mapping)->dtype());
  const DataType type = node.input(kIn["kv"])->dtype();
  const auto rows = [&](const char* source) {
    return w.CastFrom(w.Call("Gather <axis = 0>", {source, kept.keep}), type, DataType::kFloat);
  };
  const std::string kv = rows("kv");
  const std::string score = rows("score");
  const std::string position = w.Call("Gather <axis = 0>", {"positions", kept.keep});
  const std::string ape =
      w.Call("Gather <axis = 0>",
             {"ape", w.Call("Mod", {w.Cast(position, DataType::kInt64), w.Int(ratio)})});
  const std::string sum = w.Call("Add", {score, ape});
  const std::string old_rows = w.Reshape("state_cache", {-1, row});
  std::vector<std::string> parts = {kv, sum};
  if (2 * width < row) {
    // Columns that the step does not fill stay as they are.
    const std::string before = w.Call("Gather <axis = 0>", {old_rows, kept.slots});
    parts = {kv, w.Slice(before, width, row / 2, 1), sum, w.Slice(before, row / 2 + width, row, 1)};
  }
  const std::string new_rows = w.Call("Concat <axis = 1>", parts);
  const std::string slots = w.Call("Unsqueeze", {kept.slots, w.Ints({1})});
  const std::string all = w.Call("ScatterND", {old_rows, slots, new_rows});
  w.Set("state_cache_out", StrCat("Reshape (", all, ", ", w.Ints({-1, block_size, row}), ")"));
  return w.Function("CompressorStateInsert", "kv, score, ape, positions, slot_mapping, state_cache",
                    "state_cache_out");
}

}  // namespace

OpDef CompressorStateInsertDef() {
  using enum DataType;
  OpDef op("pagefuse", "CompressorStateInsert", 1);
  op.Doc(
        "Writes the step's keys and scores as float into their slots of the compressor state, "
        "the scores with row (position mod compress_ratio) of ape added. A negative slot is "
        "skipped; of two tokens with one slot the later wins.")
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("compress_ratio", "tokens a window")
      .AtLeast(1)
      .Types("T", {kFloat, kBfloat16})
      .Types("P", {kInt64, kInt32})
      .Validate(Validate)
      .Decomposition(Decompose);
  return DeclareInsert(op, RunCall<MakeCall, InsertState>, RunCall<MakeCall, InsertStateHwy>);
}

}  // namespace pagefuse::pagefuse_ops
