// SPDX-License-Identifier: Apache-2.0
// Fuses PagedCacheInsert wherever a graph quantises rows of keys and values and writes them by
// slot.
#include <algorithm>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/passes/fuse/equivalent/cache_views.h"
#include "pagefuse/passes/fuse/equivalent/fusion_parts.h"
#include "pagefuse/passes/fuse/equivalent/fusions.h"

namespace pagefuse {
namespace {

// Caches of one layer stand near each other.
constexpr size_t kMostNeighbours = 6;

// Both caches, and those of their scales where rows have scales of their own.
struct InsertCaches {
  Value* key = nullptr;
  Value* value = nullptr;
  Value* key_scales = nullptr;
  Value* value_scales = nullptr;
  bool row_scales() const { return key_scales != nullptr; }
};

// What is done to rows on their way into the caches.
enum class RowCoding {
  kCopied,       // they are of the caches' numbers
  kTensorScale,  // divided by one scale
  kRowScales,    // divided by scales of their own
  kTransformed,  // the same behind a transform with signs
  kCodes,        // they are codes already
};

ScaleKind ScalesOf(RowCoding coding) {
  if (coding == RowCoding::kCopied) return ScaleKind::kNone;
  const bool tensor = coding == RowCoding::kTensorScale || coding == RowCoding::kCodes;
  return tensor ? ScaleKind::kTensor : ScaleKind::kRow;
}

bool IsCacheType(DataType type) {
  return IsRowType(type) || type == DataType::kInt8 || type == DataType::kUint8 ||
         type == DataType::kFloat8E4M3FN;
}

// Tokens a block where the shape says it: [blocks, tokens, heads, size].
int64_t BlockSize(const Value& cache) {
  return Rank(cache) == 4 && BackDim(cache, 3) > 0 ? BackDim(cache, 3) : 1;
}

// Written caches before `output` in the graph, the nearest first.
std::vector<Value*> CachesBefore(const FusionSearch& search, const Value* output,
                                 const std::function<bool(const Value&)>& fits) {
  std::vector<Value*> found;
  bool before = false;
  for (Value* value : search.ComputedValues()) {
    if (before && found.size() < kMostNeighbours && IsWrittenCache(*value) && ReshapeDims(*value) &&
        fits(*value)) {
      found.push_back(value);
    }
    before = before || value == output;
  }
  return found;
}

// [tokens, elements], of caches [slots, elements].
bool IsFlat(const Value& rows, const Value& cache) {
  return Rank(rows) == 2 && Rank(cache) == 2 && BackDim(rows, 1) > 0 &&
         BackDim(rows, 1) == BackDim(cache, 1);
}
// Heads of rows, and elements of a head.
std::vector<int64_t> RowTail(const Value& rows) {
  return {Rank(rows) == 2 ? 1 : BackDim(rows, 2), BackDim(rows, 1)};
}

// Rows of codes are what the graph is given: what it computes codes of is for the other codings.
FusionPort Rows(std::string name, const Value* cache, RowCoding coding) {
  return {.name = std::move(name),
          .role = ProbeRole::kRows,
          .inner = coding != RowCoding::kCodes,
          .fits = [cache, coding](const Value& value) {
            const bool is_code = value.dtype() == DataType::kFloat8E4M3FN;
            const bool typed = coding == RowCoding::kCodes ? is_code : IsRowType(value.dtype());
            // Without their heads, rows that are copied are of one.
            if (typed && IsFlat(value, *cache) && coding == RowCoding::kCopied) return true;
            if (!typed || Rank(value) < 3 || BackDim(value, 2) < 1) return false;
            // Two codes of a transformed row lie in one byte.
            const int64_t elements = coding == RowCoding::kTransformed ? 2 : 1;
            const int64_t last = elements * BackDim(*cache, 1);
            if (Rank(*cache) == 2) return BackDim(value, 1) * BackDim(value, 2) == last;
            return EndsIn(value, {BackDim(*cache, 2), last});
          }};
}

FusionPort SignsPort() {
  return MetadataPort("rht_signs", ProbeRole::kSigns, [](const Value& value) {
    return value.dtype() == DataType::kFloat && Rank(value) == 1 && BackDim(value, 1) > 1;
  });
}

std::vector<FusionPort> InsertPorts(const InsertCaches& caches, const SlotForm& slots,
                                    RowCoding coding) {
  std::vector<FusionPort> ports = {CachePort("key_cache", caches.key)};
  ports.insert(ports.end(), slots.ports.begin(), slots.ports.end());
  ports.push_back(CachePort("value_cache", caches.value));
  if (caches.row_scales()) {
    ports.push_back(CachePort("k_scale_cache", caches.key_scales));
    ports.push_back(CachePort("v_scale_cache", caches.value_scales));
  }
  if (coding == RowCoding::kTensorScale) {
    ports.push_back(ScalePort("k_scale"));
    ports.push_back(ScalePort("v_scale"));
  }
  if (coding == RowCoding::kTransformed) ports.push_back(SignsPort());
  ports.push_back(Rows("key", caches.key, coding));
  ports.push_back(Rows("value", caches.value, coding));
  return ports;
}

// The formats that such caches may be in, with their roundings.
std::vector<CacheFormat> FormatsOf(const InsertCaches& caches, RowCoding coding) {
  std::vector<CacheFormat> formats;
  for (const RowFormat& row : RowFormats()) {
    const CacheFormat format{.mode = row.mode};
    const bool transformed = coding == RowCoding::kTransformed;
    if (row.scales != ScalesOf(coding) || format.needs_signs() != transformed) continue;
    if (!format.StoredAs(caches.key->dtype()).ok()) continue;
    formats.push_back(format);
    if (row.has_rounding) {
      formats.push_back({.mode = row.mode, .int8_rounding = Int8Rounding::kTowardZero});
    }
  }
  return formats;
}

// `name`: the port [.., heads, size] as a cache of blocks, and `out`: back from it.
std::string BlocksText(const std::string& name, const std::string& port, int64_t block_size,
                       const std::vector<int64_t>& tail) {
  return ReshapeText(name, port, StrCat("[-1, ", block_size, ", ", absl::StrJoin(tail, ", "), "]"));
}

std::string InsertText(const InsertCaches& caches, const SlotForm& slots,
                       const std::vector<FusionPort>& specs, const BoundPorts& ports,
                       const CacheFormat& format) {
  const int64_t block_size = BlockSize(*caches.key);
  const auto tail = [&](const char* port) { return RowTail(*ports.at(port)); };
  const auto cache_tail = [&](const char* port) -> std::vector<int64_t> {
    return {tail(port)[0], format.StoredElements(tail(port)[1])};
  };
  std::vector<std::string> formal;
  for (const FusionPort& spec : specs) formal.push_back(spec.name);
  const bool codes = ports.at("key")->dtype() == DataType::kFloat8E4M3FN;
  const auto rows = [&](const char* name, const char* port) {
    return (codes ? CodeRowsText : RowsText)(name, port, ports, slots, tail(port));
  };
  std::string body = StrCat(slots.text, rows("key_rows", "key"), rows("value_rows", "value"),
                            BlocksText("keys", "key_cache", block_size, cache_tail("key")),
                            BlocksText("values", "value_cache", block_size, cache_tail("value")));
  std::string results = "new_keys, new_values";
  std::string outputs = "key_cache_out, value_cache_out";
  std::string inputs = "key_rows, value_rows, keys, values, slots";
  std::string after = ReshapeText("key_cache_out", "new_keys", *ReshapeDims(*caches.key)) +
                      ReshapeText("value_cache_out", "new_values", *ReshapeDims(*caches.value));
  if (format.has_tensor_scale()) {
    // Nothing divides codes by it.
    if (codes) StrAppend(&body, "one = Constant <value_float: float = 1.0> ()  ");
    StrAppend(&inputs, codes ? ", one, one" : ", k_scale, v_scale");
  }
  if (format.has_row_scales()) {
    StrAppend(&body, BlocksText("key_scales", "k_scale_cache", block_size, {tail("key")[0]}),
              BlocksText("value_scales", "v_scale_cache", block_size, {tail("value")[0]}));
    StrAppend(&inputs, ", , , key_scales, value_scales", format.needs_signs() ? ", rht_signs" : "");
    StrAppend(&results, ", new_key_scales, new_value_scales");
    StrAppend(&outputs, ", k_scale_cache_out, v_scale_cache_out");
    StrAppend(
        &after,
        ReshapeText("k_scale_cache_out", "new_key_scales", *ReshapeDims(*caches.key_scales)),
        ReshapeText("v_scale_cache_out", "new_value_scales", *ReshapeDims(*caches.value_scales)));
  }
  return StrCat("(", absl::StrJoin(formal, ", "), ") => (", outputs, ") { ", body, results,
                " = pagefuse.PagedCacheInsert <kv_quant_mode = \"", format.name(),
                "\", int8_rounding = \"", Int8RoundingName(format.int8_rounding), "\"> (", inputs,
                ")  ", after, "}");
}

// Rows of that many elements are of the format, and the signs are as many.
bool Fits(const CacheFormat& format, const BoundPorts& ports) {
  if (!format.needs_signs()) return true;
  const int64_t size = BackDim(*ports.at("key"), 1);
  return format.TakesSize(size) && BackDim(*ports.at("rht_signs"), 1) == size;
}

absl::StatusOr<bool> FuseInsert(FusionSearch& search, const InsertCaches& caches,
                                RowCoding coding) {
  const int64_t block_size = BlockSize(*caches.key);
  std::vector<OutputSpec> outputs = {{"key_cache_out", caches.key, "key_cache"},
                                     {"value_cache_out", caches.value, "value_cache"}};
  if (caches.row_scales()) {
    outputs.push_back({"k_scale_cache_out", caches.key_scales, "k_scale_cache"});
    outputs.push_back({"v_scale_cache_out", caches.value_scales, "v_scale_cache"});
  }
  return AnyFuses(SlotForms(block_size), [&](const SlotForm& slots) {
    const std::vector<FusionPort> specs = InsertPorts(caches, slots, coding);
    const auto draft = [&](const BoundPorts& ports, const ComputedRegion&) {
      Draft result;
      const std::vector<int64_t> tail = RowTail(*ports.at("key"));
      const int64_t row = tail[0] * tail[1] / (coding == RowCoding::kTransformed ? 2 : 1);
      for (const CacheFormat& format : FormatsOf(caches, coding)) {
        if (!Fits(format, ports)) continue;
        result.texts.push_back(InsertText(caches, slots, specs, ports, format));
      }
      // Quotients and products with the reciprocal round apart here and there.
      constexpr ResultRule kRows = {.share = 0.002}, kScales = {.relative = 3e-7};
      result.rules = {kRows, kRows, kScales, kScales};
      result.copies_rows = IsFloatingPoint(caches.key->dtype()) &&
                           caches.key->dtype() == ports.at("key")->dtype() &&
                           caches.key->dtype() != DataType::kFloat8E4M3FN;
      SetSlotLimits(ports, UnitsOf(*caches.key, row * block_size), block_size, result);
      return result;
    };
    return search.Fuse("fuse-PagedCacheInsert", outputs, specs, draft);
  });
}

absl::StatusOr<bool> FuseWithRowScales(FusionSearch& search, InsertCaches caches) {
  const Value* last = caches.value;
  std::vector<Value*> scales;
  for (Value* value : search.ComputedValues()) {
    if (value->dtype() == DataType::kFloat && IsWrittenCache(*value) && ReshapeDims(*value) &&
        value != last && scales.size() < kMostNeighbours) {
      scales.push_back(value);
    }
  }
  for (Value* value_scales : scales) {
    for (Value* key_scales : scales) {
      if (key_scales == value_scales) continue;
      caches.key_scales = key_scales;
      caches.value_scales = value_scales;
      for (const RowCoding coding : {RowCoding::kRowScales, RowCoding::kTransformed}) {
        if (coding == RowCoding::kTransformed && last->dtype() != DataType::kUint8) continue;
        PF_ASSIGN_OR_RETURN(const bool fused, FuseInsert(search, caches, coding));
        if (fused) return true;
      }
    }
  }
  return false;
}

// Whether [slots, n] may be the scales of codes that are written beside them.
bool MayBeScales(const FusionSearch& search, const Value& cache) {
  if (cache.dtype() != DataType::kFloat || Rank(cache) != 2) return false;
  const std::vector<Value*> values = search.ComputedValues();
  return std::any_of(values.begin(), values.end(), [](const Value* value) {
    return IsCacheType(value->dtype()) && !IsRowType(value->dtype()) && IsWrittenCache(*value);
  });
}

}  // namespace

absl::StatusOr<bool> FusePagedCacheInsert(FusionSearch& search, Value* output) {
  if (!IsCacheType(output->dtype()) || Rank(*output) < 2 || !IsWrittenCache(*output) ||
      !ReshapeDims(*output)) {
    return false;
  }
  if (MayBeScales(search, *output)) return false;
  const auto like_output = [output](const Value& value) {
    return value.dtype() == output->dtype() && Rank(value) == Rank(*output);
  };
  for (Value* key : CachesBefore(search, output, like_output)) {
    const InsertCaches caches = {.key = key, .value = output};
    if (IsRowType(output->dtype())) {
      PF_ASSIGN_OR_RETURN(const bool fused, FuseInsert(search, caches, RowCoding::kCopied));
      if (fused) return true;
      continue;
    }
    PF_ASSIGN_OR_RETURN(bool fused, FuseWithRowScales(search, caches));
    for (const RowCoding coding : {RowCoding::kTensorScale, RowCoding::kCodes}) {
      if (fused || output->dtype() == DataType::kInt8) continue;
      PF_ASSIGN_OR_RETURN(fused, FuseInsert(search, caches, coding));
    }
    if (fused) return true;
  }
  return false;
}

}  // namespace pagefuse
