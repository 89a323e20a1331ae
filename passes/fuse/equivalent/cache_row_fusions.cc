// SPDX-License-Identifier: Apache-2.0
// Fusions of rows that are quantised or joined and inserted into a paged cache by slot:
// KCacheQuantInsert, IndexerKQuantInsert, MlaCacheInsert, CompressorStateInsert.
#include <functional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/fuse/equivalent/cache_views.h"
#include "pagefuse/passes/fuse/equivalent/fusion_parts.h"
#include "pagefuse/passes/fuse/equivalent/fusions.h"

namespace pagefuse {

namespace {

// What stands beside the cache and the slots of a write.
struct RowWrite {
  std::string rule;
  std::string cache = "kv_cache";  // the port
  std::vector<FusionPort> rows;
  int64_t blocks = 0;
  int64_t block_size = 0;
  int64_t transformed = 0;  // 0: none are
  bool copies = false;      // quantises nothing
};
// `transforms`: rows of RowWrite::transformed elements may be multiplied by a Hadamard matrix.
using RowTexts = std::function<std::vector<std::string>(
    const BoundPorts&, const SlotForm&, const std::string& formal, bool transforms)>;

absl::StatusOr<bool> FuseWrite(FusionSearch& search, Value* output, const RowWrite& write,
                               const RowTexts& texts) {
  return AnyFuses(SlotForms(write.block_size), [&](const SlotForm& form) {
    std::vector<FusionPort> ports = {CachePort(write.cache, output)};
    ports.insert(ports.end(), form.ports.begin(), form.ports.end());
    std::string formal = StrCat(write.cache, ", ", form.formal);
    for (const FusionPort& rows : write.rows) {
      ports.push_back(rows);
      StrAppend(&formal, ", ", rows.name);
    }
    const auto draft = [&](const BoundPorts& bound, const ComputedRegion& region) {
      const bool transforms = MayTransformRows(region, write.transformed);
      Draft result;
      result.texts = texts(bound, form, formal, transforms);
      result.rules = {kWrittenBytes};
      if (transforms) result.rules[0].share = kTransformedShare;
      result.copies_rows = write.copies;
      SetSlotLimits(bound, write.blocks, write.block_size, result);
      constexpr int64_t kPositions = 1000;
      result.limits["positions"] = kPositions;
      return result;
    };
    return search.Fuse(write.rule, {{write.cache + "_out", output, write.cache}}, ports, draft);
  });
}

// "(formal) => (<port>_out) { ... }" around a call of the op on `cache` and `slots`.
std::string WriteText(const std::string& formal, const SlotForm& form, const CacheView& view,
                      const std::string& rows, const std::string& call) {
  return StrCat("(", formal, ") => (", view.port, "_out) { ", view.before, form.text, rows,
                "written = pagefuse.", call, "  ", view.after, "}");
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
                              .rows = {Bfloat16Port(RowPort("k", {kElements}))},
                              .blocks = UnitsOf(*output, width),
                              .block_size = block_size};
      const auto texts = [&](const BoundPorts& ports, const SlotForm& form,
                             const std::string& formal, bool) -> std::vector<std::string> {
        return {WriteText(
            formal, form, view, RowsText("rows", "k", ports, form, {kElements}),
            StrCat("KCacheQuantInsert <block_size = ", block_size, "> (rows, slots, cache)"))};
      };
      PF_ASSIGN_OR_RETURN(const bool fused, FuseWrite(search, output, write, texts));
      if (fused) return true;
    }
  }
  return false;
}

// The op with either kind of scales, as the rows are or transformed.
std::vector<std::string> IndexerKCalls(bool transforms) {
  std::vector<std::string> calls;
  for (const char* scales : {"ue8m0", "float"}) {
    for (int hadamard = 0; hadamard <= (transforms ? 1 : 0); ++hadamard) {
      calls.push_back(StrCat("IndexerKQuantInsert <quant_block_size = 128, scale_fmt = \"", scales,
                             hadamard != 0 ? "\", hadamard = 1" : "\"", "> (rows, slots, cache)"));
    }
  }
  return calls;
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
                            .block_size = block_size,
                            .transformed = kElements};
    const auto texts = [&](const BoundPorts& ports, const SlotForm& form, const std::string& formal,
                           bool transforms) {
      std::vector<std::string> result;
      for (const std::string& call : IndexerKCalls(transforms)) {
        result.push_back(
            WriteText(formal, form, view, RowsText("rows", "k", ports, form, {kElements}), call));
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
    return InnerPort(std::move(name), ProbeRole::kRows, [width](const Value& value) {
      return value.dtype() == DataType::kBfloat16 && Rank(value) >= 2 && BackDim(value, 1) > 0 &&
             BackDim(value, 1) < width;
    });
  };
  const RowWrite write = {.rule = "fuse-MlaCacheInsert",
                          .rows = {part("kv_c"), part("k_pe")},
                          .blocks = cache.blocks,
                          .block_size = cache.block_size};
  const auto texts = [&](const BoundPorts& ports, const SlotForm& form, const std::string& formal,
                         bool) -> std::vector<std::string> {
    const int64_t latent = BackDim(*ports.at("kv_c"), 1);
    const int64_t rope = BackDim(*ports.at("k_pe"), 1);
    const bool fits = coded ? latent == kLatent && rope == kRope : latent + rope == width;
    if (!fits) return {};
    return {WriteText(formal, form, view,
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
    return InnerPort(std::move(name), ProbeRole::kRows, [width](const Value& value) {
      return (value.dtype() == DataType::kFloat || value.dtype() == DataType::kBfloat16) &&
             Rank(value) >= 2 && BackDim(value, 1) > 0 && 2 * BackDim(value, 1) <= width &&
             !ConstantOf(&value);
    });
  };
  const FusionPort ape = MetadataPort("ape", ProbeRole::kFactors, [width](const Value& value) {
    return value.dtype() == DataType::kFloat && Rank(value) == 2 &&
           2 * BackDim(value, 1) <= width && BackDim(value, 1) > 0 && BackDim(value, 2) > 0;
  });
  const RowWrite write = {.rule = "fuse-CompressorStateInsert",
                          .cache = "state_cache",
                          .rows = {rows("kv"), ape, PositionPort(), rows("score")},
                          .blocks = cache.blocks,
                          .block_size = cache.block_size,
                          .copies = true};
  const auto texts = [&](const BoundPorts& ports, const SlotForm& form, const std::string& formal,
                         bool) -> std::vector<std::string> {
    const Value& kv = *ports.at("kv");
    const Value& score = *ports.at("score");
    const int64_t row = BackDim(kv, 1);
    if (BackDim(score, 1) != row || BackDim(*ports.at("ape"), 1) != row ||
        kv.dtype() != score.dtype()) {
      return {};
    }
    return {
        WriteText(formal, form, view,
                  RowsText("rows", "kv", ports, form, {row}) +
                      RowsText("scores", "score", ports, form, {row}) +
                      RowsText("places", "positions", ports, form, {}),
                  StrCat("CompressorStateInsert <compress_ratio = ", BackDim(*ports.at("ape"), 2),
                         "> (rows, scores, ape, places, slots, cache)"))};
  };
  return FuseWrite(search, output, write, texts);
}

}  // namespace pagefuse
