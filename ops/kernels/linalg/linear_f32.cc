// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/linear_f32.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/onednn.h"
#include "pagefuse/ops/kernels/linalg/stream_f32_hwy.h"

namespace pagefuse {
namespace {

constexpr int64_t kTileFloats = 8192;  // part of y that one unit of work updates: it stays in L1
constexpr int64_t kMaxChunks = 8;      // partial sums of each y
constexpr int64_t kMinChunkBytes = 512 * 1024;

// How W's rows are divided among partial sums. It depends on W alone, so that results do not depend
// on threads or rows of x.
struct Chunks {
  int64_t count;
  int64_t rows;
};

Chunks SplitRows(const WeightView& w) {
  if (w.transposed || w.k == 0) return {1, w.k};
  const int64_t bytes = w.k * w.n * static_cast<int64_t>(sizeof(float));
  const int64_t wanted = std::clamp<int64_t>(bytes / kMinChunkBytes, 1, kMaxChunks);
  const int64_t rows = ((w.k + wanted - 1) / wanted + 3) / 4 * 4;
  return {(w.k + rows - 1) / rows, rows};
}

// Columns of a unit of work for m rows. It decides who computes what when, not how.
int64_t TileColumns(int64_t m) { return std::clamp<int64_t>(kTileFloats / m / 64 * 64, 256, 2048); }

bool Streamed(int64_t m) { return m <= kMaxStreamedRows; }

// Partial sums [chunk, m, n] of x * W; a single chunk goes to `out`.
void StreamPartials(const RowsView& x, const WeightView& w, const Chunks& chunks,
                    const OutputView& out) {
  const int64_t columns = TileColumns(x.m);
  const int64_t tiles = (w.n + columns - 1) / columns;
  ParallelTasks(chunks.count * tiles, [&](int64_t unit) {
    const int64_t chunk = unit / tiles;
    const int64_t column = unit % tiles * columns;
    const WeightPart part{chunk * chunks.rows, std::min((chunk + 1) * chunks.rows, w.k), column,
                          std::min(column + columns, w.n)};
    StreamRowMajor(x, w, part, {out.data + chunk * x.m * out.stride, out.stride});
  });
}

void StreamColumns(const RowsView& x, const WeightView& w, const OutputView& y) {
  const int64_t step = std::max<int64_t>(kMinChunkBytes / 4 / sizeof(float) / w.k / 4 * 4, 4);
  ParallelTasks((w.n + step - 1) / step, [&](int64_t task) {
    const int64_t n = task * step;
    StreamTransposed(x, w, {0, w.k, n, std::min(n + step, w.n)}, y);
  });
}

// y = the sum of the chunks, in their order.
void SumChunks(int64_t m, int64_t n, int64_t chunks, const float* partials, const OutputView& y) {
  constexpr int64_t kColumns = 2048;
  const int64_t tiles = (n + kColumns - 1) / kColumns;
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

void StreamLinear(const RowsView& x, const WeightView& w, float* partials, const OutputView& y) {
  if (w.transposed) {
    StreamColumns(x, w, y);
    return;
  }
  const Chunks chunks = SplitRows(w);
  const OutputView out = chunks.count == 1 ? y : OutputView{partials, w.n};
  StreamPartials(x, w, chunks, out);
  if (chunks.count > 1) SumChunks(x.m, w.n, chunks.count, partials, y);
}

Sgemm ManyRows(const RowsView& x, const WeightView& w, const OutputView& y) {
  return {.trans_b = w.transposed,
          .m = x.m,
          .n = w.n,
          .k = w.k,
          .a = x.data,
          .lda = x.stride,
          .b = w.data,
          .ldb = w.transposed ? w.k : w.n,
          .c = y.data,
          .ldc = y.stride};
}

void ZeroRows(int64_t m, int64_t n, const OutputView& y) {
  for (int64_t r = 0; r < m; ++r) std::memset(y.data + r * y.stride, 0, n * sizeof(float));
}

void GateRows(const Gate& by, int64_t m, int64_t columns, const float* up, const OutputView& y) {
  const int64_t bytes = 3 * columns * static_cast<int64_t>(sizeof(float));
  ParallelFor(m, bytes, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* gate = y.data + r * y.stride;
      GatedProduct(by, gate, up + r * columns, columns, gate);
    }
  });
}

// Tile by tile: both products and what becomes of them, while they are in cache.
bool GatedTiles(const Sgemm& gate, const float* up, const Gate& by, float* scratch) {
  const SgemmTiles tiles(gate);
  std::atomic<bool> ok = true;
  ParallelTasks(tiles.count(), [&](int64_t i, int worker) {
    const Sgemm gate_tile = tiles.Tile(i);
    Sgemm up_tile = gate_tile;
    up_tile.b = up + (gate_tile.b - gate.b);
    up_tile.c = scratch + worker * tiles.tile_size();
    up_tile.ldc = up_tile.n;
    if (!RunSgemm(gate_tile) || !RunSgemm(up_tile)) ok = false;
    for (int64_t r = 0; r < gate_tile.m; ++r) {
      float* y = gate_tile.c + r * gate_tile.ldc;
      GatedProduct(by, y, up_tile.c + r * up_tile.ldc, up_tile.n, y);
    }
  });
  return ok;
}

absl::Status Done(bool ok) {
  return ok ? absl::OkStatus() : absl::InternalError("oneDNN sgemm failed");
}

}  // namespace

size_t LinearF32ScratchBytes(int64_t m, const WeightView& w) {
  const Chunks chunks = SplitRows(w);
  return Streamed(m) && chunks.count > 1 ? chunks.count * m * w.n * sizeof(float) : 0;
}

absl::Status LinearF32(const RowsView& x, const WeightView& w, void* scratch, const OutputView& y) {
  if (x.m == 0 || w.n == 0) return absl::OkStatus();
  if (w.k == 0) {
    ZeroRows(x.m, w.n, y);
    return absl::OkStatus();
  }
  if (!Streamed(x.m)) return Done(ParallelSgemm(ManyRows(x, w, y)));
  StreamLinear(x, w, static_cast<float*>(scratch), y);
  return absl::OkStatus();
}

size_t GatedLinearF32ScratchBytes(int64_t m, const WeightView& gate) {
  if (!Streamed(m) && gate.k > 0) {
    return MaxWorkers() * SgemmTiles({.m = m, .n = gate.n, .k = gate.k}).tile_size() *
           sizeof(float);
  }
  return m * gate.n * sizeof(float) + LinearF32ScratchBytes(m, gate);
}

absl::Status GatedLinearF32(const RowsView& x, const GatedWeights& w, void* scratch,
                            const OutputView& y) {
  const auto& [gate, up, by] = w;
  if (x.m == 0 || gate.n == 0) return absl::OkStatus();
  float* up_values = static_cast<float*>(scratch);
  if (!Streamed(x.m) && gate.k > 0) {
    return Done(GatedTiles(ManyRows(x, gate, y), up.data, by, up_values));
  }
  float* partials = up_values + x.m * gate.n;
  PF_RETURN_IF_ERROR(LinearF32(x, gate, partials, y));
  PF_RETURN_IF_ERROR(LinearF32(x, up, partials, {up_values, gate.n}));
  GateRows(by, x.m, gate.n, up_values, y);
  return absl::OkStatus();
}

}  // namespace pagefuse
