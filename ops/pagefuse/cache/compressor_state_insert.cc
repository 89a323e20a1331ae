// CompressorStateInsert: stores the step's keys and scores, the scores with the position embedding
// of their window added, as compressor state. Equals vLLM's save_partial_states.
#include "pagefuse/ops/kernels/inserts/compressor_state_insert.h"

#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/run_call.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"kv", "T", "[T, w]"},
    {"score", "T", "[T, w]"},
    {"ape", "float", "[compress_ratio, w]"},
    PortSpec("positions", "P", "[T'']: one for each slot, and more").Metadata(),
    PortSpec("slot_mapping", "I", "[T'], T' <= T, T' <= T''").Metadata(),
    {"state_cache", "float", "[NB, BS, 2 * W], W >= w"},
});
constexpr Ports kOut({{"state_cache_out", "float", "as state_cache"}});

absl::Status Validate(const KernelArgs& args) {
  const TensorArg& state = args.input(kIn["state_cache"]);
  PF_RETURN_IF_ERROR(CheckSlots(args, kIn["slot_mapping"], state.dim(0), state.dim(1)));
  for (int64_t t = 0; t < args.input(kIn["slot_mapping"]).size(); ++t) {
    const int64_t position = IndexAt(args.input(kIn["positions"]), t);
    if (IndexAt(args.input(kIn["slot_mapping"]), t) < 0 || position >= 0) continue;
    return InputValueError(args, kIn["positions"],
                           StrCat("expected positions of at least 0, got ", position, " at ", t));
  }
  return absl::OkStatus();
}

absl::StatusOr<StateInsert> MakeCall(const KernelArgs& args) {
  const TensorArg& state = args.output(0);
  const int64_t row_bytes = 4 * state.dim(2);
  StateInsert insert;
  insert.type = args.input(kIn["kv"]).dtype;
  insert.width = args.input(kIn["kv"]).dim(1);
  insert.half = state.dim(2) / 2;
  insert.kv = args.input(kIn["kv"]).as<const uint8_t>();
  insert.score = args.input(kIn["score"]).as<const uint8_t>();
  insert.ape = args.input(kIn["ape"]).as<const float>();
  insert.rows =
      PlainRows(row_bytes, {state.dim(0), state.dim(1), state.dim(1) * row_bytes}, state.data);
  PF_ASSIGN_OR_RETURN(const int64_t ratio, args.node->IntAttribute("compress_ratio", 1));
  if (insert.width == 0) return insert;
  for (const SlotWrite& write : SlotWrites(args.input(kIn["slot_mapping"]))) {
    insert.writes.push_back(
        {write.token, write.slot, IndexAt(args.input(kIn["positions"]), write.token) % ratio});
  }
  return insert;
}

// Sizes and types that the text depends on.
struct BodyOptions {
  DataType type = DataType::kFloat;
  DataType slot_type = DataType::kInt64;
  int64_t ratio = 1;
  int64_t width = 0;
  int64_t block_size = 0;
  int64_t row = 0;
};

std::string Body(const BodyOptions& o) {
  BodyWriter w;
  const KeptRows kept = WriteKeptRows(w, "slot_mapping", o.slot_type);
  const auto rows = [&](const char* source) {
    return w.CastFrom(w.Call("Gather <axis = 0>", {source, kept.keep}), o.type, DataType::kFloat);
  };
  const std::string kv = rows("kv");
  const std::string score = rows("score");
  const std::string position = w.Call("Gather <axis = 0>", {"positions", kept.keep});
  const std::string ape =
      w.Call("Gather <axis = 0>",
             {"ape", w.Call("Mod", {w.Cast(position, DataType::kInt64), w.Int(o.ratio)})});
  const std::string sum = w.Call("Add", {score, ape});
  const std::string old_rows = w.Reshape("state_cache", {-1, o.row});
  std::vector<std::string> parts = {kv, sum};
  if (2 * o.width < o.row) {
    // Columns that the step does not fill stay as they are.
    const std::string before = w.Call("Gather <axis = 0>", {old_rows, kept.slots});
    parts = {kv, w.Slice(before, o.width, o.row / 2, 1), sum,
             w.Slice(before, o.row / 2 + o.width, o.row, 1)};
  }
  const std::string new_rows = w.Call("Concat <axis = 1>", parts);
  const std::string slots = w.Call("Unsqueeze", {kept.slots, w.Ints({1})});
  const std::string all = w.Call("ScatterND", {old_rows, slots, new_rows});
  w.Set("state_cache_out", StrCat("Reshape (", all, ", ", w.Ints({-1, o.block_size, o.row}), ")"));
  return w.Function("CompressorStateInsert", "kv, score, ape, positions, slot_mapping, state_cache",
                    "state_cache_out");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  BodyOptions o;
  o.type = node.input(kIn["kv"])->dtype();
  o.slot_type = node.input(kIn["slot_mapping"])->dtype();
  PF_ASSIGN_OR_RETURN(o.ratio, node.IntAttribute("compress_ratio", 1));
  PF_ASSIGN_OR_RETURN(o.width, NumberOf(node, kIn["kv"], 1));
  PF_ASSIGN_OR_RETURN(o.block_size, NumberOf(node, kIn["state_cache"], 1));
  PF_ASSIGN_OR_RETURN(o.row, NumberOf(node, kIn["state_cache"], 2));
  return Body(o);
}

}  // namespace

OpDef CompressorStateInsertDef() {
  using enum DataType;
  return OpDef("pagefuse", "CompressorStateInsert", 1)
      .Doc(
          "Writes the step's keys and scores as float into their slots of the compressor state, "
          "the scores with row (position mod compress_ratio) of ape added. A negative slot is "
          "skipped; of two tokens with one slot the later wins.")
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("compress_ratio", "tokens a window")
      .AtLeast(1)
      .Types("T", {kFloat, kBfloat16})
      .Types("P", {kInt64, kInt32})
      .Types("I", {kInt64, kInt32})
      .Validate(Validate)
      .Decomposition(Decompose)
      .Alias(kOut["state_cache_out"], kIn["state_cache"])
      .AddKernel({.name = "reference", .run = RunCall<MakeCall, InsertState>})
      .AddKernel({.name = "hwy", .priority = 10, .run = RunCall<MakeCall, InsertStateHwy>});
}

}  // namespace pagefuse::pagefuse_ops
