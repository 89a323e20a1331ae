// SPDX-License-Identifier: Apache-2.0
// Fuses QNormRopeKvInsert wherever a graph norms and rotates queries and rotates, quantises and
// writes the rows of keys.

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/fuse/equivalent/attribute_numbers.h"
#include "pagefuse/passes/fuse/equivalent/cache_views.h"
#include "pagefuse/passes/fuse/equivalent/cos_sin_tables.h"
#include "pagefuse/passes/fuse/equivalent/fusion_parts.h"
#include "pagefuse/passes/fuse/equivalent/fusions.h"

namespace pagefuse {
namespace {

struct QNormCache {
  std::string format;
  std::string dims;        // as the op takes the cache
  int64_t block_size = 0;  // attribute, where it is not in the shape
  int64_t blocks = 0;
  int64_t block_tokens = 0;
};

std::vector<QNormCache> QNormCaches(const FusionSearch& search, Value* output) {
  const Value& cache = *output;
  constexpr int64_t kElements = 512, kTokenBytes = 584;
  std::vector<QNormCache> caches;
  if (!ReshapeDims(cache)) return caches;
  if (cache.dtype() == DataType::kUint8) {
    for (int64_t width : Widths(cache)) {
      for (int64_t size : BlockSizes(search, output, width / kTokenBytes)) {
        caches.push_back(
            {"fp8_ue8m0", StrCat("[-1, ", width, "]"), size, UnitsOf(cache, width), size});
      }
    }
    if (BackDim(cache, 1) == kElements) {
      const RowCache rows = ReadRowCache(cache);
      caches.push_back({"fp8", rows.dims, 0, rows.blocks, rows.block_size});
    }
    return caches;
  }
  if (BackDim(cache, 1) != kElements) return caches;
  const bool coded = cache.dtype() == DataType::kFloat8E4M3FN;
  if (!coded && cache.dtype() != DataType::kBfloat16) return caches;
  const RowCache rows = ReadRowCache(cache);
  caches.push_back({coded ? "fp8" : "bf16", rows.dims, 0, rows.blocks, rows.block_size});
  return caches;
}

// One way to read a graph as the op: its cache, the result for queries, the forms of table and
// slots.
struct QNormReading {
  const QNormCache& cache;
  Value* output;
  Value* q_out;
  const CosSinTable& table;
  const SlotForm& slots;
};

Draft QNormDraft(const QNormReading& reading, const BoundPorts& ports,
                 const ComputedRegion& region) {
  Draft draft;
  const auto width = TableWidth(ports);
  const int64_t size = BackDim(*reading.q_out, 1);
  const int64_t out_heads = BackDim(*reading.q_out, 2);
  if (!width || *width > size) return draft;
  SetTableLimit(reading.table, ports, draft);
  const Value& q = *ports.at("q");
  const int64_t heads = BackDim(q, 2);
  const bool coded = reading.cache.format == "fp8";
  const CacheView view = ViewCache(*reading.output, "kv_cache", reading.cache.dims);
  const std::string q_out = UnflatText("q_out", "queries", *reading.q_out, "q", q);
  if (q_out.empty()) return draft;
  const std::string before = StrCat(TablePrelude(reading.table, *width), view.before,
                                    reading.slots.text, FlatText("q_rows", "q", q, {heads, size}),
                                    RowsText("kv_rows", "kv", ports, reading.slots, {size}));
  for (float eps : Epsilons(region)) {
    draft.texts.push_back(StrCat(
        "(kv_cache, ", reading.slots.formal, coded ? ", kv_scale, q_scale_inv" : "", ", q, kv, ",
        reading.table.formal, ") => (q_out, kv_cache_out) { ", before,
        "queries, written = pagefuse.QNormRopeKvInsert <format = \"", reading.cache.format,
        "\", eps = ", FloatText(eps),
        reading.cache.block_size > 0 ? StrCat(", block_size = ", reading.cache.block_size) : "",
        out_heads > heads ? StrCat(", padded_heads = ", out_heads) : "",
        reading.q_out->dtype() == DataType::kUint8 ? ", fp8_storage = \"uint8\"" : "",
        "> (q_rows, kv_rows, cache, slots, places, table", coded ? ", kv_scale, q_scale_inv" : "",
        ")  ", q_out, view.after, "}"));
  }
  // Two neighbours in bfloat16, and differences of numbers that nearly agree.
  constexpr double kStep = 1.0 / 127, kCancelled = 1e-6;
  constexpr ResultRule kNear = {.relative = kStep, .of_largest = kCancelled};
  // Codes of numbers a unit apart are the same but for a few at borders.
  constexpr ResultRule kNearCodes = {.share = 0.005};
  draft.has_exact_sums = true;
  draft.rules = {coded ? kNearCodes : kNear, coded ? kNearCodes : kWrittenBytes};
  SetSlotLimits(ports, reading.cache.blocks, reading.cache.block_tokens, draft);
  return draft;
}

absl::StatusOr<bool> FuseQNorm(FusionSearch& search, Value* output, const QNormCache& cache,
                               Value* q_out) {
  const int64_t heads = BackDim(*q_out, 2);
  const int64_t size = BackDim(*q_out, 1);
  FusionPort q = RowPort("q", {size});
  q.fits = [fits = q.fits, heads](const Value& value) {
    return fits(value) && value.dtype() == DataType::kBfloat16 && Rank(value) >= 3 &&
           BackDim(value, 2) > 0 && BackDim(value, 2) <= heads;
  };
  for (const CosSinTable& table : CosSinTables()) {
    for (const SlotForm& slots : SlotForms(cache.block_tokens)) {
      std::vector<FusionPort> ports = {CachePort("kv_cache", output)};
      ports.insert(ports.end(), slots.ports.begin(), slots.ports.end());
      if (cache.format == "fp8") {
        ports.push_back(ScalePort("kv_scale"));
        ports.push_back(ScalePort("q_scale_inv"));
      }
      ports.push_back(q);
      ports.push_back(Bfloat16Port(RowPort("kv", {size})));
      ports.insert(ports.end(), table.ports.begin(), table.ports.end());
      const QNormReading reading = {cache, output, q_out, table, slots};
      PF_ASSIGN_OR_RETURN(
          const bool fused,
          search.Fuse("fuse-QNormRopeKvInsert",
                      {{"q_out", q_out}, {"kv_cache_out", output, "kv_cache"}}, ports,
                      [&](const BoundPorts& bound, const ComputedRegion& region) {
                        return QNormDraft(reading, bound, region);
                      }));
      if (fused) return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<bool> FuseQNormRopeKvInsert(FusionSearch& search, Value* output) {
  if (!IsWrittenCache(*output)) return false;
  constexpr int64_t kElements = 512;
  for (const QNormCache& cache : QNormCaches(search, output)) {
    for (Value* q_out : search.ComputedValues()) {
      const bool typed = cache.format == "fp8" ? q_out->dtype() == DataType::kFloat8E4M3FN ||
                                                     q_out->dtype() == DataType::kUint8
                                               : q_out->dtype() == DataType::kBfloat16;
      if (!typed || Rank(*q_out) < 3 || BackDim(*q_out, 1) != kElements || BackDim(*q_out, 2) < 1) {
        continue;
      }
      PF_ASSIGN_OR_RETURN(const bool fused, FuseQNorm(search, output, cache, q_out));
      if (fused) return true;
    }
  }
  return false;
}

}  // namespace pagefuse
