// Rows that are quantised or joined and put into a paged cache by slot: KCacheQuantInsert,
// IndexerKQuantInsert, MlaCacheInsert, CompressorStateInsert, QNormRopeKvInsert.
#include <algorithm>
#include <functional>

#include "absl/strings/str_replace.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/fuse/fusion_parts.h"
#include "pagefuse/passes/fuse/fusions.h"

namespace pagefuse {

// Scatters stand at most a few views away from the cache that they give.
bool IsWrittenCache(const Value& value) {
  const Node* node = value.producer();
  constexpr int kMaxViews = 4;
  for (int i = 0; node && i < kMaxViews; ++i) {
    if (node->Is("ScatterND") || node->Is("ScatterElements") || node->Is("TensorScatter")) {
      return Rank(value) > 0;
    }
    const bool passes = node->Is("Reshape") || node->Is("Squeeze") || node->Is("Unsqueeze") ||
                        node->Is("Slice") || node->Is("Where") || node->Is("Transpose") ||
                        node->Is("BitCast") || node->Is("Cast");
    if (!passes || !node->input(0)) return false;
    const Value* next = node->Is("Where") ? node->input(1) : node->input(0);
    node = next->producer();
  }
  return false;
}

namespace {

// Bytes beyond what both give the same: exponents that a logarithm rounds the other way.
constexpr ResultRule kBytes = {.share = 0.002};

// How many units of `inner` elements each there are, at most as many as the probe writes into.
int64_t UnitsOf(const Value& cache, int64_t inner) {
  constexpr int64_t kSymbolSize = 8;
  int64_t elements = 1;
  for (const Dim& dim : cache.shape()->dims()) elements *= dim.constant().value_or(kSymbolSize);
  return inner > 0 ? elements / inner : 0;
}

// Products of the last dims of the cache that are numbers: widths that blocks may have.
std::vector<int64_t> Widths(const Value& cache) {
  std::vector<int64_t> widths;
  int64_t width = 1;
  for (int axis = 1; axis <= Rank(cache); ++axis) {
    const int64_t dim = BackDim(cache, axis);
    if (dim < 0) break;
    width *= dim;
    if (axis < Rank(cache) || Rank(cache) == 1) widths.push_back(width);
  }
  std::reverse(widths.begin(), widths.end());
  return widths;
}

// Tokens a block, as far as the nodes above the cache divide by them: at most `most`.
std::vector<int64_t> BlockSizes(const FusionSearch& search, Value* cache, int64_t most) {
  std::vector<int64_t> sizes = Divisors(search.UpstreamOf({cache}).nodes);
  std::erase_if(sizes, [most](int64_t size) { return size > most; });
  return sizes;
}

// `kv_cache` under the shape that the op takes, and back.
struct CacheView {
  std::string before;  // defines `cache`
  std::string after;   // defines the output of `written`
};
CacheView ViewCache(const Value& cache, const std::string& port, const std::string& dims) {
  const auto original = ReshapeDims(cache);
  if (!original || *original == dims) {
    return {StrCat("cache = Identity (", port, ")  "), StrCat(port, "_out = Identity (written)  ")};
  }
  return {ReshapeText("cache", port, dims), ReshapeText(port + "_out", "written", *original)};
}

FusionPort Bfloat16(FusionPort spec) {
  spec.fits = [fits = spec.fits](const Value& value) {
    return value.dtype() == DataType::kBfloat16 && fits(value);
  };
  return spec;
}

// What stands beside the cache and the slots of a write.
struct RowWrite {
  std::string rule;
  std::string cache = "kv_cache";  // the port
  std::vector<FusionPort> rows;
  int64_t blocks = 0;
  int64_t block_size = 0;
};
using RowTexts =
    std::function<std::vector<std::string>(const BoundPorts&, const SlotForm&, std::string formal)>;

absl::StatusOr<bool> FuseWrite(FusionSearch& search, Value* output, const RowWrite& write,
                               const RowTexts& texts) {
  for (const SlotForm& form : SlotForms(write.block_size)) {
    std::vector<FusionPort> ports = {CachePort(write.cache, output)};
    ports.insert(ports.end(), form.ports.begin(), form.ports.end());
    std::string formal = StrCat(write.cache, ", ", form.formal);
    for (const FusionPort& rows : write.rows) {
      ports.push_back(rows);
      StrAppend(&formal, ", ", rows.name);
    }
    const auto draft = [&](const BoundPorts& bound, const ComputedRegion&) {
      Draft result;
      result.texts = texts(bound, form, formal);
      result.rules = {kBytes};
      SetSlotLimits(write.blocks, write.block_size, result);
      constexpr int64_t kPositions = 1000;
      result.limits["positions"] = kPositions;
      return result;
    };
    PF_ASSIGN_OR_RETURN(
        const bool fused,
        search.Fuse(write.rule, {{write.cache + "_out", output, write.cache}}, ports, draft));
    if (fused) return true;
  }
  return false;
}

// "(formal) => (cache_out) { ... }" around a call of the op on `cache` and `slots`.
std::string WriteText(const std::string& formal, const std::string& cache, const SlotForm& form,
                      const CacheView& view, const std::string& rows, const std::string& call) {
  return StrCat("(", formal, ") => (", cache, "_out) { ", view.before, form.text, rows,
                "written = pagefuse.", call, "  ", view.after, "}");
}

// Caches of rows [.., width] as [blocks, block size, width].
struct RowCache {
  std::string dims;
  int64_t blocks = 0;
  int64_t block_size = 0;
};
RowCache ReadRowCache(const Value& cache) {
  const int64_t width = BackDim(cache, 1);
  int64_t block_size = 1;
  for (int axis = 2; axis < Rank(cache); ++axis) {
    block_size *= std::max<int64_t>(BackDim(cache, axis), 1);
  }
  const std::string dims = StrCat("[-1, ", block_size, ", ", width, "]");
  return {Rank(cache) == 3 ? *ReshapeDims(cache) : dims, UnitsOf(cache, width) / block_size,
          block_size};
}

}  // namespace

absl::StatusOr<bool> FuseKCacheQuantInsert(FusionSearch& search, Value* output) {
  if (output->dtype() != DataType::kUint8 || !IsWrittenCache(*output)) return false;
  constexpr int64_t kElements = 512, kTokenBytes = 584;
  for (int64_t width : Widths(*output)) {
    if (width < kTokenBytes || !ReshapeDims(*output)) continue;
    const CacheView view = ViewCache(*output, "kv_cache", StrCat("[-1, ", width, "]"));
    for (int64_t block_size : BlockSizes(search, output, width / kTokenBytes)) {
      const RowWrite write = {.rule = "fuse-KCacheQuantInsert",
                              .rows = {Bfloat16(RowPort("k", {kElements}))},
                              .blocks = UnitsOf(*output, width),
                              .block_size = block_size};
      const auto texts = [&](const BoundPorts& ports, const SlotForm& form,
                             const std::string& formal) -> std::vector<std::string> {
        return {WriteText(
            formal, "kv_cache", form, view, RowsText("rows", "k", ports, form, {kElements}),
            StrCat("KCacheQuantInsert <block_size = ", block_size, "> (rows, slots, cache)"))};
      };
      PF_ASSIGN_OR_RETURN(const bool fused, FuseWrite(search, output, write, texts));
      if (fused) return true;
    }
  }
  return false;
}

absl::StatusOr<bool> FuseIndexerKQuantInsert(FusionSearch& search, Value* output) {
  if (output->dtype() != DataType::kUint8 || !IsWrittenCache(*output)) return false;
  constexpr int64_t kElements = 128, kTokenBytes = 132;
  for (int64_t width : Widths(*output)) {
    if (width % kTokenBytes != 0 || !ReshapeDims(*output)) continue;
    const int64_t block_size = width / kTokenBytes;
    const bool as_it_is = BackDim(*output, 1) == kTokenBytes && Rank(*output) >= 3 &&
                          BackDim(*output, Rank(*output) - 1) == block_size;
    const CacheView view = ViewCache(
        *output, "kv_cache",
        as_it_is ? *ReshapeDims(*output) : StrCat("[-1, ", block_size, ", ", kTokenBytes, "]"));
    const RowWrite write = {.rule = "fuse-IndexerKQuantInsert",
                            .rows = {RowPort("k", {kElements})},
                            .blocks = UnitsOf(*output, width),
                            .block_size = block_size};
    const auto texts = [&](const BoundPorts& ports, const SlotForm& form,
                           const std::string& formal) {
      std::vector<std::string> result;
      for (const char* scales : {"ue8m0", "float"}) {
        result.push_back(WriteText(
            formal, "kv_cache", form, view, RowsText("rows", "k", ports, form, {kElements}),
            StrCat("IndexerKQuantInsert <quant_block_size = 128, scale_fmt = \"", scales,
                   "\"> (rows, slots, cache)")));
      }
      return result;
    };
    PF_ASSIGN_OR_RETURN(const bool fused, FuseWrite(search, output, write, texts));
    if (fused) return true;
  }
  return false;
}

absl::StatusOr<bool> FuseMlaCacheInsert(FusionSearch& search, Value* output) {
  const bool coded = output->dtype() == DataType::kUint8;
  if ((!coded && output->dtype() != DataType::kBfloat16) || !IsWrittenCache(*output)) return false;
  constexpr int64_t kCodedBytes = 656, kLatent = 512, kRope = 64;
  const int64_t width = BackDim(*output, 1);
  if (width < 2 || (coded && width != kCodedBytes) || !ReshapeDims(*output)) return false;
  const RowCache cache = ReadRowCache(*output);
  const CacheView view = ViewCache(*output, "kv_cache", cache.dims);
  const auto part = [width](std::string name) {
    return FusionPort{.name = std::move(name),
                      .role = ProbeRole::kRows,
                      .inner = true,
                      .fits = [width](const Value& value) {
                        return value.dtype() == DataType::kBfloat16 && Rank(value) >= 2 &&
                               BackDim(value, 1) > 0 && BackDim(value, 1) < width;
                      }};
  };
  const RowWrite write = {.rule = "fuse-MlaCacheInsert",
                          .rows = {part("kv_c"), part("k_pe")},
                          .blocks = cache.blocks,
                          .block_size = cache.block_size};
  const auto texts = [&](const BoundPorts& ports, const SlotForm& form,
                         const std::string& formal) -> std::vector<std::string> {
    const int64_t latent = BackDim(*ports.at("kv_c"), 1);
    const int64_t rope = BackDim(*ports.at("k_pe"), 1);
    const bool fits = coded ? latent == kLatent && rope == kRope : latent + rope == width;
    if (!fits) return {};
    return {WriteText(formal, "kv_cache", form, view,
                      RowsText("latent", "kv_c", ports, form, {latent}) +
                          RowsText("rope", "k_pe", ports, form, {rope}),
                      StrCat("MlaCacheInsert <format = \"", coded ? "fp8_ds_mla" : "bf16",
                             "\"> (latent, rope, slots, cache)"))};
  };
  return FuseWrite(search, output, write, texts);
}

absl::StatusOr<bool> FuseCompressorStateInsert(FusionSearch& search, Value* output) {
  const int64_t width = BackDim(*output, 1);
  if (output->dtype() != DataType::kFloat || !IsWrittenCache(*output) || width % 2 != 0 ||
      width < 2 || !ReshapeDims(*output)) {
    return false;
  }
  const RowCache cache = ReadRowCache(*output);
  const CacheView view = ViewCache(*output, "state_cache", cache.dims);
  const auto rows = [width](std::string name) {
    return FusionPort{
        .name = std::move(name),
        .role = ProbeRole::kRows,
        .inner = true,
        .fits = [width](const Value& value) {
          return (value.dtype() == DataType::kFloat || value.dtype() == DataType::kBfloat16) &&
                 Rank(value) >= 2 && BackDim(value, 1) > 0 && 2 * BackDim(value, 1) <= width &&
                 !ConstantOf(&value);
        }};
  };
  const FusionPort ape = {.name = "ape",
                          .role = ProbeRole::kFactors,
                          .metadata = true,
                          .fits = [width](const Value& value) {
                            return value.dtype() == DataType::kFloat && Rank(value) == 2 &&
                                   2 * BackDim(value, 1) <= width && BackDim(value, 1) > 0 &&
                                   BackDim(value, 2) > 0;
                          }};
  const RowWrite write = {.rule = "fuse-CompressorStateInsert",
                          .cache = "state_cache",
                          .rows = {rows("kv"), ape, PositionPort(), rows("score")},
                          .blocks = cache.blocks,
                          .block_size = cache.block_size};
  const auto texts = [&](const BoundPorts& ports, const SlotForm& form,
                         const std::string& formal) -> std::vector<std::string> {
    const Value& kv = *ports.at("kv");
    const Value& score = *ports.at("score");
    const int64_t row = BackDim(kv, 1);
    if (BackDim(score, 1) != row || BackDim(*ports.at("ape"), 1) != row ||
        kv.dtype() != score.dtype()) {
      return {};
    }
    return {
        WriteText(formal, "state_cache", form, view,
                  RowsText("rows", "kv", ports, form, {row}) +
                      RowsText("scores", "score", ports, form, {row}) +
                      RowsText("places", "positions", ports, form, {}),
                  StrCat("CompressorStateInsert <compress_ratio = ", BackDim(*ports.at("ape"), 2),
                         "> (rows, scores, ape, places, slots, cache)"))};
  };
  return FuseWrite(search, output, write, texts);
}

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
  const TableForm& table;
  const SlotForm& slots;
};

Draft QNormDraft(const QNormReading& reading, const BoundPorts& ports,
                 const ComputedRegion& region) {
  Draft draft;
  const auto width = TableWidth(reading.table, ports);
  const int64_t size = BackDim(*reading.q_out, 1);
  const int64_t out_heads = BackDim(*reading.q_out, 2);
  if (!width || *width > size) return draft;
  SetTableLimit(reading.table, ports, draft);
  SetSlotLimits(reading.cache.blocks, reading.cache.block_tokens, draft);
  const Value& q = *ports.at("q");
  const int64_t heads = BackDim(q, 2);
  const CacheView view = ViewCache(*reading.output, "kv_cache", reading.cache.dims);
  const std::string q_out = UnflatText("q_out", "queries", *reading.q_out, "q", q, 2);
  if (q_out.empty()) return draft;
  const std::string before =
      StrCat(absl::StrReplaceAll(reading.table.prelude,
                                 {{"@width", StrCat(*width)}, {"@half", StrCat(*width / 2)}}),
             view.before, reading.slots.text, FlatText("q_rows", "q", q, {heads, size}),
             RowsText("kv_rows", "kv", ports, reading.slots, {size}));
  for (float eps : Epsilons(region)) {
    draft.texts.push_back(StrCat(
        "(kv_cache, ", reading.slots.formal, ", q, kv, ", reading.table.formal,
        ") => (q_out, kv_cache_out) { ", before,
        "queries, written = pagefuse.QNormRopeKvInsert <format = \"", reading.cache.format,
        "\", eps = ", FloatText(eps),
        reading.cache.block_size > 0 ? StrCat(", block_size = ", reading.cache.block_size) : "",
        out_heads > heads ? StrCat(", padded_heads = ", out_heads) : "",
        "> (q_rows, kv_rows, cache, slots, places, table)  ", q_out, view.after, "}"));
  }
  // Two neighbours in bfloat16, and differences of numbers that nearly agree.
  constexpr double kStep = 1.0 / 127, kCancelled = 1e-6;
  draft.rules = {{.relative = kStep, .of_largest = kCancelled}, kBytes};
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
  for (const TableForm& table : TableForms()) {
    for (const SlotForm& slots : SlotForms(cache.block_tokens)) {
      std::vector<FusionPort> ports = {CachePort("kv_cache", output)};
      ports.insert(ports.end(), slots.ports.begin(), slots.ports.end());
      ports.push_back(q);
      ports.push_back(Bfloat16(RowPort("kv", {size})));
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
      if (q_out->dtype() != DataType::kBfloat16 || Rank(*q_out) < 3 ||
          BackDim(*q_out, 1) != kElements || BackDim(*q_out, 2) < 1) {
        continue;
      }
      PF_ASSIGN_OR_RETURN(const bool fused, FuseQNorm(search, output, cache, q_out));
      if (fused) return true;
    }
  }
  return false;
}

}  // namespace pagefuse
