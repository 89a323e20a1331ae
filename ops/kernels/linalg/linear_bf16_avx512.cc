// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/bf16_dots.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16_write.h"

namespace pagefuse {

#if defined(__x86_64__)

namespace {

static_assert(kTileWords == PackedBf16::kBlockWords);

// Column blocks of a step, all with the same rows of x; a gate has its up beside it.
constexpr int64_t kStepBlocks = 4;
// Tile rows of x that stay in a second-level cache while the weights go by.
constexpr int64_t kPartTileRows = 16;

struct Step {
  const uint16_t* rows;  // A tiles
  int64_t num_rows;      // at most kTileRows
  const uint16_t* weights[kStepBlocks];
  int64_t num_blocks;
  int64_t k_blocks;
  float* tiles;  // [kStepBlocks][kTileFloats]
};

// Rows [row, row + kRows) of a step, kBlocks column blocks at a time.
template <int kRows, int kBlocks>
PF_AVX512_BF16 void Rows(const Step& step, int64_t row) {
  DotOperands in{.a = step.rows + row * kTileDepth,
                 .b = nullptr,
                 .b_stride = 0,
                 .k_tiles = step.k_blocks,
                 .accumulate = false,
                 .c = nullptr};
  int64_t block = 0;
  static_assert(kBlocks <= 2);
  const auto place = [&](int count) {
    in.b = step.weights[block];
    in.b_stride = count > 1 ? step.weights[block + 1] - in.b : 0;
    in.c = step.tiles + block * kTileFloats + row * kTileColumns;
  };
  for (; block + kBlocks <= step.num_blocks; block += kBlocks) {
    place(kBlocks);
    DotTiles<kRows, kBlocks>(in);
  }
  for (; block < step.num_blocks; ++block) {
    place(1);
    DotTiles<kRows, 1>(in);
  }
}

PF_AVX512_BF16 void Run(const Step& step) {
  int64_t row = 0;
  const auto take = [&](int64_t count, auto rows) {
    for (; row + count <= step.num_rows; row += count) rows(step, row);
  };
  take(8, Rows<8, 2>);
  take(4, Rows<4, 2>);
  take(2, Rows<2, 1>);
  take(1, Rows<1, 1>);
}

// Column blocks [first, first + kStepBlocks) of y, tile rows [begin, end).
void StepOfRows(const Bf16Product& product, const uint16_t* tiles, int64_t first, int64_t begin,
                int64_t end) {
  const Bf16Source& w = *product.weight;
  alignas(64) float sums[kStepBlocks][kTileFloats];
  const int64_t count = std::min(kStepBlocks, w.column_blocks() - first);
  Step step{.rows = nullptr,
            .num_rows = 0,
            .weights = {},
            .num_blocks = count,
            .k_blocks = w.k_blocks(),
            .tiles = sums[0]};
  for (int64_t c = 0; c < count; ++c) step.weights[c] = w.column_block(first + c);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t rows = std::min(kTileRows, product.m - t * kTileRows);
    step.rows = tiles + t * w.k_blocks() * kTileWords;
    step.num_rows = rows;
    Run(step);
    WriteTiles(product, {t * kTileRows, rows, first, count}, sums);
  }
}

}  // namespace

void Bf16ProductAvx512(const Bf16Product& product, const uint16_t* tiles) {
  const int64_t tile_rows = (product.m + kTileRows - 1) / kTileRows;
  const int64_t blocks = product.weight->column_blocks();
  for (int64_t begin = 0; begin < tile_rows; begin += kPartTileRows) {
    const int64_t end = std::min(begin + kPartTileRows, tile_rows);
    const int64_t steps = (blocks + kStepBlocks - 1) / kStepBlocks;
    const int64_t step_bytes = product.weight->k_blocks() * kTileWords * kStepBlocks * 2;
    ParallelFor(steps, step_bytes * (end - begin), [&](int64_t step, int64_t last) {
      for (; step < last; ++step) StepOfRows(product, tiles, step * kStepBlocks, begin, end);
    });
  }
}

#else

void Bf16ProductAvx512(const Bf16Product&, const uint16_t*) { PF_CHECK(false); }

#endif

}  // namespace pagefuse
