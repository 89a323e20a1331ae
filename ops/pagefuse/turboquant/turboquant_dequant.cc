// SPDX-License-Identifier: Apache-2.0
// TurboQuantDequant: whole sequences of TurboQuant slots as float16. Equals vLLM's
// _tq_full_dequant_kv and the inverse rotation that follows it.
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/turboquant/turboquant.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/packed_batch.h"
#include "pagefuse/ops/pagefuse/run_call.h"
#include "pagefuse/ops/pagefuse/turboquant/turboquant.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    PortSpec("kv_cache", "uint8", "[NB, BS, Hk, S], BS >= 1, Hk >= 1, S >= slot_bytes, S % 2 = 0")
        .InBlocks(),
    PortSpec("block_table", "int32", "[B, M]").Metadata(),
    PortSpec("seq_lens", "int32", "[B]").Metadata(),
    PortSpec("rotation", "float", "[head_size, head_size]").Optional(),
    PortSpec("centroids", "float", "[2^key_bits]").Optional(),
});
constexpr Ports kOut({
    {"key", "float16", "[B, Hk, N, head_size]"},
    {"value", "float16", "[B, Hk, N, head_size]"},
});
constexpr TurboQuantPorts kPorts = TurboQuantPortsOf(kIn);
constexpr PackedBatchPorts kBatch = PackedBatchOf(kIn);
// Positions are int32, and a head is far smaller than this: sizes of slots cannot overflow.
constexpr int64_t kLargestHead = int64_t{1} << 20;

struct DequantAttributes {
  TurboQuantAttributes bits;
  int64_t head_size = 0;
  int64_t max_seq_len = 0;
  bool inverse_rotate = false;  // and the keys are rotated
};

absl::StatusOr<DequantAttributes> ReadAttributes(const Node& node) {
  DequantAttributes a;
  PF_ASSIGN_OR_RETURN(a.bits, ReadTurboQuantAttributes(node));
  PF_ASSIGN_OR_RETURN(a.head_size, node.IntAttribute("head_size", 0));
  PF_ASSIGN_OR_RETURN(a.max_seq_len, node.IntAttribute("max_seq_len", 0));
  PF_ASSIGN_OR_RETURN(const int64_t inverse, node.IntAttribute("inverse_rotate", 0));
  a.inverse_rotate = inverse != 0 && a.bits.key_bits != 8;
  return a;
}

absl::Status CheckRotation(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const DequantAttributes a, ReadAttributes(c.node()));
  return a.inverse_rotate ? CheckRotationGiven(c, kPorts, Dim(a.head_size)) : absl::OkStatus();
}

absl::StatusOr<TurboQuantDequantCall> MakeCall(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const DequantAttributes a, ReadAttributes(*args.node));
  TurboQuantDequantCall call;
  call.cache.format = a.bits.Format(a.head_size);
  call.cache.norm_correction = a.bits.norm_correction;
  call.cache.tables = ReadTurboQuantTables(args, kPorts, call.cache.format);
  const TensorArg& cache = args.input(kIn["kv_cache"]);
  const TensorArg& table = args.input(kIn["block_table"]);
  call.slots = TurboQuantSlots(cache);
  call.block_table = table.as<const int32_t>();
  call.seq_lens = args.input(kIn["seq_lens"]).as<const int32_t>();
  call.num_sequences = table.dim(0);
  call.table_columns = table.dim(1);
  call.num_heads = cache.dim(2);
  call.num_positions =
      a.max_seq_len > 0 ? a.max_seq_len : call.table_columns * call.slots.block_size;
  call.inverse_rotate = a.inverse_rotate;
  call.key = args.output(0).as<Float16>();
  call.value = args.output(1).as<Float16>();
  return call;
}

absl::Status CheckSequence(const KernelArgs& args, const TurboQuantDequantCall& call, int64_t b) {
  const int64_t block_size = call.slots.block_size;
  PF_RETURN_IF_ERROR(CheckLength(args, kBatch, b, block_size));
  const int64_t length = call.seq_lens[b];
  if (length > call.num_positions) {
    return InputValueError(
        args, kIn["seq_lens"],
        StrCat("expected at most the ", call.num_positions,
               " positions of attribute \"max_seq_len\", got ", length, " at sequence ", b));
  }
  const TableColumns used = {0, (length + block_size - 1) / block_size};
  return CheckBlocks(args, kBatch, b, used, call.slots.num_blocks);
}

absl::Status Validate(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const TurboQuantDequantCall call, MakeCall(args));
  for (int64_t b = 0; b < call.num_sequences; ++b) {
    PF_RETURN_IF_ERROR(CheckSequence(args, call, b));
  }
  return ValidateCentroids(args, kPorts);
}

// What decides the nodes.
struct DequantText {
  TurboQuantBody body;
  bool inverse_rotate = false;
  int64_t head_size = 0;
  int64_t max_seq_len = 0;  // 0: all positions of the table
};

void WriteSlots(const DequantText& text, BodyWriter& w) {
  const std::string gathered = w.Add("Gather <axis = 0> (kv_cache, block_table)");
  const std::string batch = w.Add("Shape <start = 0, end = 1> (block_table)");
  const std::string columns = w.Add("Shape <start = 1, end = 2> (block_table)");
  const std::string block_size = w.Add("Shape <start = 1, end = 2> (kv_cache)");
  const std::string positions = w.Add(StrCat("Mul (", columns, ", ", block_size, ")"));
  const std::string tail = w.Add("Shape <start = 2> (kv_cache)");
  const std::string shape =
      w.Add(StrCat("Concat <axis = 0> (", batch, ", ", positions, ", ", tail, ")"));
  if (text.max_seq_len == 0) {
    w.Set("slots", StrCat("Reshape (", gathered, ", ", shape, ")"));
    return;
  }
  const std::string all = w.Add(StrCat("Reshape (", gathered, ", ", shape, ")"));
  const std::string wanted = w.Constant("wanted", StrCat("value_int: int = ", text.max_seq_len));
  const std::string wanted1 = w.Add(StrCat("Unsqueeze (", wanted, ", ", w.Ints({0}), ")"));
  const std::string missing = w.Add(StrCat("Sub (", wanted1, ", ", positions, ")"));
  const std::string more = w.Add(StrCat("Max (", missing, ", ", w.Ints({0}), ")"));
  const std::string pads = w.Add(StrCat("Concat <axis = 0> (", w.Ints({0, 0, 0, 0, 0}), ", ", more,
                                        ", ", w.Ints({0, 0}), ")"));
  const std::string padded = w.Add(StrCat("Pad (", all, ", ", pads, ")"));
  w.Set("slots",
        StrCat("Slice (", padded, ", ", w.Ints({0}), ", ", wanted1, ", ", w.Ints({1}), ")"));
}

std::string BodyText(const DequantText& text) {
  BodyWriter w;
  const std::string size = w.Constant("head_size", StrCat("value_int: int = ", text.head_size));
  w.Set("d", StrCat("Unsqueeze (", size, ", ", w.Ints({0}), ")"));
  // The rotation matters to the way back alone.
  TurboQuantBody tables = text.body;
  tables.has_rotation = tables.has_rotation || !text.inverse_rotate;
  WriteTurboQuantTables(tables, w);
  WriteSlots(text, w);
  WriteTurboQuantRows(text.body, w);
  const std::string count = w.Add("Shape <start = 1, end = 2> (slots)");
  const std::string limit = w.Add(StrCat("Squeeze (", count, ")"));
  const std::string position = w.Add(StrCat("Range (", w.Int(0), ", ", limit, ", ", w.Int(1), ")"));
  const std::string lengths = w.Add("Cast <to = 7> (seq_lens)");
  const std::string column = w.Add(StrCat("Unsqueeze (", lengths, ", ", w.Ints({1}), ")"));
  const std::string inside = w.Add(StrCat("Less (", position, ", ", column, ")"));
  w.Set("written", StrCat("Unsqueeze (", inside, ", ", w.Ints({1, 3}), ")"));
  const std::string zero = w.Float(0);
  w.Set("zero16", StrCat("Cast <to = 10> (", zero, ")"));
  std::string key = w.Add("Transpose <perm = [0, 2, 1, 3]> (k_rows)");
  key = w.Add(StrCat("Cast <to = 10> (", key, ")"));
  if (text.inverse_rotate) {
    key = w.Add(StrCat("Cast <to = 1> (", key, ")"));
    const std::string narrow = w.Add("Cast <to = 10> (rotation)");
    const std::string rounded = w.Add(StrCat("Cast <to = 1> (", narrow, ")"));
    key = w.Add(StrCat("MatMul (", key, ", ", rounded, ")"));
    key = w.Add(StrCat("Cast <to = 10> (", key, ")"));
  }
  w.Set("key", StrCat("Where (written, ", key, ", zero16)"));
  const std::string values = w.Add("Transpose <perm = [0, 2, 1, 3]> (v_rows)");
  const std::string value = w.Add(StrCat("Cast <to = 10> (", values, ")"));
  w.Set("value", StrCat("Where (written, ", value, ", zero16)"));
  const bool rotated = text.body.has_rotated_keys();
  return StrCat("<domain: \"pagefuse\", opset_import: [\"\" : 26]>\n",
                "TurboQuantDequant (kv_cache, block_table, seq_lens",
                text.inverse_rotate && text.body.has_rotation ? ", rotation" : "",
                rotated && text.body.has_centroids ? ", centroids" : "", ") => (key, value) {\n",
                w.lines(), "}\n");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const DequantAttributes a, ReadAttributes(node));
  DequantText text;
  PF_ASSIGN_OR_RETURN(text.body, ReadTurboQuantBody(node, kPorts, a.head_size));
  text.inverse_rotate = a.inverse_rotate;
  text.head_size = a.head_size;
  text.max_seq_len = a.max_seq_len;
  return BodyText(text);
}

}  // namespace

OpDef TurboQuantDequantDef() {
  OpDef op("pagefuse", "TurboQuantDequant", 1);
  op.Doc(
        "Unpacks whole sequences of TurboQuant slots to float16; positions past their length are "
        "zero.")
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("head_size")
      .Within(1, kLargestHead);
  return AddTurboQuantBits(op)
      .FlagAttr("norm_correction", int64_t{0},
                "1: vectors of centroids are divided by their length")
      .FlagAttr("inverse_rotate", int64_t{0}, "1: keys are brought back from the rotated space")
      .Attr("max_seq_len", int64_t{0}, "positions of the outputs; 0: M * BS")
      .AtLeast(0)
      .Let("N", "max_seq_len if max_seq_len, else M * BS")
      .Let("slot_bytes", "bytes of a slot, by head_size, key_bits and value_bits",
           SlotBytes("head_size", -1))
      .InferShapes(CheckRotation)
      .Validate(Validate)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = RunCall<MakeCall, DequantTurboQuant>})
      .AddKernel({.name = "hwy", .priority = 10, .run = RunCall<MakeCall, DequantTurboQuantHwy>});
}

}  // namespace pagefuse::pagefuse_ops
