// SPDX-License-Identifier: Apache-2.0
// CompressCacheInsert in standard ONNX ops, as text.
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/cache/compress_cache_insert.h"

namespace pagefuse::pagefuse_ops {
namespace {

// What the text depends on.
struct BodyOptions {
  CompressAttributes attributes;
  DataType position_type, slot_type, kv_slot_type, weight_type, table_type, cache_type;
  int64_t size = 0;                 // D
  int64_t rotated = 0;              // R
  int64_t state_block_size = 0;     // tokens
  std::vector<int64_t> cache_dims;  // of kv_cache, the first -1

  int64_t half() const { return (1 + attributes.window.overlap) * size; }
};

// The tokens that are written: their numbers, slots, positions and requests.
struct Boundary {
  std::string token, slots, position, request;
};

Boundary WriteBoundary(BodyWriter& w, const BodyOptions& o) {
  const std::string positions = w.CastFrom("positions", o.position_type, DataType::kInt64);
  const std::string state_slots = w.CastFrom("slot_mapping", o.slot_type, DataType::kInt64);
  const std::string kv_slots = w.CastFrom("kv_slot_mapping", o.kv_slot_type, DataType::kInt64);
  const std::string phase =
      w.Call("Mod", {w.Call("Add", {positions, w.Int(1)}), w.Int(o.attributes.window.ratio)});
  const std::string ends = w.Call("Equal", {phase, w.Int(0)});
  const std::string inside =
      w.Call("And", {ends, w.Call("GreaterOrEqual", {state_slots, w.Int(0)})});
  w.Comment("the tokens that are written");
  const std::string written =
      w.Call("And", {w.Call("GreaterOrEqual", {kv_slots, w.Int(0)}), inside});
  const std::string keep = w.Call("Squeeze", {w.Call("NonZero", {written}), w.Ints({0})});
  const auto kept = [&](const std::string& x) { return w.Call("Gather <axis = 0>", {x, keep}); };
  return {keep, kept(kv_slots), kept(positions), w.Cast(kept("token_to_req"), DataType::kInt64)};
}

// The window of each token that is written: kv and score [N, rows, D], masked where absent.
struct WindowText {
  std::string kv, score;
};

WindowText WriteWindow(BodyWriter& w, const BodyOptions& o, const Boundary& boundary) {
  w.Comment("the window of each boundary token");
  const int64_t rows = o.attributes.window.rows();
  const std::string row = w.Call("Range", {w.Int(0), w.Int(rows), w.Int(1)});
  const std::string first = w.Call("Sub", {boundary.position, w.Int(rows - 1)});
  const std::string position = w.Call("Add", {w.Call("Unsqueeze", {first, w.Ints({1})}), row});
  const std::string present = w.Call("GreaterOrEqual", {position, w.Int(0)});
  const std::string token = w.Call("Max", {position, w.Int(0)});
  const std::string table = w.Cast("block_table", DataType::kInt64);
  const std::string blocks = w.Call("Gather <axis = 0>", {table, boundary.request});
  const std::string block_size = w.Int(o.state_block_size);
  const std::string block =
      w.Call("GatherElements <axis = 1>", {blocks, w.Call("Div", {token, block_size})});
  const std::string slot =
      w.Call("Add", {w.Call("Mul", {block, block_size}), w.Call("Mod", {token, block_size})});
  const std::string state = w.Reshape("state_cache", {-1, 2 * o.half()});
  const std::string state_rows = w.Call("Gather <axis = 0>", {state, slot});
  std::string kv = w.Slice(state_rows, 0, o.size, 2);
  std::string score = w.Slice(state_rows, o.half(), o.half() + o.size, 2);
  if (o.attributes.window.overlap == 1) {
    w.Comment("overlap: the newer half of the window uses the second column block");
    const std::string newer =
        w.Call("Unsqueeze",
               {w.Call("GreaterOrEqual", {row, w.Int(o.attributes.window.ratio)}), w.Ints({0, 2})});
    kv = w.Call("Where", {newer, w.Slice(state_rows, o.size, 2 * o.size, 2), kv});
    score = w.Call(
        "Where", {newer, w.Slice(state_rows, o.half() + o.size, o.half() + 2 * o.size, 2), score});
  }
  const std::string mask = w.Call("Unsqueeze", {present, w.Ints({2})});
  const std::string least = w.Call("Log", {w.Float(0)});
  return {w.Call("Where", {mask, kv, w.Float(0)}), w.Call("Where", {mask, score, least})};
}

std::string WriteCompressed(BodyWriter& w, const BodyOptions& o, const Boundary& boundary) {
  const WindowText window = WriteWindow(w, o, boundary);
  const std::string weights = w.Call("Softmax <axis = 1>", {window.score});
  const std::string compressed =
      w.Call("ReduceSum <keepdims = 0>", {w.Call("Mul", {window.kv, weights}), w.Ints({1})});
  w.Comment("norm");
  const std::string normed = WriteNorm(w, compressed, w.FloatAttribute("eps"));
  const std::string weight = w.CastFrom("rms_weight", o.weight_type, DataType::kFloat);
  const std::string scaled = w.Call("Mul", {normed, weight});
  w.Comment("rotation to the first position of the window");
  const std::string ratio = w.Int(o.attributes.window.ratio);
  const std::string row = o.attributes.cos_sin_rows
                              ? boundary.token
                              : w.Call("Mul", {w.Call("Div", {boundary.position, ratio}), ratio});
  const CosSinText table = WriteCosSin(w, "cos_sin", o.table_type, row);
  const RopeLayout layout = {o.rotated / 2, o.size - o.rotated, /*interleaved=*/true};
  return WriteRope(w, scaled, table, {layout, o.size, 0});
}

// Float rows [N, D] as codes.
absl::Status WriteCoded(BodyWriter& w, const BodyOptions& o, const std::string& row,
                        const Boundary& boundary) {
  const CompressAttributes& a = o.attributes;
  PF_ASSIGN_OR_RETURN(const GroupedRowFormat format, a.RowFormat(o.size, o.rotated));
  const std::string rounded = w.Cast(row, DataType::kBfloat16);
  GroupedRowsText rows = {rounded, ""};
  if (format.plain > 0) {
    rows.x = w.Slice(rounded, 0, format.coded, 1);
    rows.tail = WriteBytes(w, w.Slice(rounded, format.coded, format.elements(), 1),
                           DataType::kBfloat16, format.plain);
  }
  rows.x = w.Cast(rows.x, DataType::kFloat);
  if (a.hadamard) rows.x = WriteHadamardRotation(w, rows.x, {-1, o.size}, /*round=*/true);
  // The first dim is -1.
  const int64_t block_bytes =
      -std::accumulate(o.cache_dims.begin(), o.cache_dims.end(), int64_t{1}, std::multiplies<>());
  WriteGroupedPut(w,
                  {.format = format,
                   .paged = {.block_size = a.kv_block_size, .block_bytes = block_bytes},
                   .cache_dims = o.cache_dims},
                  rows, boundary.slots);
  return absl::OkStatus();
}

absl::StatusOr<BodyOptions> ReadOptions(const Node& node) {
  BodyOptions o;
  PF_ASSIGN_OR_RETURN(o.attributes, ReadCompress(node));
  o.position_type = node.input(kCcIn["positions"])->dtype();
  o.slot_type = node.input(kCcIn["slot_mapping"])->dtype();
  o.kv_slot_type = node.input(kCcIn["kv_slot_mapping"])->dtype();
  o.weight_type = node.input(kCcIn["rms_weight"])->dtype();
  o.table_type = node.input(kCcIn["cos_sin"])->dtype();
  o.cache_type = node.input(kCcIn["kv_cache"])->dtype();
  PF_ASSIGN_OR_RETURN(o.size, NumberOf(node, kCcIn["rms_weight"], 0));
  PF_ASSIGN_OR_RETURN(o.rotated, NumberOf(node, kCcIn["cos_sin"], 1));
  PF_ASSIGN_OR_RETURN(o.state_block_size, NumberOf(node, kCcIn["state_cache"], 1));
  const Value& cache = *node.input(kCcIn["kv_cache"]);
  o.cache_dims = {-1};
  for (int axis = 1; cache.shape() && axis < cache.shape()->rank(); ++axis) {
    PF_ASSIGN_OR_RETURN(o.cache_dims.emplace_back(), NumberOf(node, kCcIn["kv_cache"], axis));
  }
  return o;
}

}  // namespace

absl::StatusOr<std::string> DecomposeCompressCacheInsert(const Node& node) {
  PF_ASSIGN_OR_RETURN(const BodyOptions o, ReadOptions(node));
  const CompressAttributes& a = o.attributes;
  BodyWriter w;
  const Boundary boundary = WriteBoundary(w, o);
  const std::string row = WriteCompressed(w, o, boundary);
  if (a.is_plain()) {
    PF_ASSIGN_OR_RETURN(const int64_t block_size, NumberOf(node, kCcIn["kv_cache"], 1));
    WriteRowPut(w, {.block_size = block_size, .width = o.size},
                w.CastFrom(row, DataType::kFloat, o.cache_type), boundary.slots);
  } else {
    PF_RETURN_IF_ERROR(WriteCoded(w, o, row, boundary));
  }
  return w.Function("CompressCacheInsert",
                    "state_cache, token_to_req, positions, slot_mapping, block_table, "
                    "rms_weight, cos_sin, kv_slot_mapping, kv_cache",
                    "kv_cache_out");
}

}  // namespace pagefuse::pagefuse_ops
