// SPDX-License-Identifier: Apache-2.0
// TurboQuantInsert: writes the step's keys and values into their TurboQuant slots. Equals vLLM's
// triton_turboquant_store.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/turboquant/turboquant.h"
#include "pagefuse/ops/pagefuse/cache/cache_insert_body.h"
#include "pagefuse/ops/pagefuse/cache/insert_op.h"
#include "pagefuse/ops/pagefuse/turboquant/turboquant.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"key", "T", "[T', Hk, D]"},
    {"value", "T", "[T', Hk, D]"},
    PortSpec("kv_cache", "uint8", "[NB, BS, Hk, S], BS >= 1, Hk >= 1, S >= slot_bytes, S % 2 = 0")
        .InBlocks(),
    PortSpec("slot_mapping", "I", "[T], T <= T'").Metadata(),
    PortSpec("rotation", "float", "[D, D]").Optional(),
    PortSpec("centroids", "float", "[2^key_bits]").Optional(),
});
constexpr Ports kOut({{"kv_cache_out", "uint8", "as kv_cache"}});

constexpr TurboQuantPorts kPorts = TurboQuantPortsOf(kIn);
constexpr InsertPorts kInsert = InsertPortsOf(kIn);

absl::Status CheckRotation(ShapeContext& c) { return CheckRotationGiven(c, kPorts, c.size("D")); }

absl::StatusOr<TurboQuantInsertCall> MakeCall(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const TurboQuantAttributes attributes, ReadTurboQuantAttributes(*args.node));
  const TensorArg& key = args.input(kIn["key"]);
  TurboQuantInsertCall call;
  call.format = attributes.Format(key.dim(2));
  call.tables = ReadTurboQuantTables(args, kPorts, call.format);
  call.source_type = key.dtype;
  call.key = key.as<const uint8_t>();
  call.value = args.input(kIn["value"]).as<const uint8_t>();
  call.heads = key.dim(1);
  call.slots = TurboQuantSlots(args.output(0));
  call.writes = SlotWrites(args.input(kInsert.slot_mapping));
  return call;
}

// Half of the step from 65504 to what would be the next float16: from here on numbers are infinite.
constexpr double kFloat16End = 65520;

// DataLoss for finite numbers whose fields of a slot float16 cannot hold: attention over an
// infinite norm, scale or zero is NaN.
absl::Status CheckKey(const TurboQuantFormat& format, const std::vector<float>& key) {
  if (!format.has_centroids()) return absl::OkStatus();
  double squares = 0;
  for (const float x : key) squares += static_cast<double>(x) * x;
  const double norm = std::sqrt(squares);
  if (!std::isfinite(norm) || norm < kFloat16End) return absl::OkStatus();
  return absl::DataLossError(
      StrCat("a row has the norm ", norm, ", and float16, in which a slot has it, ends at 65504"));
}

absl::Status CheckValue(const TurboQuantFormat& format, const std::vector<float>& value) {
  const auto [low, high] = std::minmax_element(value.begin(), value.end());
  if (value.empty() || !std::isfinite(*low) || !std::isfinite(*high)) return absl::OkStatus();
  const double scale = (static_cast<double>(*high) - *low) / ((1 << format.value_bits) - 1);
  const double largest = std::max(scale, std::abs(static_cast<double>(*low)));
  if (largest < kFloat16End) return absl::OkStatus();
  return absl::DataLossError(
      StrCat("a row reaches from ", *low, " to ", *high,
             ", and float16, in which a slot has its least and its step, ends at 65504"));
}

// With the cache and the keys or values that it belongs to, which say the layer.
absl::Status OfCache(const KernelArgs& args, int input, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::DataLossError(StrCat("the cache \"", args.node->input(kIn["kv_cache"])->name(),
                                    "\" for \"", args.node->input(input)->name(),
                                    "\": ", StdView(status.message())));
}

absl::Status CheckRows(const KernelArgs& args, const TurboQuantInsertCall& call) {
  const int64_t size = call.format.head_size;
  const int64_t row_bytes = size * BitWidth(call.source_type) / 8;
  std::vector<float> row(size);
  for (const SlotWrite& write : call.writes) {
    for (int64_t head = 0; head < call.heads; ++head) {
      const int64_t offset = (write.token * call.heads + head) * row_bytes;
      PF_RETURN_IF_ERROR(DecodeToFloat(call.source_type, call.key + offset, size, row.data()));
      PF_RETURN_IF_ERROR(OfCache(args, kIn["key"], CheckKey(call.format, row)));
      PF_RETURN_IF_ERROR(DecodeToFloat(call.source_type, call.value + offset, size, row.data()));
      PF_RETURN_IF_ERROR(OfCache(args, kIn["value"], CheckValue(call.format, row)));
    }
  }
  return absl::OkStatus();
}

absl::Status Validate(const KernelArgs& args) {
  PF_RETURN_IF_ERROR(ValidSlots(kInsert)(args));
  PF_RETURN_IF_ERROR(ValidateCentroids(args, kPorts));
  if (!IsKnown(args.input(kIn["key"])) || !IsKnown(args.input(kIn["value"]))) {
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(const TurboQuantInsertCall call, MakeCall(args));
  return CheckRows(args, call);
}

// What decides the nodes besides the bits.
struct InsertText {
  TurboQuantBody body;
  DataType source_type = DataType::kFloat;
  bool has_padding = false;  // slots may be wider than needed
};

std::string BodyText(const InsertText& text) {
  const TurboQuantBody& body = text.body;
  BodyWriter w;
  w.Set("d", "Shape <start = 2, end = 3> (key)");
  WriteTurboQuantTables(body, w);
  const std::string from = text.source_type == DataType::kFloat ? "Identity" : "Cast <to = 1>";
  w.Set("k", StrCat(from, " (", w.Add("Gather <axis = 0> (key, keep)"), ")"));
  w.Set("v", StrCat(from, " (", w.Add("Gather <axis = 0> (value, keep)"), ")"));
  std::string pieces = WriteTurboQuantCodes(body, w);
  const std::string tail = w.Add("Shape <start = 2> (kv_cache)");
  const std::string by_slot = w.Add(StrCat("Concat <axis = 0> (minus_one, ", tail, ")"));
  w.Set("flat", StrCat("Reshape (kv_cache, ", by_slot, ")"));
  if (text.has_padding) {
    w.Comment("bytes past the slot keep what they held");
    const std::string used = w.Add(StrCat("Concat <axis = -1> (", pieces, ")"));
    const std::string size = w.Add(StrCat("Shape <start = 2> (", used, ")"));
    const std::string old = w.Add("GatherND (flat, slots)");
    const std::string end = w.Add("Shape <start = 3> (kv_cache)");
    const std::string rest =
        w.Add(StrCat("Slice (", old, ", ", size, ", ", end, ", ", w.Ints({2}), ")"));
    pieces = StrCat(used, ", ", rest);
  }
  w.Set("rows", StrCat("Concat <axis = -1> (", pieces, ")"));
  w.Set("new", "ScatterND (flat, slots, rows)");
  w.Set("cache_shape", "Shape (kv_cache)");
  w.Set("kv_cache_out", "Reshape (new, cache_shape)");
  const bool tables = body.has_rotated_keys();
  return StrCat("<domain: \"pagefuse\", opset_import: [\"\" : 26]>\n",
                "TurboQuantInsert (key, value, kv_cache, slot_mapping",
                tables && body.has_rotation ? ", rotation" : "",
                tables && body.has_centroids ? ", centroids" : "", ") => (kv_cache_out) {\n",
                SlotNodes(), w.lines(), "}\n");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  InsertText text;
  PF_ASSIGN_OR_RETURN(text.body,
                      ReadTurboQuantBody(node, kPorts, NumberOf(node, kIn["key"], 2).value_or(-1)));
  text.source_type = node.input(kIn["key"])->dtype();
  const TurboQuantFormat format{text.body.key_bits, text.body.value_bits,
                                NumberOf(node, kIn["key"], 2).value_or(-1)};
  text.has_padding =
      format.head_size < 0 || NumberOf(node, kIn["kv_cache"], 3).value_or(-1) != format.SlotBytes();
  return BodyText(text);
}

}  // namespace

OpDef TurboQuantInsertDef() {
  using enum DataType;
  OpDef op("pagefuse", "TurboQuantInsert", 1);
  op.Doc(
        "Writes the step's keys and values into their TurboQuant slots: keys as a norm and codes "
        "of the rotated, normalised row (or as float8e4m3fn), values as codes with scale and "
        "zero. A negative slot is skipped; of two tokens with one slot the later wins. Norms, scales "
        "and zeros beyond float16 are an error.")
      .Inputs(kIn)
      .Outputs(kOut);
  AddTurboQuantBits(op)
      .Types("T", {kFloat, kFloat16, kBfloat16})
      .Let("slot_bytes", "bytes of a slot, by D, key_bits and value_bits",
           SlotBytes("D", kIn["key"]))
      .InferShapes(CheckRotation)
      .Validate(Validate)
      .Decomposition(Decompose);
  return DeclareInsert(op, RunCall<MakeCall, InsertTurboQuant>,
                       RunCall<MakeCall, InsertTurboQuantHwy>);
}

}  // namespace pagefuse::pagefuse_ops
