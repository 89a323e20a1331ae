// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"

#include <algorithm>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/bf16_tiles.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16_kernels.h"
#include "pagefuse/ops/kernels/linalg/pack_hwy.h"

namespace pagefuse {
namespace {

int64_t RowBlocks(int64_t k) { return (k + PackedBf16::kBlockRows - 1) / PackedBf16::kBlockRows; }

void RunTiles(const RowsView& x, const Bf16Product& product, uint16_t* tiles) {
  const int64_t k = product.weight->k();
  const int64_t tile_row_words = RowBlocks(k) * PackedBf16::kBlockWords;
  const int64_t tile_rows = (x.m + kTileRows - 1) / kTileRows;
  ParallelFor(tile_rows, kTileRows * k * 6, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t rows = std::min(kTileRows, x.m - t * kTileRows);
      PackTileRows(x, k, t * kTileRows, rows, tiles + t * tile_row_words);
    }
  });
  if (HasAmxBf16()) return Bf16ProductAmx(product, tiles, tiles + tile_rows * tile_row_words);
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

void Run(const RowsView& x, const Bf16Product& product, void* scratch) {
  if (product.m == 0 || product.weight->n() == 0) return;
  if (HasBf16Tiles()) {
    RunTiles(x, product, static_cast<uint16_t*>(scratch));
    return;
  }
  RunHwy(x, product, static_cast<float*>(scratch));
}

}  // namespace

size_t LinearBf16ScratchBytes(int64_t m, int64_t k) {
  const int64_t padded_k = RowBlocks(k) * PackedBf16::kBlockRows;
  if (!HasBf16Tiles()) return m * padded_k * sizeof(float);
  const int64_t padded_m = (m + kTileRows - 1) / kTileRows * kTileRows;
  return padded_m * padded_k * sizeof(uint16_t) + (HasAmxBf16() ? AmxStageBytes(m) : 0);
}

void LinearBf16(const RowsView& x, const PackedBf16& w, void* scratch, const OutputView& y) {
  PF_CHECK(!w.gated());
  Run(x, {.weight = &w, .m = x.m, .gate = Activation::kSilu, .y = y}, scratch);
}

void GatedLinearBf16(const RowsView& x, const PackedBf16& w, const Gate& gate, void* scratch,
                     const OutputView& y) {
  PF_CHECK(w.gated());
  Run(x, {.weight = &w, .m = x.m, .gate = gate, .y = y}, scratch);
}

}  // namespace pagefuse
