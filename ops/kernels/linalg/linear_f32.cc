// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/linear_f32.h"

#include <algorithm>
#include <cstring>

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/linalg/stream_f32_hwy.h"
#include "pagefuse/ops/kernels/linalg/tile_f32_hwy.h"

namespace pagefuse {
namespace {

// Rows of x up to which W [k, n] is streamed, in whole rows, as its memory likes it; more rows are
// bound by their products and take it in panels.
constexpr int64_t kMaxStreamedRows = 16;

constexpr int64_t kTileFloats = 8192;    // part of y that one unit of work updates: it stays in L1
constexpr int64_t kMaxChunks = 8;        // partial sums of each y
constexpr int64_t kMaxChunkRows = 1024;  // of a transposed W
constexpr int64_t kMinChunkBytes = 512 * 1024;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t WholeLines(int64_t floats) { return CeilDiv(floats, 16) * 16; }

// How k is divided among partial sums. It depends on W alone, so that results do not depend on
// threads or rows of x.
struct Chunks {
  int64_t count;
  int64_t rows;
};

Chunks SplitRows(const WeightView& w) {
  if (w.k == 0) return {1, 0};
  // Units of work for many threads, where W [k, n] is large; a transposed one has them in its rows,
  // and long sums lose digits.
  const int64_t bytes = w.k * w.n * static_cast<int64_t>(sizeof(float));
  const int64_t wanted = w.transposed ? CeilDiv(w.k, kMaxChunkRows)
                                      : std::clamp<int64_t>(bytes / kMinChunkBytes, 1, kMaxChunks);
  const int64_t rows = CeilDiv(CeilDiv(w.k, wanted), 4) * 4;
  return {CeilDiv(w.k, rows), rows};
}

// ---- few rows by W [k, n] ----

bool Streamed(int64_t m, const WeightView& w) { return m <= kMaxStreamedRows && !w.transposed; }

// Columns of a unit of work for m rows. It decides who computes what when, not how.
int64_t StreamedColumns(int64_t m) {
  return std::clamp<int64_t>(kTileFloats / m / 64 * 64, 256, 2048);
}

// Partial sums [chunk, m, n] of x * W; a single chunk goes to `out`.
void StreamPartials(const RowsView& x, const WeightView& w, const Chunks& chunks,
                    const OutputView& out) {
  const int64_t columns = StreamedColumns(x.m);
  const int64_t tiles = CeilDiv(w.n, columns);
  ParallelTasks(chunks.count * tiles, [&](int64_t unit) {
    const int64_t chunk = unit / tiles;
    const int64_t column = unit % tiles * columns;
    const WeightPart part{chunk * chunks.rows, std::min((chunk + 1) * chunks.rows, w.k), column,
                          std::min(column + columns, w.n)};
    StreamRowMajor(x, w, part, {out.data + chunk * x.m * out.stride, out.stride});
  });
}

// y = the sum of the chunks, in their order.
void SumChunks(int64_t m, int64_t n, int64_t chunks, const float* partials, const OutputView& y) {
  constexpr int64_t kColumns = 2048;
  const int64_t tiles = CeilDiv(n, kColumns);
  const int64_t bytes = (chunks + 1) * std::min(kColumns, n) * static_cast<int64_t>(sizeof(float));
  ParallelFor(m * tiles, bytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / tiles;
      const int64_t column = i % tiles * kColumns;
      SumPartials(partials + row * n + column, m * n, chunks, std::min(kColumns, n - column),
                  y.data + row * y.stride + column);
    }
  });
}

void Stream(const RowsView& x, const WeightView& w, float* partials, const OutputView& y) {
  const Chunks chunks = SplitRows(w);
  const OutputView out = chunks.count == 1 ? y : OutputView{partials, w.n};
  StreamPartials(x, w, chunks, out);
  if (chunks.count > 1) SumChunks(x.m, w.n, chunks.count, partials, y);
}

// ---- every other product: tiles of y ----

// How y is cut into tiles, each of which one worker computes. It decides who computes what when, not
// how.
class Tiles {
 public:
  Tiles(int64_t m, const WeightView& w) : m_(m), n_(w.n), chunk_rows_(SplitRows(w).rows) {
    // Work for as many threads as a product pays for.
    constexpr int64_t kManyTiles = 16;
    constexpr int64_t kTileProducts = int64_t{1} << 18;
    row_tiles_ = CeilDiv(m, kTileRows);
    rows_ = CeilDiv(m, row_tiles_);
    const int64_t paid = CeilDiv(kTileProducts, rows_ * w.k);
    const int64_t wanted = std::max(paid, n_ * row_tiles_ / kManyTiles);
    const int64_t least = wanted / kTileColumns * kTileColumns;
    columns_ = std::min(std::clamp(least, kTileColumns, kMaxTileColumns), n_);
  }

  struct Tile {
    int64_t row, rows;
    TileCut cut;
  };

  int64_t count() const { return row_tiles_ * CeilDiv(n_, columns_); }
  // What MultiplyColumns needs for the largest tile, a multiple of a cache line.
  int64_t memory_floats() const {
    return WholeLines(TileFloats(rows_, {0, columns_, chunk_rows_}));
  }
  int64_t tile_floats() const { return WholeLines(rows_ * columns_); }
  // Tiles of the same columns of W follow each other.
  Tile At(int64_t i) const {
    const int64_t row = i % row_tiles_ * rows_, column = i / row_tiles_ * columns_;
    return {row, std::min(rows_, m_ - row), {column, std::min(column + columns_, n_), chunk_rows_}};
  }

 private:
  int64_t m_, n_, chunk_rows_;
  int64_t rows_, columns_;
  int64_t row_tiles_;
};

int64_t LaidFloats(int64_t m, int64_t k) { return WholeLines(m * k); }

// x as tiles take it. What it lays out goes to the front of `scratch`, which it moves on.
TileRows LayOut(const RowsView& x, const WeightView& w, float*& scratch) {
  if (!WantLayOut(x)) return {x};
  float* laid = scratch;
  const int64_t chunk_rows = SplitRows(w).rows;
  ParallelFor(x.m, 2 * w.k * static_cast<int64_t>(sizeof(float)), [&](int64_t begin, int64_t end) {
    LayOutRows(x, w.k, chunk_rows, begin, end, laid);
  });
  scratch += LaidFloats(x.m, w.k);
  return {x, laid, x.m, 0};
}

// One tile of x * W, to y at the tile's corner.
void MultiplyOne(const TileRows& x, const WeightView& w, const Tiles::Tile& tile, float* memory,
                 const OutputView& y) {
  const RowsView rows{x.x.data + tile.row * x.x.stride, tile.rows, x.x.stride};
  MultiplyColumns({rows, x.laid, x.all, tile.row}, w, tile.cut, memory, y);
}

OutputView CornerOf(const Tiles::Tile& tile, const OutputView& y) {
  return {y.data + tile.row * y.stride + tile.cut.begin, y.stride};
}

void MultiplyTiles(const RowsView& x, const WeightView& w, float* scratch, const OutputView& y) {
  const Tiles tiles(x.m, w);
  const TileRows rows = LayOut(x, w, scratch);
  const int64_t worker_floats = tiles.memory_floats();
  ParallelTasks(tiles.count(), [&](int64_t i, int worker) {
    const Tiles::Tile tile = tiles.At(i);
    MultiplyOne(rows, w, tile, scratch + worker * worker_floats, CornerOf(tile, y));
  });
}

void GateRows(const Gate& by, int64_t m, int64_t columns, const float* up, const OutputView& y) {
  for (int64_t r = 0; r < m; ++r) {
    float* gate = y.data + r * y.stride;
    GatedProduct(by, gate, up + r * columns, columns, gate);
  }
}

// Tile by tile: both products and what becomes of them, while they are in cache.
void GatedTiles(const RowsView& x, const GatedWeights& w, float* scratch, const OutputView& y) {
  const Tiles tiles(x.m, w.gate);
  const TileRows rows = LayOut(x, w.gate, scratch);
  const int64_t worker_floats = tiles.memory_floats() + tiles.tile_floats();
  ParallelTasks(tiles.count(), [&](int64_t i, int worker) {
    const Tiles::Tile tile = tiles.At(i);
    float* own = scratch + worker * worker_floats;
    float* up = own + tiles.memory_floats();
    const OutputView corner = CornerOf(tile, y);
    MultiplyOne(rows, w.gate, tile, own, corner);
    MultiplyOne(rows, w.up, tile, own, {up, tile.cut.columns()});
    GateRows(w.by, tile.rows, tile.cut.columns(), up, corner);
  });
}

size_t TilesBytes(int64_t m, const WeightView& w, bool gated) {
  const Tiles tiles(m, w);
  const int64_t own = tiles.memory_floats() + (gated ? tiles.tile_floats() : 0);
  const int64_t workers = std::min<int64_t>(MaxWorkers(), tiles.count());
  return (LaidFloats(m, w.k) + workers * own) * sizeof(float);
}

// ---- gated products of few rows by W [k, n] ----

void GatedStream(const RowsView& x, const GatedWeights& w, float* scratch, const OutputView& y) {
  const int64_t n = w.gate.n;
  float* up = scratch;
  float* partials = up + x.m * n;
  Stream(x, w.gate, partials, y);
  Stream(x, w.up, partials, {up, n});
  ParallelFor(x.m, 3 * n * static_cast<int64_t>(sizeof(float)), [&](int64_t begin, int64_t end) {
    GateRows(w.by, end - begin, n, up + begin * n, {y.data + begin * y.stride, y.stride});
  });
}

size_t StreamBytes(int64_t m, const WeightView& w) {
  const int64_t chunks = SplitRows(w).count;
  return chunks > 1 ? chunks * m * w.n * sizeof(float) : 0;
}

void ZeroRows(int64_t m, int64_t n, const OutputView& y) {
  for (int64_t r = 0; r < m; ++r) std::memset(y.data + r * y.stride, 0, n * sizeof(float));
}

bool IsEmpty(int64_t m, const WeightView& w) { return m == 0 || w.n == 0 || w.k == 0; }

}  // namespace

size_t LinearF32ScratchBytes(int64_t m, const WeightView& w) {
  if (IsEmpty(m, w)) return 0;
  if (Streamed(m, w)) return StreamBytes(m, w);
  return TilesBytes(m, w, /*gated=*/false);
}

void LinearF32(const RowsView& x, const WeightView& w, void* scratch, const OutputView& y) {
  if (IsEmpty(x.m, w)) return ZeroRows(x.m, w.n, y);
  (Streamed(x.m, w) ? Stream : MultiplyTiles)(x, w, static_cast<float*>(scratch), y);
}

size_t GatedLinearF32ScratchBytes(int64_t m, const WeightView& gate) {
  if (IsEmpty(m, gate)) return 0;
  if (Streamed(m, gate)) return m * gate.n * sizeof(float) + StreamBytes(m, gate);
  return TilesBytes(m, gate, /*gated=*/true);
}

void GatedLinearF32(const RowsView& x, const GatedWeights& w, void* scratch, const OutputView& y) {
  // The gate of nothing times nothing is 0.
  if (IsEmpty(x.m, w.gate)) return ZeroRows(x.m, w.gate.n, y);
  (Streamed(x.m, w.gate) ? GatedStream : GatedTiles)(x, w, static_cast<float*>(scratch), y);
}

}  // namespace pagefuse
