// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"

#include <algorithm>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/bf16_tiles.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/linalg/lanes_bf16.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16_kernels.h"
#include "pagefuse/ops/kernels/linalg/pack_hwy.h"

namespace pagefuse {
namespace {

int64_t RowBlocks(int64_t k) { return (k + PackedBf16::kBlockRows - 1) / PackedBf16::kBlockRows; }

// Rows of x as tiles, k_blocks blocks of a tile row one behind the other; returns what is behind them.
uint16_t* PackRows(const RowsView& x, int64_t k, uint16_t* tiles) {
  const int64_t tile_row_words = RowBlocks(k) * PackedBf16::kBlockWords;
  const int64_t tile_rows = (x.m + kTileRows - 1) / kTileRows;
  ParallelFor(tile_rows, kTileRows * k * 6, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t rows = std::min(kTileRows, x.m - t * kTileRows);
      PackTileRows(x, k, t * kTileRows, rows, tiles + t * tile_row_words);
    }
  });
  return tiles + tile_rows * tile_row_words;
}

void RunTiles(const RowsView& x, const Bf16Product& product, void* scratch) {
  auto* tiles = static_cast<uint16_t*>(scratch);
  uint16_t* behind = PackRows(x, product.weight->k(), tiles);
  if (HasAmxBf16()) return Bf16ProductAmx(product, tiles, behind);
  Bf16ProductAvx512(product, tiles);
}

void RunHwy(const RowsView& x, const Bf16Product& product, float* rows) {
  const int64_t k = product.weight->k();
  const int64_t stride = RowBlocks(k) * PackedBf16::kBlockRows;
  ParallelFor(x.m, k * 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) RoundRow(x.data + r * x.stride, k, rows + r * stride);
  });
  Bf16ProductHwy(product, rows);
}

void Run(const RowsView& x, const Bf16Source& weight, const Gate& gate, void* scratch,
         const OutputView& y) {
  if (x.m == 0 || weight.n() == 0) return;
  const Bf16Product product{&weight, x.m, gate, y};
  if (HasBf16Tiles()) return RunTiles(x, product, scratch);
  RunHwy(x, product, static_cast<float*>(scratch));
}

}  // namespace

const uint16_t* Bf16Source::Blocks(int64_t column_block, int64_t k, int64_t count,
                                   uint16_t* memory) const {
  if (!decodes()) return blocks_->column_block(column_block) + k * kTileWords;
  DecodeToBf16Blocks(CodesOf(column_block), column_block / (gated_ ? 2 : 1), k, count, memory);
  return memory;
}

std::span<const std::byte> Bf16Source::Read(int64_t column_block, int64_t k, int64_t count) const {
  if (!decodes()) {
    const uint16_t* words = blocks_->column_block(column_block) + k * kTileWords;
    return std::as_bytes(std::span(words, static_cast<size_t>(count * kTileWords)));
  }
  const NBitsLanes& w = CodesOf(column_block);
  const uint32_t* words =
      w.codes + NBitsLanes::At(column_block / (gated_ ? 2 : 1), w.words(), k * w.bits);
  return std::as_bytes(std::span(words, static_cast<size_t>(count * w.bits * NBitsLanes::kLanes)));
}

bool ReadsCodesAsBf16() { return HasAmxBf16(); }

size_t LinearBf16ScratchBytes(int64_t m, int64_t k) {
  const int64_t padded_k = RowBlocks(k) * PackedBf16::kBlockRows;
  if (!HasBf16Tiles()) return m * padded_k * sizeof(float);
  const int64_t padded_m = (m + kTileRows - 1) / kTileRows * kTileRows;
  return padded_m * padded_k * sizeof(uint16_t) + (HasAmxBf16() ? AmxStageBytes(m) : 0);
}

void LinearBf16(const RowsView& x, const PackedBf16& w, void* scratch, const OutputView& y) {
  PF_CHECK(!w.gated());
  Run(x, Bf16Source(w), Activation::kSilu, scratch, y);
}

void GatedLinearBf16(const RowsView& x, const PackedBf16& w, const Gate& gate, void* scratch,
                     const OutputView& y) {
  PF_CHECK(w.gated());
  Run(x, Bf16Source(w), gate, scratch, y);
}

void LinearCodesBf16(const RowsView& x, const NBitsLanes& w, void* scratch, const OutputView& y) {
  Run(x, Bf16Source(w), Activation::kSilu, scratch, y);
}

void GatedLinearCodesBf16(const RowsView& x, const NBitsLanes& gate, const NBitsLanes& up,
                          const Gate& by, void* scratch, const OutputView& y) {
  Run(x, Bf16Source(gate, &up), by, scratch, y);
}

}  // namespace pagefuse
