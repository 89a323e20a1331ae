// SPDX-License-Identifier: Apache-2.0
// Fuses CompressCacheInsert wherever a graph pools windows of rows, norms, rotates, quantises and
// writes them: from a paged state, or from the rows of one sequence in a prefill, which are the
// state of one block.
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/fuse/equivalent/attribute_numbers.h"
#include "pagefuse/passes/fuse/equivalent/cache_views.h"
#include "pagefuse/passes/fuse/equivalent/cos_sin_tables.h"
#include "pagefuse/passes/fuse/equivalent/fusion_parts.h"
#include "pagefuse/passes/fuse/equivalent/fusions.h"

namespace pagefuse {
namespace {

// Sums over windows and norms are taken in any order: here and there a code is another one.
constexpr ResultRule kPooledBytes = {.share = 0.001};

struct CompressFormat {
  const char* name;
  int64_t size;  // elements of a row
  int64_t token_bytes;
};
constexpr CompressFormat kFormats[] = {
    {"fp8_ue8m0", 512, 584}, {"indexer_fp8", 128, 132}, {"indexer_mxfp4", 128, 68}};

// How the compressed cache may be read.
struct Target {
  CompressFormat format;
  int64_t block_size = 0;
  int64_t slots = 0;
};

std::vector<Target> TargetsOf(const FusionSearch& search, Value* cache) {
  std::vector<Target> targets;
  const int64_t block_bytes = BackDim(*cache, 1);
  if (Rank(*cache) != 2 || block_bytes < 1) return targets;
  const int64_t blocks = ComparedSize(*cache, 0);
  const std::vector<int64_t> sizes = Divisors(search.UpstreamOf({cache}).nodes);
  for (const CompressFormat& format : kFormats) {
    for (int64_t size : sizes) {
      if (size * format.token_bytes > block_bytes) continue;
      targets.push_back({format, size, size * blocks});
    }
  }
  return targets;
}

FusionPort NormWeight(int64_t size) {
  return MetadataPort("rms_weight", ProbeRole::kFactors, [size](const Value& value) {
    return (value.dtype() == DataType::kFloat || value.dtype() == DataType::kBfloat16) &&
           Rank(value) == 1 && BackDim(value, 1) == size;
  });
}

FusionPort TablePort(int64_t size) {
  FusionPort table = CosSinTables()[0].ports[1];
  table.fits = [fits = table.fits, size](const Value& value) {
    return fits(value) && BackDim(value, 1) <= size && BackDim(value, 1) % 2 == 0;
  };
  return table;
}

// Rows of one window, or of two that overlap.
bool HasWidth(const Value& value, int64_t size) {
  return value.dtype() == DataType::kFloat &&
         (BackDim(value, 1) == size || BackDim(value, 1) == 2 * size);
}

std::string Attributes(const Target& target, int64_t ratio, int64_t overlap, float eps) {
  return StrCat("<format = \"", target.format.name, "\", compress_ratio = ", ratio,
                ", overlap = ", overlap, ", kv_block_size = ", target.block_size,
                ", eps = ", FloatText(eps), ">");
}

// --- from a paged state ---

// Which ports a graph has: without requests, each token has a row of the block table; without
// slots of the state, those of the compressed rows say what is padding.
struct PagedForm {
  bool requests = true;
  bool state_slots = true;
};

std::string PagedText(const PagedForm& form, const std::string& attributes) {
  const std::string formal = StrCat(
      "kv_cache, kv_slot_mapping, state_cache, rms_weight, cos_sin, block_table, ",
      form.requests ? "token_to_req, " : "", "positions", form.state_slots ? ", slot_mapping" : "");
  const std::string requests =
      form.requests
          ? "requests = Cast <to = 6> (token_to_req)  "
          : "zero = Constant <value_int: int = 0> ()  one = Constant <value_int: int = 1> ()  "
            "axis = Constant <value_ints: ints = [0]> ()  counts = Shape (positions)  "
            "count = Squeeze (counts, axis)  numbers = Range (zero, count, one)  "
            "requests = Cast <to = 6> (numbers)  ";
  return StrCat("(", formal, ") => (kv_cache_out) { ", requests,
                "blocks = Cast <to = 6> (block_table)  kv_cache_out = "
                "pagefuse.CompressCacheInsert ",
                attributes, " (state_cache, requests, positions, ",
                form.state_slots ? "slot_mapping" : "kv_slot_mapping",
                ", blocks, rms_weight, cos_sin, kv_slot_mapping, kv_cache) }");
}

Draft PagedDraft(const Target& target, const PagedForm& form, const BoundPorts& ports,
                 const ComputedRegion& region, int64_t ratio) {
  Draft draft;
  const Value& state = *ports.at("state_cache");
  const Value& table = *ports.at("block_table");
  const int64_t halves = BackDim(state, 1) / (2 * target.format.size);
  if (BackDim(state, 1) != 2 * halves * target.format.size || halves < 1 || halves > 2) {
    return draft;
  }
  for (float eps : Epsilons(region)) {
    draft.texts.push_back(PagedText(form, Attributes(target, ratio, halves - 1, eps)));
  }
  draft.rules = {kPooledBytes};
  draft.has_exact_sums = true;
  draft.step = ratio;
  draft.limits = {{"kv_slot_mapping", target.slots},
                  {"slot_mapping", ComparedSize(state, 0) * ComparedSize(state, 1)},
                  {"block_table", ComparedSize(state, 0)},
                  {"token_to_req", ComparedSize(table, 0)},
                  {"positions", std::min(ComparedSize(table, 1) * ComparedSize(state, 1),
                                         ComparedSize(*ports.at("cos_sin"), 0))}};
  return draft;
}

absl::StatusOr<bool> FusePaged(FusionSearch& search, Value* output, const Target& target,
                               const PagedForm& form, int64_t ratio) {
  const FusionPort positions = IndexPort("positions", 1, ProbeRole::kWindowEnds);
  const FusionPort state = {
      .name = "state_cache", .role = ProbeRole::kState, .fits = [](const Value& value) {
        return value.dtype() == DataType::kFloat && Rank(value) == 3;
      }};
  std::vector<FusionPort> ports = {
      CachePort("kv_cache", output),  SlotPort("kv_slot_mapping"),   state,
      NormWeight(target.format.size), TablePort(target.format.size), IndexPort("block_table", 2)};
  if (form.requests) ports.push_back(IndexPort("token_to_req", 1));
  ports.push_back(positions);
  if (form.state_slots) ports.push_back(SlotPort());
  return search.Fuse("fuse-CompressCacheInsert", {{"kv_cache_out", output, "kv_cache"}}, ports,
                     [&](const BoundPorts& bound, const ComputedRegion& region) {
                       return PagedDraft(target, form, bound, region, ratio);
                     });
}

// --- from the rows of one sequence ---

// Scores with the place in the window added, and both side by side as one block of state.
std::string StateText(int64_t ratio, int64_t width, bool placed) {
  const std::string flat = StrCat("[-1, ", width, "]");
  std::string text = ReshapeText("rows", "kv", flat);
  if (placed) {
    StrAppend(&text, ReshapeText("windows", "score", StrCat("[-1, ", ratio, ", ", width, "]")),
              "placed = Add (windows, ape)  ", ReshapeText("scores", "placed", flat));
  } else {
    StrAppend(&text, ReshapeText("scores", "score", flat));
  }
  return StrCat(text,
                "side = Concat <axis = -1> (rows, scores)  "
                "axis = Constant <value_ints: ints = [0]> ()  state = Unsqueeze (side, axis)  ");
}

// The last position of each window; request, block and state slot are all 0.
std::string WindowsText(int64_t ratio) {
  return StrCat(
      "first = Constant <value_int: int = ", ratio - 1,
      "> ()  "
      "step = Constant <value_int: int = ",
      ratio,
      "> ()  "
      "none = Constant <value_int: int = 0> ()  "
      "count_list = Shape <start = 0, end = 1> (rows)  count = Squeeze (count_list, axis)  "
      "positions = Range (first, count, step)  slots = Mul (positions, none)  "
      "requests = Cast <to = 6> (slots)  block = Constant <value_ints: ints = [0]> ()  "
      "block_row = Unsqueeze (block, axis)  blocks = Cast <to = 6> (block_row)  ");
}

Draft PrefillDraft(const Target& target, const BoundPorts& ports, const ComputedRegion& region) {
  Draft draft;
  const Value& kv = *ports.at("kv");
  const Value& score = *ports.at("score");
  const Value& slots = *ports.at("kv_slot_mapping");
  const bool placed = ports.contains("ape");
  const int64_t width = BackDim(kv, 1);
  const int64_t halves = width / target.format.size;
  if (BackDim(score, 1) != width || halves * target.format.size != width || halves < 1 ||
      halves > 2) {
    return draft;
  }
  int64_t tokens = 1;
  for (int axis = 2; axis <= Rank(kv); ++axis) tokens *= BackDim(kv, axis);
  const int64_t windows = BackDim(slots, 1);
  int64_t ratio = windows > 0 && tokens > 0 ? tokens / windows : 0;
  if (placed) {
    if (BackDim(*ports.at("ape"), 1) != width) return draft;
    ratio = BackDim(*ports.at("ape"), 2);
  }
  if (ratio < 1) return draft;
  for (float eps : Epsilons(region)) {
    draft.texts.push_back(StrCat(
        "(kv_cache, kv_slot_mapping, rms_weight, cos_sin, ", placed ? "ape, " : "",
        "kv, score) => (kv_cache_out) { ", StateText(ratio, width, placed), WindowsText(ratio),
        "kv_cache_out = pagefuse.CompressCacheInsert ", Attributes(target, ratio, halves - 1, eps),
        " (state, requests, positions, slots, blocks, rms_weight, cos_sin, "
        "kv_slot_mapping, kv_cache) }"));
  }
  draft.rules = {kPooledBytes};
  draft.has_exact_sums = true;
  draft.limits = {{"kv_slot_mapping", target.slots}};
  // As many whole windows as slots.
  constexpr int64_t kWindows = 2;
  if (const auto symbol = (*slots.shape())[0].symbol()) draft.sizes[*symbol] = kWindows;
  for (const Value* rows : {&kv, &score}) {
    for (const Dim& dim : rows->shape()->dims()) {
      if (const auto symbol = dim.symbol()) draft.sizes[*symbol] = kWindows * ratio;
    }
  }
  return draft;
}

absl::StatusOr<bool> FusePrefill(FusionSearch& search, Value* output, const Target& target,
                                 bool placed) {
  const int64_t size = target.format.size;
  const auto rows = [size](std::string name, ProbeRole role) {
    return InnerPort(std::move(name), role, [size](const Value& value) {
      return HasWidth(value, size) && (Rank(value) == 2 || Rank(value) == 3) && !ConstantOf(&value);
    });
  };
  const FusionPort ape = MetadataPort("ape", ProbeRole::kScores, [size](const Value& value) {
    return HasWidth(value, size) && Rank(value) == 2 && BackDim(value, 2) > 0;
  });
  std::vector<FusionPort> ports = {CachePort("kv_cache", output), SlotPort("kv_slot_mapping"),
                                   NormWeight(target.format.size), TablePort(target.format.size)};
  if (placed) ports.push_back(ape);
  ports.push_back(rows("kv", ProbeRole::kRows));
  ports.push_back(rows("score", ProbeRole::kScores));
  return search.Fuse("fuse-CompressCacheInsert", {{"kv_cache_out", output, "kv_cache"}}, ports,
                     [&](const BoundPorts& bound, const ComputedRegion& region) {
                       return PrefillDraft(target, bound, region);
                     });
}

}  // namespace

absl::StatusOr<bool> FuseCompressCacheInsert(FusionSearch& search, Value* output) {
  if (output->dtype() != DataType::kUint8 || !IsWrittenCache(*output)) return false;
  const Upstream upstream = search.UpstreamOf({output});
  // Windows are pooled by a softmax.
  if (std::none_of(upstream.nodes.begin(), upstream.nodes.end(),
                   [](const Node* node) { return node->Is("Softmax") || node->Is("Exp"); })) {
    return false;
  }
  for (const Target& target : TargetsOf(search, output)) {
    for (bool placed : {true, false}) {
      PF_ASSIGN_OR_RETURN(const bool fused, FusePrefill(search, output, target, placed));
      if (fused) return true;
    }
    for (int64_t ratio : Divisors(upstream.nodes)) {
      if (ratio == 1) continue;
      for (const PagedForm& form : {PagedForm{true, true}, PagedForm{true, false},
                                    PagedForm{false, true}, PagedForm{false, false}}) {
        PF_ASSIGN_OR_RETURN(const bool fused, FusePaged(search, output, target, form, ratio));
        if (fused) return true;
      }
    }
  }
  return false;
}

}  // namespace pagefuse
