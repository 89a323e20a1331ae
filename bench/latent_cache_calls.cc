#include "latent_cache_calls.h"

#include <numeric>

#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse {
namespace {

constexpr int64_t kBlockSize = 64, kSize = 512, kRotated = 64, kHeads = 64;

int64_t BlocksFor(int64_t tokens, int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

// Each fills a call and returns the bytes that a run must read and write.

int64_t KeyInsert(OpCall& call, int64_t tokens) {
  const GroupedRowFormat format = Fp8Ue8m0Row();
  call.Normal(DataType::kBfloat16, {tokens, kSize});
  call.Slots(tokens, kBlockSize);
  call.Bytes({BlocksFor(tokens, kBlockSize), GroupedBlockBytes(format, kBlockSize)});
  return tokens * (2 * kSize + format.TokenBytes());
}

int64_t KeyGather(OpCall& call, int64_t tokens) {
  const GroupedRowFormat format = Fp8Ue8m0Row();
  call.Normal(DataType::kBfloat16, {1, tokens, kSize});
  call.Bytes({BlocksFor(tokens, kBlockSize), GroupedBlockBytes(format, kBlockSize)});
  call.Ints({1}, {static_cast<int32_t>(tokens)});
  call.BlockTable(1, BlocksFor(tokens, kBlockSize));
  return tokens * (2 * kSize + format.TokenBytes());
}

int64_t LatentInsert(OpCall& call, int64_t tokens, bool quantised) {
  const int64_t row_bytes = quantised ? 656 : 2 * 576;
  call.Normal(DataType::kBfloat16, {tokens, 512});
  call.Normal(DataType::kBfloat16, {tokens, 64});
  call.Slots(tokens, kBlockSize);
  if (quantised) {
    call.Bytes({BlocksFor(tokens, kBlockSize), kBlockSize, 656});
  } else {
    call.Normal(DataType::kBfloat16, {BlocksFor(tokens, kBlockSize), kBlockSize, 576});
  }
  call.Attribute("format", std::string(quantised ? "fp8_ds_mla" : "bf16"));
  return tokens * (2 * 576 + row_bytes);
}

int64_t LatentGather(OpCall& call, int64_t tokens) {
  call.Bytes({BlocksFor(tokens, kBlockSize), kBlockSize, 656});
  call.BlockTable(1, BlocksFor(tokens, kBlockSize));
  call.Ints({1}, {static_cast<int32_t>(tokens)});
  call.Ints({1}, {0});
  return tokens * (2 * 576 + 656);
}

int64_t StateInsert(OpCall& call, int64_t tokens) {
  constexpr int64_t kWidth = 1024, kRatio = 4;
  for (int i = 0; i < 2; ++i) call.Normal(DataType::kFloat, {tokens, kWidth});
  call.Normal(DataType::kFloat, {kRatio, kWidth});
  call.Range(tokens);
  call.Slots(tokens, kRatio);
  call.Normal(DataType::kFloat, {BlocksFor(tokens, kRatio), kRatio, 2 * kWidth});
  call.Attribute("compress_ratio", kRatio);
  return tokens * 4 * kWidth * 4;
}

struct Compression {
  int64_t ratio;
  std::string format;
  int64_t size;
};

// Every token ends a window; the windows share one ring of state blocks.
int64_t CompressInsert(OpCall& call, int64_t tokens, const Compression& compression) {
  const auto& [ratio, format, size] = compression;
  const int64_t overlap = ratio == 4 ? 1 : 0;
  const int64_t state_block = ratio == 4 ? 4 : 8;
  const int64_t state_row = 2 * (1 + overlap) * size;
  const int64_t window = (1 + overlap) * ratio;
  std::vector<int64_t> positions, slots;
  for (int64_t i = 0; i < tokens; ++i) {
    positions.push_back((i % 16 + 2) * ratio - 1);
    slots.push_back(i);
  }
  const int64_t columns = 18 * ratio / state_block;
  std::vector<int32_t> table(columns);
  std::iota(table.begin(), table.end(), 0);
  const GroupedRowFormat row = format == "fp8_ue8m0"     ? Fp8Ue8m0Row()
                               : format == "indexer_fp8" ? IndexerFp8Row(size, size)
                                                         : IndexerMxfp4Row(size);
  call.Normal(DataType::kFloat, {columns, state_block, state_row});
  call.Ints({tokens}, std::vector<int32_t>(tokens));
  call.Longs(positions);
  call.Longs(slots);
  call.Ints({1, columns}, table);
  call.Normal(DataType::kBfloat16, {size});
  call.Normal(DataType::kFloat, {18 * ratio, kRotated});
  call.Longs(slots);
  call.Bytes({BlocksFor(tokens, kBlockSize), GroupedBlockBytes(row, kBlockSize)});
  call.Attribute("format", format);
  call.Attribute("compress_ratio", ratio);
  return tokens * (window * size * 2 * 4 + row.TokenBytes());
}

int64_t QueryNorm(OpCall& call, int64_t tokens) {
  const GroupedRowFormat format = Fp8Ue8m0Row();
  call.Normal(DataType::kBfloat16, {tokens, kHeads, kSize});
  call.Normal(DataType::kBfloat16, {tokens, kSize});
  call.Bytes({BlocksFor(tokens, kBlockSize), GroupedBlockBytes(format, kBlockSize)});
  call.Slots(tokens, kBlockSize);
  call.Longs(std::vector<int64_t>(tokens, 5));
  call.Normal(DataType::kFloat, {16, kRotated});
  return tokens * (kHeads * kSize * 4 + kSize * 2 + format.TokenBytes());
}

int64_t InverseRope(OpCall& call, int64_t tokens) {
  call.Normal(DataType::kBfloat16, {tokens, kHeads, kSize});
  call.Longs(std::vector<int64_t>(tokens, 5));
  call.Normal(DataType::kFloat, {16, kRotated});
  call.Attribute("n_groups", int64_t{8});
  return tokens * kHeads * (kSize * 3 + 16);
}

}  // namespace

std::vector<LatentCacheCase> LatentCacheCases() {
  const auto compress = [](int64_t ratio, const char* format, int64_t size) {
    return [=](OpCall& call, int64_t tokens) {
      return CompressInsert(call, tokens, {ratio, format, size});
    };
  };
  return {{"fp8_ue8m0", "KCacheQuantInsert", KeyInsert},
          {"fp8_ue8m0", "KCacheDequantGather", KeyGather},
          {"fp8_ds_mla", "MlaCacheInsert",
           [](OpCall& call, int64_t tokens) { return LatentInsert(call, tokens, true); }},
          {"bf16", "MlaCacheInsert",
           [](OpCall& call, int64_t tokens) { return LatentInsert(call, tokens, false); }},
          {"fp8_ds_mla", "MlaGatherUpconvert", LatentGather},
          {"ratio4", "CompressorStateInsert", StateInsert},
          {"fp8_ue8m0_ratio4", "CompressCacheInsert", compress(4, "fp8_ue8m0", 512)},
          {"fp8_ue8m0_ratio128", "CompressCacheInsert", compress(128, "fp8_ue8m0", 512)},
          {"indexer_fp8", "CompressCacheInsert", compress(4, "indexer_fp8", 128)},
          {"indexer_mxfp4", "CompressCacheInsert", compress(4, "indexer_mxfp4", 128)},
          {"fp8_ue8m0_64_heads", "QNormRopeKvInsert", QueryNorm},
          {"64_heads", "InvRopeQuant", InverseRope}};
}

}  // namespace pagefuse
