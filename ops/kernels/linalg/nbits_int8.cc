// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"

#include <algorithm>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8_amx.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8_hwy.h"

namespace pagefuse {
namespace {

constexpr int64_t kUnitBytes =
    256 << 10;  // of codes in one unit of streaming: most of what is prefetched is its own
constexpr int64_t kTileRows = 528;  // of x in one unit of tiles: a chunk of them stays in L2

int64_t PaddedBlocks(const NBitsWeight& w) {
  constexpr int64_t kMultiple = Int8Rows::kChunk * kInt8Block;
  return (w.blocks() * w.block + kMultiple - 1) / kMultiple * Int8Rows::kChunk;
}

// What one worker needs.
struct Memory {
  Int8Tile tile;
  std::vector<float> zeros;
  std::vector<float> up;  // of a gated product
};

// More rows of x pay for laying out W.
bool Streams(int64_t m, const NBitsWeight& w) { return m <= (w.bits == 4 ? 32 : 8); }

// How the rows of x are multiplied.
enum class Way { kStream, kTiles, kAmx };

Way WayOf(int64_t m, const NBitsWeight& w) {
  if (Streams(m, w)) return Way::kStream;
  return HasAmxInt8() ? Way::kAmx : Way::kTiles;
}

Int8Rows RoundRows(const RowsView& x, const NBitsWeight& w, void* scratch) {
  Int8Rows rows{.m = x.m, .blocks = PaddedBlocks(w)};
  const int64_t blocks = x.m * rows.blocks;
  rows.codes = static_cast<int8_t*>(scratch);
  rows.units = reinterpret_cast<float*>(rows.codes + blocks * kInt8Block);
  rows.centre_sums = rows.units + blocks;
  rows.unit_sums = rows.centre_sums + blocks;
  // Tiles of AMX take integers in order, whatever the bits.
  const int order = WayOf(x.m, w) == Way::kAmx ? 8 : w.bits;
  ParallelFor(x.m, w.k * 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      RoundToInt8(x.data + r * x.stride, w.k, order, r, rows);
    }
  });
  return rows;
}

// Calls body(part, memory) for parts that make up m rows of x by all rows of W. No cut depends on
// the number of threads.
template <class Body>
void ForParts(int64_t m, const NBitsWeight& w, const Body& body) {
  constexpr int64_t kLeastUnits = 16;
  constexpr int64_t kWhole = 16;  // rows of W that streaming takes at a time, or a multiple
  const int64_t fitting = std::min(kUnitBytes / w.row_bytes, w.n / kLeastUnits);
  const int64_t unit_rows = std::max<int64_t>(fitting / kWhole * kWhole, kWhole);
  const int64_t rows = Streams(m, w) ? m : kTileRows;
  const int64_t columns = Streams(m, w) ? unit_rows : Int8Tile::kColumns;
  const int64_t across = (w.n + columns - 1) / columns;
  PerWorker<Memory> memory;
  ParallelTasks((m + rows - 1) / rows * across, [&](int64_t task, int worker) {
    const int64_t row = task / across * rows, column = task % across * columns;
    const Int8Part part{row, std::min(row + rows, m), column, std::min(column + columns, w.n)};
    body(part, memory[worker]);
  });
}

void Multiply(const Int8Rows& x, const NBitsWeight& w, const Int8Part& part, Memory& memory,
              const OutputView& y) {
  switch (WayOf(x.m, w)) {
    case Way::kStream:
      return StreamInt8(x, w, part, memory.zeros, y);
    case Way::kTiles:
      return MultiplyInt8Tile(x, w, part, memory.tile, y);
    case Way::kAmx:
      return MultiplyInt8TileAmx(x, w, part, memory.tile, y);
  }
}

OutputView CornerOf(const Int8Part& part, const OutputView& y) {
  return {y.data + part.row_begin * y.stride + part.n_begin, y.stride};
}

}  // namespace

size_t NBitsInt8ScratchBytes(int64_t m, const NBitsWeight& w) {
  return static_cast<size_t>(m * PaddedBlocks(w)) * (kInt8Block + 3 * sizeof(float));
}

void LinearNBitsInt8(const RowsView& x, const NBitsWeight& w, void* scratch, const OutputView& y) {
  if (x.m == 0) return;
  const Int8Rows rows = RoundRows(x, w, scratch);
  ForParts(x.m, w, [&](const Int8Part& part, Memory& memory) {
    Multiply(rows, w, part, memory, CornerOf(part, y));
  });
}

void GatedLinearNBitsInt8(const RowsView& x, const GatedNBits& w, void* scratch,
                          const OutputView& y) {
  if (x.m == 0) return;
  const Int8Rows rows = RoundRows(x, w.gate, scratch);
  ForParts(x.m, w.gate, [&](const Int8Part& part, Memory& memory) {
    const OutputView to = CornerOf(part, y);
    memory.up.resize(static_cast<size_t>(part.rows() * part.columns()));
    Multiply(rows, w.gate, part, memory, to);
    Multiply(rows, w.up, part, memory, {memory.up.data(), part.columns()});
    for (int64_t r = 0; r < part.rows(); ++r) {
      float* out = to.data + r * to.stride;
      GatedProduct(w.by, out, memory.up.data() + r * part.columns(), part.columns(), out);
    }
  });
}

}  // namespace pagefuse
