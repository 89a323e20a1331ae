// SPDX-License-Identifier: Apache-2.0
// The ops of DeepSeek's caches at the sizes of V3.2 and V4.
#include <numeric>
#include <string>

#include "op_cases.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse {
namespace {

using enum DataType;

constexpr int64_t kBlockSize = 64, kSize = 512, kRotated = 64, kHeads = 64;

int64_t BlocksFor(int64_t tokens, int64_t block_size = kBlockSize) {
  return (tokens + block_size - 1) / block_size;
}

Part Cache(const GroupedRowFormat& row, int64_t tokens) {
  return Bytes({BlocksFor(tokens), GroupedBlockBytes(row, kBlockSize)});
}
Part Tokens(int64_t tokens) { return Ints({1}, {static_cast<int32_t>(tokens)}); }
Part SamePositions(int64_t tokens) { return Longs(std::vector<int64_t>(tokens, 5)); }

std::unique_ptr<OpCall> KeyInsert(int64_t tokens) {
  return CallOf("KCacheQuantInsert", {Normal(kBfloat16, {tokens, kSize}), Slots(tokens, kBlockSize),
                                      Cache(Fp8Ue8m0Row(), tokens)});
}

std::unique_ptr<OpCall> KeyGather(int64_t tokens) {
  return CallOf("KCacheDequantGather",
                {Normal(kBfloat16, {1, tokens, kSize}), Cache(Fp8Ue8m0Row(), tokens),
                 Tokens(tokens), BlockTable(1, BlocksFor(tokens))});
}

std::unique_ptr<OpCall> LatentInsert(const char* format, const Part& cache, int64_t tokens) {
  return CallOf("MlaCacheInsert",
                {Normal(kBfloat16, {tokens, 512}), Normal(kBfloat16, {tokens, 64}),
                 Slots(tokens, kBlockSize), cache, Attr("format", format)});
}

std::unique_ptr<OpCall> LatentGather(int64_t tokens) {
  return CallOf("MlaGatherUpconvert",
                {Bytes({BlocksFor(tokens), kBlockSize, 656}), BlockTable(1, BlocksFor(tokens)),
                 Tokens(tokens), Tokens(0)});
}

constexpr int64_t kStateWidth = 1024, kStateRatio = 4;
std::unique_ptr<OpCall> StateInsert(int64_t tokens) {
  const Part rows = Normal(kFloat, {tokens, kStateWidth});
  return CallOf("CompressorStateInsert",
                {rows, rows, Normal(kFloat, {kStateRatio, kStateWidth}), Range(tokens),
                 Slots(tokens, kStateRatio),
                 Normal(kFloat, {BlocksFor(tokens, kStateRatio), kStateRatio, 2 * kStateWidth}),
                 Attr("compress_ratio", kStateRatio)});
}

struct Compression {
  const char* format;
  int64_t ratio;
  GroupedRowFormat row;

  int64_t overlap() const { return ratio == 4 ? 1 : 0; }
  int64_t RowBytes() const {
    return (1 + overlap()) * ratio * row.elements() * 2 * 4 + row.TokenBytes();
  }
};

// Every token ends a window; the windows share one ring of state blocks.
std::unique_ptr<OpCall> CompressInsert(const Compression& c, int64_t tokens) {
  const int64_t state_block = c.ratio == 4 ? 4 : 8;
  const int64_t columns = 18 * c.ratio / state_block;
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < tokens; ++i) positions.push_back((i % 16 + 2) * c.ratio - 1);
  std::vector<int32_t> table(columns);
  std::iota(table.begin(), table.end(), 0);
  return CallOf("CompressCacheInsert",
                {Normal(kFloat, {columns, state_block, 2 * (1 + c.overlap()) * c.row.elements()}),
                 Ints({tokens}, std::vector<int32_t>(tokens)), Longs(positions), Range(tokens),
                 Ints({1, columns}, table), Normal(kBfloat16, {c.row.elements()}),
                 Normal(kFloat, {18 * c.ratio, kRotated}), Range(tokens), Cache(c.row, tokens),
                 Attr("format", c.format), Attr("compress_ratio", c.ratio)});
}

std::unique_ptr<OpCall> QueryNorm(int64_t tokens) {
  return CallOf("QNormRopeKvInsert",
                {Normal(kBfloat16, {tokens, kHeads, kSize}), Normal(kBfloat16, {tokens, kSize}),
                 Cache(Fp8Ue8m0Row(), tokens), Slots(tokens, kBlockSize), SamePositions(tokens),
                 Normal(kFloat, {16, kRotated})});
}

std::unique_ptr<OpCall> InverseRope(int64_t tokens) {
  return CallOf("InvRopeQuant", {Normal(kBfloat16, {tokens, kHeads, kSize}), SamePositions(tokens),
                                 Normal(kFloat, {16, kRotated}), Attr("n_groups", 8)});
}

}  // namespace

void AddLatentCases(OpCases& cases) {
  // `token_bytes`: what a run must read and write for a token.
  const auto add = [&](const char* op, const std::string& variant, auto make, int64_t token_bytes) {
    cases.push_back({op,
                     variant,
                     make,
                     [=](int64_t tokens) -> Work { return {.bytes = tokens * token_bytes}; },
                     kCopiedTokens,
                     {"hwy", "reference"}});
  };
  const int64_t key_bytes = 2 * kSize + Fp8Ue8m0Row().TokenBytes();
  add("KCacheQuantInsert", "fp8_ue8m0", KeyInsert, key_bytes);
  add("KCacheDequantGather", "fp8_ue8m0", KeyGather, key_bytes);
  const auto codes = [](int64_t tokens) {
    return LatentInsert("fp8_ds_mla", Bytes({BlocksFor(tokens), kBlockSize, 656}), tokens);
  };
  add("MlaCacheInsert", "fp8_ds_mla", codes, 2 * 576 + 656);
  const auto numbers = [](int64_t tokens) {
    return LatentInsert("bf16", Normal(kBfloat16, {BlocksFor(tokens), kBlockSize, 576}), tokens);
  };
  add("MlaCacheInsert", "bf16", numbers, 2 * 2 * 576);
  add("MlaGatherUpconvert", "fp8_ds_mla", LatentGather, 2 * 576 + 656);
  add("CompressorStateInsert", "ratio4", StateInsert, 4 * kStateWidth * 4);
  const auto compress = [&](const char* variant, const Compression& c) {
    add(
        "CompressCacheInsert", variant, [=](int64_t tokens) { return CompressInsert(c, tokens); },
        c.RowBytes());
  };
  compress("fp8_ue8m0_ratio4", {"fp8_ue8m0", 4, Fp8Ue8m0Row()});
  compress("fp8_ue8m0_ratio128", {"fp8_ue8m0", 128, Fp8Ue8m0Row()});
  compress("indexer_fp8", {"indexer_fp8", 4, IndexerFp8Row(128, 128)});
  compress("indexer_mxfp4", {"indexer_mxfp4", 4, IndexerMxfp4Row(128)});
  add("QNormRopeKvInsert", "fp8_ue8m0_64_heads", QueryNorm, kHeads * kSize * 4 + key_bytes);
  add("InvRopeQuant", "64_heads", InverseRope, kHeads * (kSize * 3 + 16));
}

}  // namespace pagefuse
