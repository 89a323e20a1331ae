#include "pagefuse/ops/linalg/integer_product.h"

#include <algorithm>
#include <cstring>

#include "pagefuse/ops/linalg/bf16_tiles.h"
#include "pagefuse/ops/linalg/cpu_features.h"
#include "pagefuse/ops/linalg/integer_product_hwy.h"
#include "pagefuse/ops/parallel.h"

namespace pagefuse {
namespace {

// Rows of a that share a pass over b, and columns of such a pass: their sums stay in the L1 cache.
constexpr int64_t kRowGroup = 16, kColumnGroup = 256;
// From here on packing for tiles pays.
constexpr int64_t kMinTiledRows = 16;
// Tiles of a sum whose float32 partial sums are exact: 8 * 32 products below 2^16 each.
constexpr int64_t kExactTiles = 8;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t PairsOf(int64_t k) { return CeilDiv(k, 8) * 4; }

bool UsesTiles(int64_t m) { return m >= kMinTiledRows && HasBf16Tiles(); }

// b's zero points, where they are not 0: (b - zero) * a = b * a - zero * (sum of a).
void SubtractZeros(const IntegerProduct& p, const uint32_t* words, int64_t row, int64_t begin,
                   int64_t end) {
  uint32_t sum = 0;
  for (int64_t pair = 0, pairs = PairsOf(p.k); pair < pairs; ++pair) {
    sum += static_cast<uint32_t>(static_cast<int16_t>(words[pair]));
    sum += static_cast<uint32_t>(static_cast<int16_t>(words[pair] >> 16));
  }
  int32_t* y = p.y + row * p.y_stride;
  for (int64_t j = begin; j < end; ++j) {
    const uint32_t zero = static_cast<uint32_t>(p.b_zeros[j]);
    y[j] = static_cast<int32_t>(static_cast<uint32_t>(y[j]) - zero * sum);
  }
}

void MultiplyStreamed(const IntegerProduct& p, uint32_t* words) {
  const int64_t pairs = PairsOf(p.k);
  ParallelFor(p.m, p.k * 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      PackIntegerPairs(p.a.data + i * p.a.stride, p.a.is_signed, p.a_zeros[i], p.k, pairs,
                       words + i * pairs);
    }
  });
  bool has_zeros = false;
  for (int64_t j = 0; j < (p.b_zeros.step == 0 ? 1 : p.n); ++j) {
    has_zeros = has_zeros || p.b_zeros[j] != 0;
  }
  const int64_t row_groups = CeilDiv(p.m, kRowGroup);
  // One row is walked in parts as wide as can be: b then comes as long runs.
  const int64_t share = CeilDiv(CeilDiv(p.n, omp_get_max_threads()), 64) * 64;
  const int64_t columns = p.m > 1 ? kColumnGroup : std::clamp<int64_t>(share, 256, 2048);
  const int64_t tasks = row_groups * CeilDiv(p.n, columns);
  ParallelFor(tasks, columns * (p.k + 8), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task % row_groups * kRowGroup;
      const int64_t rows = std::min(kRowGroup, p.m - row);
      const int64_t first = task / row_groups * columns;
      const int64_t last = std::min(first + columns, p.n);
      MultiplyPackedRows({words + row * pairs, rows, pairs}, p.b, p.k, first, last,
                         p.y + row * p.y_stride, p.y_stride);
      for (int64_t r = row; has_zeros && r < row + rows; ++r) {
        SubtractZeros(p, words + r * pairs, r, first, last);
      }
    }
  });
}

// Operands as tiles: panels of 16 rows of a (columns of b), each with its tiles over k.
struct Tiles {
  int64_t a_panels, b_panels, k_tiles;
  uint32_t* a;
  uint32_t* b;

  static constexpr int64_t kWords = kTileWords / 2;
  uint32_t* APanel(int64_t i) const { return a + i * k_tiles * kWords; }
  uint32_t* BPanel(int64_t j) const { return b + j * k_tiles * kWords; }
};

// Sizes for m rows and n columns; even numbers of panels, as products take two.
Tiles TilesOf(int64_t m, int64_t k, int64_t n, void* scratch) {
  Tiles tiles{CeilDiv(m, 32) * 2, CeilDiv(n, 32) * 2, CeilDiv(k, kTileDepth), nullptr, nullptr};
  tiles.a = static_cast<uint32_t*>(scratch);
  tiles.b = tiles.a == nullptr ? nullptr : tiles.APanel(tiles.a_panels);
  return tiles;
}

void PackA(const IntegerProduct& p, const Tiles& tiles) {
  ParallelFor(tiles.a_panels, p.k * 32, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      uint32_t* to = tiles.APanel(panel);
      for (int64_t r = 0; r < kTileRows; ++r) {
        const int64_t row = panel * kTileRows + r;
        // Rows from m on are 0.
        const bool real = row < p.m;
        PackTileRow(p.a.data + (real ? row : 0) * p.a.stride, p.a.is_signed,
                    real ? p.a_zeros[row] : 0, real ? p.k : 0, tiles.k_tiles,
                    to + r * kTileColumns);
      }
    }
  });
}

void PackB(const IntegerProduct& p, const Tiles& tiles) {
  ParallelFor(tiles.b_panels, p.k * 32, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      uint32_t* to = tiles.BPanel(panel);
      const int64_t column = panel * kTileColumns;
      const int64_t width = std::clamp<int64_t>(p.n - column, 0, kTileColumns);
      int32_t zeros[kTileColumns] = {};
      for (int64_t j = 0; j < width; ++j) zeros[j] = p.b_zeros[column + j];
      uint8_t edge[2][kTileColumns] = {};
      for (int64_t k = 0; k < tiles.k_tiles * kTileDepth; k += 2, to += kTileColumns) {
        // Rows from k on are multiplied by 0: any row will do.
        const uint8_t* rows[2];
        for (int64_t i = 0; i < 2; ++i) {
          rows[i] = p.b.data + std::min(k + i, p.k - 1) * p.b.stride + (width > 0 ? column : 0);
          if (width == kTileColumns) continue;
          if (width > 0) std::memcpy(edge[i], rows[i], static_cast<size_t>(width));
          rows[i] = edge[i];
        }
        PackTileColumns(rows[0], rows[1], p.b.is_signed, zeros, to);
      }
    }
  });
}

// Rows [32 i, 32 i + 32) by columns [32 j, 32 j + 32).
void MultiplyTiles(const IntegerProduct& p, const Tiles& tiles, int64_t i, int64_t j) {
  alignas(64) float floats[4][kTileFloats];
  alignas(64) int32_t sums[4][kTileFloats];
  for (int64_t k = 0; k < tiles.k_tiles; k += kExactTiles) {
    TileBlock block{.k_tiles = std::min(kExactTiles, tiles.k_tiles - k)};
    for (int64_t t = 0; t < 2; ++t) {
      const int64_t at = k * Tiles::kWords;
      block.a[t] = reinterpret_cast<const uint16_t*>(tiles.APanel(2 * i + t) + at);
      block.b[t] = reinterpret_cast<const uint16_t*>(tiles.BPanel(2 * j + t) + at);
    }
    for (int t = 0; t < 4; ++t) block.c[t] = floats[t];
    TileProduct2x2(block);
    for (int t = 0; t < 4; ++t) AddTile(floats[t], k > 0, sums[t]);
  }
  for (int64_t t = 0; t < 4; ++t) {
    const int64_t row = 32 * i + t / 2 * kTileRows, column = 32 * j + t % 2 * kTileColumns;
    const int64_t width = std::min(kTileColumns, p.n - column);
    for (int64_t r = 0; width > 0 && r < std::min(kTileRows, p.m - row); ++r) {
      std::memcpy(p.y + (row + r) * p.y_stride + column, sums[t] + r * kTileColumns,
                  static_cast<size_t>(width) * sizeof(int32_t));
    }
  }
}

void MultiplyTiled(const IntegerProduct& p, void* scratch) {
  const Tiles tiles = TilesOf(p.m, p.k, p.n, scratch);
  PackA(p, tiles);
  PackB(p, tiles);
  const int64_t rows = tiles.a_panels / 2;
  // Tasks that follow each other read the same columns.
  ParallelFor(rows * tiles.b_panels / 2, p.k * 64, [&](int64_t begin, int64_t end) {
    BeginTileProducts();
    for (int64_t task = begin; task < end; ++task) {
      MultiplyTiles(p, tiles, task % rows, task / rows);
    }
    EndTileProducts();
  });
}

}  // namespace

size_t IntegerProductScratchBytes(int64_t m, int64_t k, int64_t n) {
  if (!UsesTiles(m)) return static_cast<size_t>(m * PairsOf(k)) * sizeof(uint32_t);
  const Tiles tiles = TilesOf(m, k, n, nullptr);
  const int64_t words = (tiles.a_panels + tiles.b_panels) * tiles.k_tiles * Tiles::kWords;
  return static_cast<size_t>(words) * sizeof(uint32_t);
}

void MultiplyIntegers(const IntegerProduct& p, void* scratch) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    for (int64_t i = 0; i < p.m; ++i) std::fill_n(p.y + i * p.y_stride, p.n, 0);
  } else if (UsesTiles(p.m)) {
    MultiplyTiled(p, scratch);
  } else {
    MultiplyStreamed(p, static_cast<uint32_t*>(scratch));
  }
}

}  // namespace pagefuse
