// SPDX-License-Identifier: Apache-2.0
// Fusions of TurboQuantInsert and TurboQuantDequant, which write rows of keys and values to
// TurboQuant slots and read whole sequences from them.
#include <algorithm>
#include <random>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"
#include "pagefuse/passes/fuse/equivalent/attribute_numbers.h"
#include "pagefuse/passes/fuse/equivalent/cache_views.h"
#include "pagefuse/passes/fuse/equivalent/fusion_parts.h"
#include "pagefuse/passes/fuse/equivalent/fusions.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

// Which tables a graph has of its own; the op has defaults for both.
struct TableInputs {
  bool rotation = false;
  bool centroids = false;
};
constexpr TableInputs kTableInputs[] = {{false, false}, {true, false}, {true, true}, {false, true}};

// Mixes of bits whose slots fit.
std::vector<TurboQuantFormat> FormatsFor(int64_t head_size, int64_t slot_bytes,
                                         const TableInputs& tables) {
  std::vector<TurboQuantFormat> formats;
  for (int key_bits : {8, 4, 3}) {
    for (int value_bits : {4, 3}) {
      const TurboQuantFormat format = {key_bits, value_bits, head_size};
      const bool unused = !format.has_centroids() && (tables.rotation || tables.centroids);
      if (unused || !CheckHeadSize(format).ok() || format.SlotBytes() > slot_bytes) continue;
      formats.push_back(format);
    }
  }
  return formats;
}

// Whether the value is a float table of these dims; 0 stands for 8 or 16.
bool IsTable(const Value& value, const std::vector<int64_t>& dims) {
  const int rank = static_cast<int>(dims.size());
  if (value.dtype() != DataType::kFloat || Rank(value) != rank) return false;
  for (int axis = 0; axis < rank; ++axis) {
    const int64_t dim = BackDim(value, rank - axis);
    if (dims[axis] > 0 ? dim != dims[axis] : dim != 8 && dim != 16) return false;
  }
  return true;
}

void AddTablePorts(const TableInputs& tables, int64_t head_size, std::vector<FusionPort>& ports) {
  const auto table = [](std::string name, ProbeRole role, std::vector<int64_t> dims) {
    return MetadataPort(std::move(name), role, [dims = std::move(dims)](const Value& value) {
      return IsTable(value, dims);
    });
  };
  if (tables.rotation) {
    ports.push_back(table("rotation", ProbeRole::kTable, {head_size, head_size}));
  }
  if (tables.centroids) ports.push_back(table("centroids", ProbeRole::kLevels, {0}));
}

bool TablesFit(const TableInputs& tables, const TurboQuantFormat& format, const BoundPorts& ports) {
  return !tables.centroids || BackDim(*ports.at("centroids"), 1) == format.NumCentroids();
}

// The op's last inputs, for a rotation as the op takes it or transposed.
std::string TablesText(const TableInputs& tables, bool transposed) {
  if (!tables.rotation) return tables.centroids ? ", , centroids" : "";
  return StrCat(transposed ? ", turned" : ", rotation", tables.centroids ? ", centroids" : "");
}
std::string TurnText(const TableInputs& tables, bool transposed) {
  return tables.rotation && transposed ? "turned = Transpose <perm = [1, 0]> (rotation)  " : "";
}
std::string TablesFormal(const TableInputs& tables) {
  return StrCat(tables.rotation ? ", rotation" : "", tables.centroids ? ", centroids" : "");
}

// Norms and rotations are sums: here and there a code is another one.
constexpr ResultRule kSlotBytes = {.share = 0.002};
// Sums of products, rounded to float16.
constexpr ResultRule kUnpacked = {.relative = 1.0 / 1000, .of_largest = 1e-5, .unequal = 0.01};

// --- TurboQuantInsert ---

struct SlotInsert {
  Value* output = nullptr;
  int64_t heads = 0;
  int64_t head_size = 0;
  int64_t slot_bytes = 0;
  int64_t block_size = 1;
  TableInputs tables = {};
};

std::string InsertText(const SlotInsert& insert, const SlotForm& slots, const BoundPorts& ports,
                       const TurboQuantFormat& format, bool transposed) {
  const std::vector<int64_t> tail = {insert.heads, insert.head_size};
  const CacheView view = ViewCache(
      *insert.output, "kv_cache",
      StrCat("[-1, ", insert.block_size, ", ", insert.heads, ", ", insert.slot_bytes, "]"));
  return StrCat("(kv_cache, ", slots.formal, ", key, value", TablesFormal(insert.tables),
                ") => (kv_cache_out) { ", view.before, slots.text,
                RowsText("key_rows", "key", ports, slots, tail),
                RowsText("value_rows", "value", ports, slots, tail),
                TurnText(insert.tables, transposed),
                "written = pagefuse.TurboQuantInsert <key_bits = ", format.key_bits,
                ", value_bits = ", format.value_bits, "> (key_rows, value_rows, cache, slots",
                TablesText(insert.tables, transposed), ")  ", view.after, "}");
}

// One text for each format, and each way round of a rotation, that the bound ports may have.
std::vector<std::string> InsertTexts(const SlotInsert& insert, const SlotForm& slots,
                                     const BoundPorts& ports) {
  std::vector<std::string> texts;
  for (const TurboQuantFormat& format :
       FormatsFor(insert.head_size, insert.slot_bytes, insert.tables)) {
    if (!TablesFit(insert.tables, format, ports)) continue;
    for (const bool transposed : {false, true}) {
      if (transposed && !insert.tables.rotation) continue;
      texts.push_back(InsertText(insert, slots, ports, format, transposed));
    }
  }
  return texts;
}

absl::StatusOr<bool> FuseInsert(FusionSearch& search, const SlotInsert& insert) {
  return AnyFuses(SlotForms(insert.block_size), [&](const SlotForm& slots) {
    std::vector<FusionPort> ports = {CachePort("kv_cache", insert.output)};
    ports.insert(ports.end(), slots.ports.begin(), slots.ports.end());
    AddTablePorts(insert.tables, insert.head_size, ports);
    ports.push_back(RowPort("key", {insert.heads, insert.head_size}));
    ports.push_back(RowPort("value", {insert.heads, insert.head_size}));
    const auto draft = [&](const BoundPorts& bound, const ComputedRegion&) {
      Draft result;
      if (bound.at("key")->dtype() != bound.at("value")->dtype()) return result;
      result.texts = InsertTexts(insert, slots, bound);
      result.rules = {kSlotBytes};
      const int64_t row = insert.heads * insert.slot_bytes * insert.block_size;
      SetSlotLimits(bound, UnitsOf(*insert.output, row), insert.block_size, result);
      return result;
    };
    return search.Fuse("fuse-TurboQuantInsert", {{"kv_cache_out", insert.output, "kv_cache"}},
                       ports, draft);
  });
}

// Moves elements of rows, computes none.
bool MovesRows(const Node& node) {
  return IsViewNode(node) || node.Is("Transpose") || node.Is("Cast") || node.Is("Slice") ||
         node.Is("Split") || node.Is("Gather");
}

// Sizes of the heads that [.., heads, size] values above the cache have, as the graph is given them
// or as it views them.
std::vector<int64_t> HeadSizes(const Upstream& upstream, int64_t heads) {
  std::vector<int64_t> sizes;
  const auto add = [&](const Value* value) {
    const int64_t size = BackDim(*value, 1);
    const bool fits =
        IsRowType(value->dtype()) && Rank(*value) >= 3 && size > 0 && BackDim(*value, 2) == heads;
    if (fits) AddOnce(size, sizes);
  };
  for (const Value* leaf : upstream.leaves) add(leaf);
  for (const Node* node : upstream.nodes) {
    if (!MovesRows(*node)) continue;
    for (const Value* output : node->outputs()) {
      if (output) add(output);
    }
  }
  return sizes;
}

// --- TurboQuantDequant ---

struct SlotDequant {
  Value* key = nullptr;
  Value* value = nullptr;
  TableInputs tables;
};

struct DequantAttributes {
  bool norm_correction = false;
  bool inverse = false;
  int64_t positions = 0;  // 0: those of the table
};

std::string DequantText(const SlotDequant& dequant, const TurboQuantFormat& format,
                        const DequantAttributes& a, bool transposed) {
  return StrCat(
      "(kv_cache, block_table, seq_lens", TablesFormal(dequant.tables), ") => (key, value) { ",
      NarrowText({"block_table", "seq_lens"}), TurnText(dequant.tables, transposed),
      "key, value = pagefuse.TurboQuantDequant <key_bits = ", format.key_bits,
      ", value_bits = ", format.value_bits, ", head_size = ", format.head_size,
      ", norm_correction = ", a.norm_correction ? 1 : 0, ", inverse_rotate = ", a.inverse ? 1 : 0,
      ", max_seq_len = ", a.positions, "> (kv_cache, block_table_32, seq_lens_32",
      TablesText(dequant.tables, transposed), ") }");
}

// The attributes that the keys of a format may have.
std::vector<DequantAttributes> AttributesFor(const TurboQuantFormat& format,
                                             const TableInputs& tables) {
  if (!format.has_centroids()) return {{}};
  // A rotation is read on the way back alone.
  if (tables.rotation) return {{false, true}, {true, true}};
  return {{false, false}, {true, false}, {false, true}, {true, true}};
}

Draft DequantDraft(const SlotDequant& dequant, const BoundPorts& ports) {
  Draft draft;
  const Value& cache = *ports.at("kv_cache");
  const int64_t head_size = BackDim(*dequant.key, 1);
  const int64_t capacity = ComparedSize(*ports.at("block_table"), 1) * ComparedSize(cache, 1);
  const int64_t positions = BackDim(*dequant.key, 2);
  for (const TurboQuantFormat& format : FormatsFor(head_size, BackDim(cache, 1), dequant.tables)) {
    if (!TablesFit(dequant.tables, format, ports)) continue;
    for (DequantAttributes a : AttributesFor(format, dequant.tables)) {
      if (positions > 0 && positions != capacity) a.positions = positions;
      for (const bool transposed : {false, true}) {
        if (transposed && !dequant.tables.rotation) continue;
        draft.texts.push_back(DequantText(dequant, format, a, transposed));
      }
    }
  }
  draft.rules = {kUnpacked, kUnpacked};
  draft.limits = {{"block_table", ComparedSize(cache, 0)}};
  const int64_t most = positions > 0 ? std::min(positions, capacity) : capacity;
  draft.arrange = [most](uint32_t seed, PortIntegers& integers) {
    std::mt19937 random(seed);
    for (int64_t& length : integers["seq_lens"]) {
      length = static_cast<int64_t>(random() % (most + 1));
    }
  };
  return draft;
}

absl::StatusOr<bool> FuseDequant(FusionSearch& search, const SlotDequant& dequant) {
  const int64_t heads = BackDim(*dequant.key, 3);
  const FusionPort cache = {
      .name = "kv_cache", .role = ProbeRole::kContents, .fits = [heads](const Value& value) {
        return value.dtype() == DataType::kUint8 && Rank(value) == 4 &&
               BackDim(value, 2) == heads && BackDim(value, 1) > 0;
      }};
  std::vector<FusionPort> ports = {cache, IndexPort("block_table", 2), IndexPort("seq_lens", 1)};
  AddTablePorts(dequant.tables, BackDim(*dequant.key, 1), ports);
  return search.Fuse(
      "fuse-TurboQuantDequant", {{"key", dequant.key}, {"value", dequant.value}}, ports,
      [&](const BoundPorts& bound, const ComputedRegion&) { return DequantDraft(dequant, bound); });
}

bool IsUnpacked(const Value& value) {
  return value.dtype() == DataType::kFloat16 && Rank(value) == 4 && BackDim(value, 1) > 0 &&
         BackDim(value, 3) > 0;
}

}  // namespace

absl::StatusOr<bool> FuseTurboQuantInsert(FusionSearch& search, Value* output) {
  if (output->dtype() != DataType::kUint8 || !IsWrittenCache(*output) || Rank(*output) < 3 ||
      !ReshapeDims(*output)) {
    return false;
  }
  SlotInsert insert = {.output = output,
                       .heads = BackDim(*output, 2),
                       .slot_bytes = BackDim(*output, 1),
                       .block_size = Rank(*output) > 3 ? BackDim(*output, 3) : 1};
  if (insert.heads < 1 || insert.slot_bytes < 1 || insert.block_size < 1) return false;
  for (int64_t head_size : HeadSizes(search.UpstreamOf({output}), insert.heads)) {
    insert.head_size = head_size;
    for (const TableInputs& tables : kTableInputs) {
      insert.tables = tables;
      PF_ASSIGN_OR_RETURN(const bool fused, FuseInsert(search, insert));
      if (fused) return true;
    }
  }
  return false;
}

absl::StatusOr<bool> FuseTurboQuantDequant(FusionSearch& search, Value* output) {
  if (!IsUnpacked(*output)) return false;
  for (Value* value : search.ComputedValues()) {
    if (value == output || !IsUnpacked(*value) || !output->shape() || !value->shape() ||
        !ProvablyEqual(*value->shape(), *output->shape())) {
      continue;
    }
    for (const TableInputs& tables : kTableInputs) {
      PF_ASSIGN_OR_RETURN(const bool fused, FuseDequant(search, {output, value, tables}));
      if (fused) return true;
    }
  }
  return false;
}

}  // namespace pagefuse
