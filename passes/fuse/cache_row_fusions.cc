// Rows that are quantised or joined and put into a paged cache by slot: KCacheQuantInsert,
// IndexerKQuantInsert, MlaCacheInsert, CompressorStateInsert, QNormRopeKvInsert.
#include <algorithm>

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

}  // namespace

absl::StatusOr<bool> FuseKCacheQuantInsert(FusionSearch& search, Value* output) {
  if (output->dtype() != DataType::kUint8 || !IsWrittenCache(*output)) return false;
  constexpr int64_t kElements = 512, kTokenBytes = 584;
  PortSpec k = RowPort("k", 2, kElements);
  k.fits = [fits = k.fits](const Value& value) {
    return value.dtype() == DataType::kBfloat16 && fits(value);
  };
  for (int64_t width : Widths(*output)) {
    if (width < kTokenBytes || !ReshapeDims(*output)) continue;
    const CacheView view = ViewCache(*output, "kv_cache", StrCat("[-1, ", width, "]"));
    for (int64_t block_size : BlockSizes(search, output, width / kTokenBytes)) {
      const auto draft = [&](const BoundPorts& ports, const ComputedRegion&) {
        Draft result;
        const Value& slots = *ports.at("slot_mapping");
        result.texts = {
            StrCat("(kv_cache, slot_mapping, k) => (kv_cache_out) { ", view.before,
                   RowsLike("rows", "k", *ports.at("k"), "slot_mapping", slots, StrCat(kElements)),
                   "written = pagefuse.KCacheQuantInsert <block_size = ", block_size,
                   "> (rows, slot_mapping, cache)  ", view.after, "}")};
        result.rules = {kBytes};
        result.limits["slot_mapping"] = UnitsOf(*output, width) * block_size;
        return result;
      };
      PF_ASSIGN_OR_RETURN(
          const bool fused,
          search.Fuse("fuse-KCacheQuantInsert", {{"kv_cache_out", output, "kv_cache"}},
                      {CachePort("kv_cache", output), SlotPort(), k}, draft));
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
    const auto draft = [&](const BoundPorts& ports, const ComputedRegion&) {
      Draft result;
      for (const char* scales : {"ue8m0", "float"}) {
        result.texts.push_back(
            StrCat("(kv_cache, slot_mapping, k) => (kv_cache_out) { ", view.before,
                   RowsLike("rows", "k", *ports.at("k"), "slot_mapping", *ports.at("slot_mapping"),
                            StrCat(kElements)),
                   "written = pagefuse.IndexerKQuantInsert <quant_block_size = 128, scale_fmt = \"",
                   scales, "\"> (rows, slot_mapping, cache)  ", view.after, "}"));
      }
      result.rules = {kBytes};
      result.limits["slot_mapping"] = UnitsOf(*output, kTokenBytes);
      return result;
    };
    PF_ASSIGN_OR_RETURN(
        const bool fused,
        search.Fuse("fuse-IndexerKQuantInsert", {{"kv_cache_out", output, "kv_cache"}},
                    {CachePort("kv_cache", output), SlotPort(), RowPort("k", 2, kElements)},
                    draft));
    if (fused) return true;
  }
  return false;
}

absl::StatusOr<bool> FuseMlaCacheInsert(FusionSearch& search, Value* output) {
  const bool coded = output->dtype() == DataType::kUint8;
  if ((!coded && output->dtype() != DataType::kBfloat16) || !IsWrittenCache(*output)) return false;
  constexpr int64_t kCodedBytes = 656;
  const int64_t width = BackDim(*output, 1);
  if (width < 2 || (coded && width != kCodedBytes) || !ReshapeDims(*output)) return false;
  const CacheView view =
      ViewCache(*output, "kv_cache",
                Rank(*output) == 3 ? *ReshapeDims(*output) : StrCat("[-1, 1, ", width, "]"));
  const auto part = [](std::string name) {
    PortSpec spec = RowPort(std::move(name), 2, 0);
    spec.fits = [](const Value& value) {
      return value.dtype() == DataType::kBfloat16 && Rank(value) == 2 && BackDim(value, 1) > 0;
    };
    return spec;
  };
  const auto draft = [&](const BoundPorts& ports, const ComputedRegion&) {
    Draft result;
    const Value& latent = *ports.at("kv_c");
    const Value& rope = *ports.at("k_pe");
    if (!coded && BackDim(latent, 1) + BackDim(rope, 1) != width) return result;
    if (coded && (BackDim(latent, 1) != 512 || BackDim(rope, 1) != 64)) return result;
    const Value& slots = *ports.at("slot_mapping");
    result.texts = {StrCat(
        "(kv_cache, slot_mapping, kv_c, k_pe) => (kv_cache_out) { ", view.before,
        RowsLike("latent", "kv_c", latent, "slot_mapping", slots, StrCat(BackDim(latent, 1))),
        RowsLike("rope", "k_pe", rope, "slot_mapping", slots, StrCat(BackDim(rope, 1))),
        "written = pagefuse.MlaCacheInsert <format = \"", coded ? "fp8_ds_mla" : "bf16",
        "\"> (latent, rope, slot_mapping, cache)  ", view.after, "}")};
    result.rules = {kBytes};
    result.limits["slot_mapping"] = UnitsOf(*output, width);
    return result;
  };
  return search.Fuse("fuse-MlaCacheInsert", {{"kv_cache_out", output, "kv_cache"}},
                     {CachePort("kv_cache", output), SlotPort(), part("kv_c"), part("k_pe")},
                     draft);
}

absl::StatusOr<bool> FuseCompressorStateInsert(FusionSearch& search, Value* output) {
  const int64_t width = BackDim(*output, 1);
  if (output->dtype() != DataType::kFloat || !IsWrittenCache(*output) || width % 2 != 0 ||
      width < 2 || !ReshapeDims(*output)) {
    return false;
  }
  const CacheView view =
      ViewCache(*output, "state_cache",
                Rank(*output) == 3 ? *ReshapeDims(*output) : StrCat("[-1, 1, ", width, "]"));
  const auto rows = [width](std::string name) {
    PortSpec spec = RowPort(std::move(name), 2, 0);
    spec.fits = [width](const Value& value) {
      return (value.dtype() == DataType::kFloat || value.dtype() == DataType::kBfloat16) &&
             Rank(value) == 2 && BackDim(value, 1) > 0 && 2 * BackDim(value, 1) <= width;
    };
    return spec;
  };
  const PortSpec ape = {
      .name = "ape", .role = ProbeRole::kFactors, .metadata = true, .fits = [](const Value& value) {
        return value.dtype() == DataType::kFloat && Rank(value) == 2 && BackDim(value, 1) > 0 &&
               BackDim(value, 2) > 0;
      }};
  const auto draft = [&](const BoundPorts& ports, const ComputedRegion&) {
    Draft result;
    const Value& kv = *ports.at("kv");
    const Value& score = *ports.at("score");
    const Value& positions = *ports.at("positions");
    const int64_t row = BackDim(kv, 1);
    if (BackDim(score, 1) != row || BackDim(*ports.at("ape"), 1) != row) return result;
    if (kv.dtype() != score.dtype()) return result;
    const Value& slots = *ports.at("slot_mapping");
    result.texts = {StrCat(
        "(state_cache, slot_mapping, kv, ape, positions, score) => (state_cache_out) { ",
        view.before, RowsLike("rows", "kv", kv, "slot_mapping", slots, StrCat(row)),
        RowsLike("scores", "score", score, "slot_mapping", slots, StrCat(row)),
        RowsLike("places", "positions", positions, "slot_mapping", slots, ""),
        "written = pagefuse.CompressorStateInsert <compress_ratio = ", BackDim(*ports.at("ape"), 2),
        "> (rows, scores, ape, places, slot_mapping, cache)  ", view.after, "}")};
    result.rules = {kBytes};
    result.limits["slot_mapping"] = UnitsOf(*output, width);
    constexpr int64_t kPositions = 1000;
    result.limits["positions"] = kPositions;
    return result;
  };
  return search.Fuse("fuse-CompressorStateInsert", {{"state_cache_out", output, "state_cache"}},
                     {CachePort("state_cache", output), SlotPort(), rows("kv"), ape, PositionPort(),
                      rows("score")},
                     draft);
}

namespace {

struct QNormCache {
  std::string format;
  std::string dims;  // as the op takes the cache
  int64_t block_size = 0;
  int64_t slots = 0;
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
            {"fp8_ue8m0", StrCat("[-1, ", width, "]"), size, UnitsOf(cache, width) * size});
      }
    }
    return caches;
  }
  if (BackDim(cache, 1) != kElements) return caches;
  const std::string dims = Rank(cache) == 3 ? *ReshapeDims(cache) : "[-1, 1, 512]";
  const bool coded = cache.dtype() == DataType::kFloat8E4M3FN;
  if (!coded && cache.dtype() != DataType::kBfloat16) return caches;
  caches.push_back({coded ? "fp8" : "bf16", dims, 0, UnitsOf(cache, kElements)});
  return caches;
}

Draft QNormDraft(const QNormCache& cache, const Value& q_out, const TableForm& form,
                 const BoundPorts& ports, const ComputedRegion& region, const CacheView& view) {
  Draft draft;
  const auto width = TableWidth(form, ports);
  if (!width || *width > BackDim(q_out, 1)) return draft;
  SetTableLimit(form, ports, draft);
  draft.limits["slot_mapping"] = cache.slots;
  const std::string prelude = absl::StrReplaceAll(
      form.prelude, {{"@width", StrCat(*width)}, {"@half", StrCat(*width / 2)}});
  const int64_t heads = BackDim(*ports.at("q"), 2);
  const int64_t padded = BackDim(q_out, 2) == heads ? 0 : BackDim(q_out, 2);
  for (float eps : Epsilons(region)) {
    draft.texts.push_back(
        StrCat("(kv_cache, slot_mapping, q, kv, ", form.formal, ") => (q_out, kv_cache_out) { ",
               prelude, view.before, "q_out, written = pagefuse.QNormRopeKvInsert <format = \"",
               cache.format, "\", eps = ", FloatText(eps),
               cache.block_size > 0 ? StrCat(", block_size = ", cache.block_size) : "",
               padded > 0 ? StrCat(", padded_heads = ", padded) : "",
               "> (q, kv, cache, slot_mapping, positions, table)  ", view.after, "}"));
  }
  // Two neighbours in bfloat16.
  constexpr double kStep = 1.0 / 127;
  constexpr double kCancelled = 1e-6;
  draft.rules = {{.relative = kStep, .of_largest = kCancelled}, kBytes};
  return draft;
}

absl::StatusOr<bool> FuseQNorm(FusionSearch& search, Value* output, const QNormCache& cache,
                               Value* q_out) {
  const CacheView view = ViewCache(*output, "kv_cache", cache.dims);
  const auto bfloat16 = [](PortSpec spec) {
    spec.fits = [fits = spec.fits](const Value& value) {
      return value.dtype() == DataType::kBfloat16 && fits(value);
    };
    return spec;
  };
  for (const TableForm& form : TableForms()) {
    std::vector<PortSpec> ports = {CachePort("kv_cache", output), SlotPort(),
                                   bfloat16(RowPort("q", 3, BackDim(*q_out, 1))),
                                   bfloat16(RowPort("kv", 2, BackDim(*q_out, 1)))};
    ports.insert(ports.end(), form.ports.begin(), form.ports.end());
    PF_ASSIGN_OR_RETURN(const bool fused,
                        search.Fuse("fuse-QNormRopeKvInsert",
                                    {{"q_out", q_out}, {"kv_cache_out", output, "kv_cache"}}, ports,
                                    [&](const BoundPorts& bound, const ComputedRegion& region) {
                                      return QNormDraft(cache, *q_out, form, bound, region, view);
                                    }));
    if (fused) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<bool> FuseQNormRopeKvInsert(FusionSearch& search, Value* output) {
  if (!IsWrittenCache(*output)) return false;
  constexpr int64_t kElements = 512;
  for (const QNormCache& cache : QNormCaches(search, output)) {
    for (Value* q_out : search.ComputedValues()) {
      if (q_out->dtype() != DataType::kBfloat16 || Rank(*q_out) != 3 ||
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
