// SPDX-License-Identifier: Apache-2.0
// Fusions that read rows of whole requests from paged caches, decoded or as they are:
// KCacheDequantGather, MlaGatherUpconvert, IndexerKGather.
#include <algorithm>
#include <random>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/fuse/equivalent/attribute_numbers.h"
#include "pagefuse/passes/fuse/equivalent/fusion_parts.h"
#include "pagefuse/passes/fuse/equivalent/fusions.h"

namespace pagefuse {
namespace {

// A cache of bytes of that rank or more, [blocks, ..].
FusionPort ByteCache(int rank, int64_t width = 0) {
  return {
      .name = "kv_cache", .role = ProbeRole::kContents, .fits = [rank, width](const Value& value) {
        return value.dtype() == DataType::kUint8 && Rank(value) >= rank && BackDim(value, 1) > 0 &&
               (width == 0 || BackDim(value, 1) == width);
      }};
}

bool ReadsBytes(const FusionSearch& search, Value* output) {
  const Upstream upstream = search.UpstreamOf({output});
  return std::any_of(upstream.leaves.begin(), upstream.leaves.end(), [](const Value* leaf) {
    return leaf->dtype() == DataType::kUint8 && Rank(*leaf) >= 2;
  });
}

// --- KCacheDequantGather ---

struct TailGather {
  Value* output = nullptr;
  int64_t block_size = 0;
  int64_t offset = 0;
  bool counted = false;  // not all of a sequence is gathered
};

// Bytes of a block: the product of the dims behind the first.
int64_t BlockBytes(const Value& cache) {
  int64_t bytes = 1;
  for (int axis = 1; axis < Rank(cache); ++axis) {
    bytes *= (*cache.shape())[axis].constant().value_or(0);
  }
  return bytes;
}

std::string TailText(const TailGather& gather, const Value& cache) {
  return StrCat("(workspace, kv_cache, block_table, seq_lens",
                gather.counted ? ", gather_lens" : "", ") => (workspace_out) { ",
                NarrowText({"block_table", "seq_lens"}),
                gather.counted ? NarrowText({"gather_lens"}) : "",
                ReshapeText("cache", "kv_cache", StrCat("[-1, ", BlockBytes(cache), "]")),
                "workspace_out = pagefuse.KCacheDequantGather <block_size = ", gather.block_size,
                ", offset = ", gather.offset, "> (workspace, cache, seq_lens_32, block_table_32",
                gather.counted ? ", gather_lens_32" : "", ") }");
}

absl::StatusOr<bool> FuseTail(FusionSearch& search, const TailGather& gather) {
  constexpr int64_t kTokenBytes = 584;
  std::vector<FusionPort> ports = {CachePort("workspace", gather.output), ByteCache(2),
                                   IndexPort("block_table", 2), IndexPort("seq_lens", 1)};
  if (gather.counted) ports.push_back(IndexPort("gather_lens", 1));
  const auto draft = [&](const BoundPorts& bound, const ComputedRegion&) {
    Draft result;
    const Value& cache = *bound.at("kv_cache");
    if (BlockBytes(cache) < gather.block_size * kTokenBytes) return result;
    result.texts = {TailText(gather, cache)};
    result.rules.resize(1);
    result.limits = {{"block_table", ComparedSize(cache, 0)}};
    const int64_t room = ComparedSize(*gather.output, 1) - gather.offset;
    const int64_t capacity = ComparedSize(*bound.at("block_table"), 1) * gather.block_size;
    result.arrange = [room, capacity, counted = gather.counted](uint32_t seed,
                                                                PortIntegers& integers) {
      std::mt19937 random(seed);
      const int64_t most = counted ? capacity : std::min(capacity, room);
      for (int64_t& length : integers["seq_lens"]) {
        length = static_cast<int64_t>(random() % (most + 1));
      }
      if (!counted) return;
      for (size_t r = 0; r < integers["gather_lens"].size(); ++r) {
        const int64_t length = integers["seq_lens"][r];
        integers["gather_lens"][r] = static_cast<int64_t>(random() % (std::min(length, room) + 1));
      }
    };
    return result;
  };
  return search.Fuse("fuse-KCacheDequantGather", {{"workspace_out", gather.output, "workspace"}},
                     ports, draft);
}

// --- MlaGatherUpconvert ---

// Requests one behind the other, with rows between them that none owns.
void ArrangeRequests(uint32_t seed, int64_t capacity, PortIntegers& integers) {
  std::mt19937 random(seed);
  int64_t next = 0;
  for (size_t r = 0; r < integers["seq_lens"].size(); ++r) {
    const auto length = static_cast<int64_t>(random() % (capacity + 1));
    if (r > 0) next += static_cast<int64_t>(random() % 3);
    integers["seq_lens"][r] = length;
    integers["workspace_starts"][r] = next;
    next += length;
  }
}

}  // namespace

absl::StatusOr<bool> FuseKCacheDequantGather(FusionSearch& search, Value* output) {
  constexpr int64_t kElements = 512;
  if (output->dtype() != DataType::kBfloat16 || Rank(*output) != 3 ||
      BackDim(*output, 1) != kElements || !ReadsBytes(search, output)) {
    return false;
  }
  const std::vector<Node*> nodes = search.UpstreamOf({output}).nodes;
  for (int64_t block_size : Divisors(nodes)) {
    for (int64_t offset : IntegersOf(nodes)) {
      if (offset >= ComparedSize(*output, 1)) continue;
      for (const bool counted : {true, false}) {
        PF_ASSIGN_OR_RETURN(const bool fused,
                            FuseTail(search, {output, block_size, offset, counted}));
        if (fused) return true;
      }
    }
  }
  return false;
}

absl::StatusOr<bool> FuseMlaGatherUpconvert(FusionSearch& search, Value* output) {
  constexpr int64_t kElements = 576, kSlotBytes = 656;
  if (output->dtype() != DataType::kBfloat16 || Rank(*output) != 2 ||
      BackDim(*output, 1) != kElements || !ReadsBytes(search, output)) {
    return false;
  }
  const std::vector<FusionPort> ports = {ByteCache(3, kSlotBytes), IndexPort("block_table", 2),
                                         IndexPort("seq_lens", 1),
                                         IndexPort("workspace_starts", 1)};
  const auto draft = [](const BoundPorts& bound, const ComputedRegion&) {
    Draft result;
    const Value& cache = *bound.at("kv_cache");
    if (Rank(cache) != 3) return result;
    result.texts = {StrCat("(kv_cache, block_table, seq_lens, workspace_starts) => (workspace) { ",
                           NarrowText({"block_table", "seq_lens", "workspace_starts"}),
                           "workspace = pagefuse.MlaGatherUpconvert (kv_cache, block_table_32, "
                           "seq_lens_32, workspace_starts_32) }")};
    result.rules.resize(1);
    result.limits = {{"block_table", ComparedSize(cache, 0)}};
    const int64_t capacity = ComparedSize(*bound.at("block_table"), 1) * ComparedSize(cache, 1);
    result.arrange = [capacity](uint32_t seed, PortIntegers& integers) {
      ArrangeRequests(seed, capacity, integers);
    };
    return result;
  };
  return search.Fuse("fuse-MlaGatherUpconvert", {{"workspace", output}}, ports, draft);
}

// --- IndexerKGather ---

namespace {

struct KeyGather {
  Value* codes = nullptr;
  Value* scales = nullptr;
  int64_t group = 0;
  bool counted = false;  // the number of rows is an input
};

absl::StatusOr<bool> FuseKeys(FusionSearch& search, const KeyGather& gather) {
  constexpr int64_t kScaleBytes = 4;
  const int64_t width =
      BackDim(*gather.codes, 1) + BackDim(*gather.codes, 1) / gather.group * kScaleBytes;
  std::vector<FusionPort> ports = {ByteCache(3, width), IndexPort("block_table", 2),
                                   IndexPort("cu_seq_lens", 1)};
  if (gather.counted) ports.push_back(IndexPort("num_rows", 0));
  const auto draft = [&](const BoundPorts& bound, const ComputedRegion&) {
    Draft result;
    const Value& cache = *bound.at("kv_cache");
    const Value& table = *bound.at("block_table");
    const Value& starts = *bound.at("cu_seq_lens");
    result.texts = {StrCat(
        "(kv_cache, block_table, cu_seq_lens", gather.counted ? ", num_rows" : "",
        ") => (k, k_scale) { ", NarrowText({"block_table", "cu_seq_lens"}),
        gather.counted ? CastText("rows", "num_rows", DataType::kInt64) : "",
        "k, k_scale = pagefuse.IndexerKGather <quant_block_size = ", gather.group,
        ", fp8_storage = \"", StorageOf(*gather.codes),
        "\"> (kv_cache, block_table_32, cu_seq_lens_32", gather.counted ? ", rows" : "", ") }")};
    result.rules.resize(2);
    result.limits = {{"block_table", ComparedSize(cache, 0)}};
    if (const auto symbol = (*starts.shape())[0].symbol()) {
      result.sizes[*symbol] = ComparedSize(table, 0) + 1;
    }
    const int64_t capacity = ComparedSize(table, 1) * ComparedSize(cache, 1);
    result.arrange = [capacity](uint32_t seed, PortIntegers& integers) {
      std::mt19937 random(seed);
      int64_t next = 0;
      for (int64_t& start : integers["cu_seq_lens"]) {
        start = next;
        next += static_cast<int64_t>(random() % (capacity + 1));
      }
      const int64_t last = integers["cu_seq_lens"].back();
      for (int64_t& rows : integers["num_rows"]) rows = last + 3;
    };
    return result;
  };
  return search.Fuse("fuse-IndexerKGather", {{"k", gather.codes}, {"k_scale", gather.scales}},
                     ports, draft);
}

}  // namespace

absl::StatusOr<bool> FuseIndexerKGather(FusionSearch& search, Value* output) {
  if (!IsCodeType(output->dtype()) || Rank(*output) != 2 || BackDim(*output, 1) < 1 ||
      !ReadsBytes(search, output)) {
    return false;
  }
  const int64_t size = BackDim(*output, 1);
  for (Value* scales : search.ComputedValues()) {
    const int64_t groups = Rank(*scales) == 2 ? BackDim(*scales, 1) : 0;
    if (scales->dtype() != DataType::kFloat || groups < 1 || size % groups != 0) continue;
    if (!ReadsBytes(search, scales)) continue;
    for (const bool counted : {true, false}) {
      PF_ASSIGN_OR_RETURN(const bool fused,
                          FuseKeys(search, {output, scales, size / groups, counted}));
      if (fused) return true;
    }
  }
  return false;
}

}  // namespace pagefuse
