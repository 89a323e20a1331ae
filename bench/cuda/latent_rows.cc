// SPDX-License-Identifier: Apache-2.0
// What DeepSeek-V4 and V3.2 do with rows of their caches: rotation and quantisation, inserts, reads,
// compressed windows. Amounts are the bytes of rows, each once, and of what a token has of its own:
// position, slot, row of the rotation's table. Tables of blocks, lengths and weights are left out.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "device_call.h"
#include "paged_requests.h"
#include "rows.h"

namespace pagefuse::cuda_bench {
namespace {

constexpr int64_t kStepTokens = 4096;
constexpr int64_t kQueryHeads = 64, kLatentSize = 512, kIndexSize = 128, kRotatedSize = 64;
constexpr int64_t kIndexBytes = 8, kTableRowBytes = 4 * kRotatedSize;  // int64, float

CallInput Positions(int64_t count) {
  std::vector<int64_t> positions;
  for (int64_t t = 0; t < count; ++t) positions.push_back(t);
  return Int64s(positions);
}

CallInput CosSin(int64_t positions) {
  return Random(DataType::kFloat, {positions, kRotatedSize}, Fill::kFloat);
}

CallInput Bfloat16s(std::vector<int64_t> dims) {
  return Random(DataType::kBfloat16, std::move(dims), Fill::kBfloat16);
}

// --- rotation ---

Measured QuantizeIndexerQuery(const Gpu& gpu, bool is_mxfp4) {
  const CallSpec spec = {
      .op = "IndexerQRopeQuant",
      .attributes = {{"format", std::string(is_mxfp4 ? "mxfp4" : "fp8")},
                     {"softmax_scale", 0.088388f},
                     {"head_scale", 0.125f}},
      .inputs = {Positions(kStepTokens), Bfloat16s({kStepTokens, kQueryHeads, kIndexSize}),
                 CosSin(kStepTokens), Bfloat16s({kStepTokens, kQueryHeads})},
      .num_outputs = is_mxfp4 ? 3 : 2};
  const int64_t codes = is_mxfp4 ? IndexerMxfp4Row(kIndexSize).TokenBytes() : kIndexSize;
  const int64_t head = 2 * kIndexSize + codes + 2 + 4;  // and its weight, read and written
  return Moved(gpu, spec, kStepTokens * (kQueryHeads * head + kIndexBytes + kTableRowBytes));
}

Measured QuantizeOutput(const Gpu& gpu, bool is_packed) {
  constexpr int64_t kGroups = 8, kScaleGroup = 128;
  const CallSpec spec = {
      .op = "InvRopeQuant",
      .attributes = {{"n_groups", kGroups},
                     {"scale_format", std::string(is_packed ? "ue8m0_int32" : "float32")}},
      .inputs = {Bfloat16s({kStepTokens, kQueryHeads, kLatentSize}), Positions(kStepTokens),
                 CosSin(kStepTokens)},
      .num_outputs = 2};
  const int64_t scales = kLatentSize / kScaleGroup * (is_packed ? 1 : 4);
  const int64_t head = 2 * kLatentSize + kLatentSize + scales;
  return Moved(gpu, spec, kStepTokens * (kQueryHeads * head + kIndexBytes + kTableRowBytes));
}

Measured InsertNormed(const Gpu& gpu) {
  const PagedRequests step = {1, kStepTokens};
  const CallSpec spec = {
      .op = "QNormRopeKvInsert",
      .inputs = {Bfloat16s({kStepTokens, kQueryHeads, kLatentSize}),
                 Bfloat16s({kStepTokens, kLatentSize}), step.BlockCache(), Int64s(step.Slots()),
                 Positions(kStepTokens), CosSin(kStepTokens)},
      .num_outputs = 2};
  const int64_t queries = kQueryHeads * 2 * kLatentSize * 2;  // read and written
  const int64_t row = 2 * kLatentSize + Fp8Ue8m0Row().TokenBytes();
  return Moved(gpu, spec, kStepTokens * (queries + row + 2 * kIndexBytes + kTableRowBytes));
}

// --- inserts ---

Measured InsertV4Keys(const Gpu& gpu) {
  const PagedRequests step = {1, kStepTokens};
  const CallSpec spec = {
      .op = "KCacheQuantInsert",
      .inputs = {Bfloat16s({kStepTokens, kLatentSize}), Int64s(step.Slots()), step.BlockCache()}};
  const int64_t row = 2 * kLatentSize + Fp8Ue8m0Row().TokenBytes();
  return Moved(gpu, spec, kStepTokens * (row + kIndexBytes));
}

Measured InsertIndexerKeys(const Gpu& gpu, int64_t tokens) {
  const PagedRequests step = {1, tokens};
  const GroupedRowFormat format = IndexerFp8Row(kIndexSize, kIndexSize);
  const CallSpec spec = {
      .op = "IndexerKQuantInsert",
      .inputs = {Bfloat16s({tokens, kIndexSize}), Int64s(step.Slots()), step.Cache(format)}};
  return Moved(gpu, spec, tokens * (2 * kIndexSize + format.TokenBytes() + kIndexBytes));
}

Measured InsertLatents(const Gpu& gpu, int64_t tokens) {
  const PagedRequests step = {1, tokens};
  const GroupedRowFormat format = Fp8DsMlaRow();
  const CallSpec spec = {
      .op = "MlaCacheInsert",
      .attributes = {{"format", std::string("fp8_ds_mla")}},
      .inputs = {Bfloat16s({tokens, kLatentSize}), Bfloat16s({tokens, kRotatedSize}),
                 Int64s(step.Slots()), step.Cache(format)}};
  const int64_t read = 2 * (kLatentSize + kRotatedSize);
  return Moved(gpu, spec, tokens * (read + format.TokenBytes() + kIndexBytes));
}

// --- reads ---

Measured GatherV4Keys(const Gpu& gpu, const PagedRequests& read) {
  const CallSpec spec = {.op = "KCacheDequantGather",
                         .inputs = {Bfloat16s({read.requests, read.length, kLatentSize}),
                                    read.BlockCache(), read.Lengths(), read.Table()}};
  return Moved(gpu, spec, read.tokens() * (Fp8Ue8m0Row().TokenBytes() + 2 * kLatentSize));
}

Measured GatherLatents(const Gpu& gpu, const PagedRequests& read) {
  std::vector<int32_t> begins = read.Begins();
  begins.pop_back();
  const GroupedRowFormat format = Fp8DsMlaRow();
  const CallSpec spec = {.op = "MlaGatherUpconvert",
                         .inputs = {read.Cache(format), read.Table(), read.Lengths(),
                                    Int32s({read.requests}, begins)}};
  const int64_t written = 2 * (kLatentSize + kRotatedSize);
  return Moved(gpu, spec, read.tokens() * (format.TokenBytes() + written));
}

Measured GatherIndexerKeys(const Gpu& gpu, const PagedRequests& read) {
  const GroupedRowFormat format = IndexerFp8Row(kIndexSize, kIndexSize);
  const CallSpec spec = {
      .op = "IndexerKGather",
      .inputs = {read.Cache(format), read.Table(), Int32s({read.requests + 1}, read.Begins())},
      .num_outputs = 2};
  return Moved(gpu, spec, 2 * read.tokens() * format.TokenBytes());
}

// --- compressed windows ---

Measured InsertState(const Gpu& gpu) {
  constexpr int64_t kRatio = 4, kWidth = 1024;
  const PagedRequests step = {1, kStepTokens, kRatio};
  const CallInput rows = Random(DataType::kFloat, {kStepTokens, kWidth}, Fill::kFloat);
  const CallSpec spec = {
      .op = "CompressorStateInsert",
      .attributes = {{"compress_ratio", kRatio}},
      .inputs = {rows, rows, Random(DataType::kFloat, {kRatio, kWidth}, Fill::kFloat),
                 Positions(kStepTokens), Int64s(step.Slots()),
                 Random(DataType::kFloat, {step.pages(), step.page, 2 * kWidth}, Fill::kFloat)}};
  return Moved(gpu, spec, kStepTokens * (4 * 4 * kWidth + 2 * kIndexBytes));
}

struct Compression {
  const char* format;
  int64_t size, ratio;

  bool overlaps() const { return ratio == 4; }
  int64_t StateColumns() const { return 2 * (overlaps() ? 2 : 1) * size; }
  GroupedRowFormat RowFormat() const {
    if (size == kLatentSize) return Fp8Ue8m0Row();
    return format == std::string("indexer_fp8") ? IndexerFp8Row(size, size) : IndexerMxfp4Row(size);
  }
  CallInput Cache(const PagedRequests& rows) const {
    return size == kLatentSize ? rows.BlockCache() : rows.Cache(RowFormat());
  }
};

// A whole prompt: one token of `ratio` writes a row. With overlap a window reads one half of its own
// state rows and the other half of those before: each state row once in all.
Measured InsertCompressed(const Gpu& gpu, const Compression& compression) {
  const int64_t ratio = compression.ratio, windows = kStepTokens / ratio;
  const PagedRequests state = {1, kStepTokens, compression.overlaps() ? 4 : 8};
  const PagedRequests rows = {1, windows};
  const std::vector<int64_t> slots = rows.Slots();
  std::vector<int64_t> slot_of_token(static_cast<size_t>(kStepTokens), -1);
  for (size_t i = 0; i < slots.size(); ++i) {
    slot_of_token[(i + 1) * static_cast<size_t>(ratio) - 1] = slots[i];
  }
  const CallSpec spec = {
      .op = "CompressCacheInsert",
      .attributes = {{"format", std::string(compression.format)}, {"compress_ratio", ratio}},
      .inputs = {Random(DataType::kFloat, {state.pages(), state.page, compression.StateColumns()},
                        Fill::kFloat),
                 Int32s({kStepTokens}, std::vector<int32_t>(static_cast<size_t>(kStepTokens), 0)),
                 Positions(kStepTokens), Int64s(state.Slots()), state.Table(),
                 Bfloat16s({compression.size}), CosSin(kStepTokens), Int64s(slot_of_token),
                 compression.Cache(rows)}};
  const int64_t token = 4 * compression.StateColumns() + 4 + 3 * kIndexBytes;
  const int64_t row = compression.RowFormat().TokenBytes() + kTableRowBytes;
  return Moved(gpu, spec, kStepTokens * token + windows * row);
}

// --- rows ---

Target Within(double us) { return {.bound = Bound::kCopy, .us = us}; }

void AddRotationRows(std::vector<Row>& rows) {
  for (const bool is_mxfp4 : {false, true}) {
    rows.push_back({std::string("IndexerQRopeQuant T4096 H64 D128 ") + (is_mxfp4 ? "mxfp4" : "fp8"),
                    Within(is_mxfp4 ? 45 : 36),
                    [=](const Gpu& gpu) { return QuantizeIndexerQuery(gpu, is_mxfp4); }});
  }
  for (const bool is_packed : {false, true}) {
    rows.push_back({std::string("InvRopeQuant T4096 H64 D512 scales ") +
                        (is_packed ? "ue8m0_int32" : "float32"),
                    Within(112), [=](const Gpu& gpu) { return QuantizeOutput(gpu, is_packed); }});
  }
  rows.push_back({"QNormRopeKvInsert N4096 H64", Within(150), InsertNormed});
}

void AddCompressionRows(std::vector<Row>& rows) {
  rows.push_back({"CompressorStateInsert T4096 W1024", Within(18.5), InsertState});
  const auto add = [&](const std::string& name, double us, const Compression& compression) {
    rows.push_back({"CompressCacheInsert T4096 " + name, Within(us),
                    [=](const Gpu& gpu) { return InsertCompressed(gpu, compression); }});
  };
  add("fp8 ratio 4", 11, {"fp8_ue8m0", kLatentSize, 4});
  add("fp8 ratio 128", 14, {"fp8_ue8m0", kLatentSize, 128});
  add("indexer fp8", 5, {"indexer_fp8", kIndexSize, 4});
  add("indexer mxfp4", 5, {"indexer_mxfp4", kIndexSize, 4});
}

}  // namespace

void AddLatentRows(std::vector<Row>& rows) {
  AddRotationRows(rows);
  rows.push_back({"KCacheQuantInsert T4096", Within(5), InsertV4Keys});
  rows.push_back({"KCacheDequantGather 8 x 4096", Within(18), [](const Gpu& gpu) {
                    return GatherV4Keys(gpu, {8, 4096});
                  }});
  AddCompressionRows(rows);
  const Target large = {.bound = Bound::kCopy, .share = 0.75}, small = Within(5);
  const auto insert = [&](const std::string& op, int64_t tokens, const Target& target,
                          auto measure) {
    rows.push_back({op + " T" + std::to_string(tokens), target,
                    [=](const Gpu& gpu) { return measure(gpu, tokens); }});
  };
  insert("IndexerKQuantInsert", 131072, large, InsertIndexerKeys);
  insert("IndexerKQuantInsert", 4096, small, InsertIndexerKeys);
  insert("MlaCacheInsert fp8_ds_mla", 32768, large, InsertLatents);
  insert("MlaCacheInsert fp8_ds_mla", 1024, small, InsertLatents);
  const auto gather = [&](const std::string& op, const PagedRequests& read, const Target& target,
                          auto measure) {
    const std::string size = std::to_string(read.requests) + " x " + std::to_string(read.length);
    rows.push_back({op + " " + size, target, [=](const Gpu& gpu) { return measure(gpu, read); }});
  };
  gather("IndexerKGather", {8, 32768}, large, GatherIndexerKeys);
  gather("IndexerKGather", {4, 1024}, small, GatherIndexerKeys);
  gather("MlaGatherUpconvert", {8, 4096}, large, GatherLatents);
  gather("MlaGatherUpconvert", {1, 1024}, small, GatherLatents);
}

}  // namespace pagefuse::cuda_bench
