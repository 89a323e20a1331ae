// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/amx_tiles.h"
#include "pagefuse/ops/kernels/linalg/bf16_tiles_kernels.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16_write.h"

namespace pagefuse {

#if defined(__x86_64__)

namespace {

using amx::kTileStride;
using amx::LoadConfig;
using amx::LoadSums;
using amx::ReleaseTiles;
using amx::Stage;
using amx::StoreSums;
using amx::TileConfig;
using amx::ZeroSums;

static_assert(kTileWords == PackedBf16::kBlockWords);

constexpr int64_t kLineWords = 32;  // bf16 values of a cache line
constexpr int64_t kPrefetchLines = 2;

// Tiles 0-3 hold C; the wide kernel has A in 4 and 5 (32 rows of x) and B in 6 and 7; the narrow
// one A in 4, B in 5, 6, 7. Row tile r by column block c is sum tile 2 * r + c wide, c narrow.
// `rows0` and `rows1` are the rows of x in the first and second tile row.
TileConfig WideConfig(int64_t rows0, int64_t rows1) {
  TileConfig config;
  const int64_t rows[8] = {rows0, rows0, rows1, rows1, rows0, rows1, kTileRows, kTileRows};
  for (int t = 0; t < 8; ++t) config.SetRows(t, rows[t]);
  return config;
}

TileConfig NarrowConfig(int64_t rows) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) config.SetRows(t, t < 5 ? rows : kTileRows);
  return config;
}

// One step of the wide product: 32 rows of x by two column blocks over a chunk of k.
struct WideStep {
  const uint16_t* a[2];
  const uint16_t* b[2];
  int64_t k_blocks;
  bool first;  // the chunk starts the sum; otherwise it goes on from `stage`
  // Weights and rows of x that are needed soon, kPrefetchLines cache lines of each a block of k;
  // null for none.
  const uint16_t* next_b;
  const uint16_t* next_a;
};

// Asks for the lines of the next kPrefetchLines blocks of memory in L2.
PF_AMX inline void PrefetchLines(const uint16_t* words) {
  for (int64_t line = 0; line < kPrefetchLines; ++line) {
    __builtin_prefetch(words + line * kLineWords, 0, 2);
  }
}

template <bool kNextA, bool kNextB>
PF_AMX void AddBlocks(const WideStep& step) {
  const uint16_t* const a0 = step.a[0];
  const uint16_t* const a1 = step.a[1];
  const uint16_t* const b0 = step.b[0];
  const uint16_t* const b1 = step.b[1];
  const int64_t words = step.k_blocks * kTileWords;
  int64_t next = 0;
  for (int64_t i = 0; i < words; i += kTileWords, next += kPrefetchLines * kLineWords) {
    if constexpr (kNextA) PrefetchLines(step.next_a + next);
    if constexpr (kNextB) PrefetchLines(step.next_b + next);
    _tile_loadd(6, b0 + i, kTileStride);
    _tile_loadd(4, a0 + i, kTileStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b1 + i, kTileStride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a1 + i, kTileStride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

PF_AMX void WideKernel(const WideStep& step, Stage* stage) {
  if (step.first) {
    ZeroSums();
  } else {
    LoadSums(*stage);
  }
  if (step.next_a != nullptr && step.next_b != nullptr) {
    AddBlocks<true, true>(step);
  } else if (step.next_a != nullptr) {
    AddBlocks<true, false>(step);
  } else if (step.next_b != nullptr) {
    AddBlocks<false, true>(step);
  } else {
    AddBlocks<false, false>(step);
  }
  StoreSums(stage);
}

// A part of y that one thread makes: some rows by some panels, a panel being two column blocks
// (with a gate: one of each matrix).
//
// With few blocks of k, the sums of a step stay in tiles from the first block to the last: rows and
// a panel (72 KiB of weights for k = 1152) are read from L2. With many, k is cut into chunks short
// enough that a panel's chunk (16 KiB) stays in L1 for all rows, and the sums of the item wait in
// L2 between chunks. Either way x and the weights come from memory once an item; what the next
// panel or chunk needs is asked for meanwhile.
struct Item {
  int64_t row;
  int64_t rows;
  int64_t panel;
  int64_t panels;
};
constexpr int64_t kItemRows = 512;
constexpr int64_t kItemPanels = 16;
constexpr int64_t kWholeBlocks = 40;
constexpr int64_t kChunkBlocks = 8;
constexpr int64_t kPairRows = 2 * kTileRows;
constexpr int64_t kItemStages = kItemRows / kPairRows * kItemPanels;

class WideItem {
 public:
  WideItem(const Bf16Product& product, const uint16_t* tiles, const Item& item, Stage* stages)
      : product_(product), w_(*product.weight), tiles_(tiles), item_(item), stages_(stages) {
    chunk_blocks_ = w_.k_blocks() <= kWholeBlocks ? w_.k_blocks() : kChunkBlocks;
    pairs_ = (item_.rows + kPairRows - 1) / kPairRows;
    row_words_ = w_.k_blocks() * kTileWords;
  }

  PF_AMX void Run() const {
    LoadConfig(WideConfig(kTileRows, kTileRows));
    for (int64_t k = 0; k < w_.k_blocks(); k += chunk_blocks_) {
      for (int64_t panel = 0; panel < item_.panels; ++panel) RunPanel(k, panel);
    }
  }

 private:
  int64_t Blocks(int64_t k) const { return std::min(chunk_blocks_, w_.k_blocks() - k); }
  // Column block `c`, 0 or 1, of a panel. A single last block stands in for the missing one.
  const uint16_t* Weights(int64_t panel, int64_t c, int64_t k) const {
    const int64_t block = std::min(2 * (item_.panel + panel) + c, w_.column_blocks() - 1);
    return w_.column_block(block) + k * kTileWords;
  }
  const uint16_t* Rows(int64_t tile_row, int64_t k) const {
    return tiles_ + (item_.row / kTileRows + tile_row) * row_words_ + k * kTileWords;
  }

  // The part of the next panel, or of the next chunk's first one, that step `pair` asks for.
  const uint16_t* NextWeights(int64_t k, int64_t panel, int64_t pair) const {
    const bool last_panel = panel + 1 == item_.panels;
    const int64_t next_k = last_panel ? k + chunk_blocks_ : k;
    if (next_k >= w_.k_blocks()) return nullptr;
    // One block of k by one column block is 16 lines: a column block takes 8 steps.
    constexpr int64_t kParts = kTileWords / kLineWords / kPrefetchLines;
    if (pair >= 2 * kParts) return nullptr;
    const int64_t words = Blocks(next_k) * kTileWords / kParts;
    return Weights(last_panel ? 0 : panel + 1, pair / kParts, next_k) + pair % kParts * words;
  }

  // The part of the rows' next chunk that step `pair` asks for: over the first panels, every tile
  // row once.
  const uint16_t* NextRows(int64_t k, int64_t panel, int64_t pair) const {
    constexpr int64_t kParts = kTileWords / kLineWords / kPrefetchLines;
    const int64_t next_k = k + chunk_blocks_;
    const int64_t part = panel % kParts;
    const int64_t tile_row = 2 * pair + panel / kParts;
    if (next_k >= w_.k_blocks() || panel >= 2 * kParts) return nullptr;
    if (tile_row * kTileRows >= item_.rows) return nullptr;
    return Rows(tile_row, next_k) + part * (Blocks(next_k) * kTileWords / kParts);
  }

  // All rows of the item by one chunk of a panel.
  PF_AMX void RunPanel(int64_t k, int64_t panel) const {
    const int64_t k_blocks = Blocks(k);
    const bool last = k + k_blocks == w_.k_blocks();
    const bool whole = k == 0 && last;
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      const int64_t rows = std::min(kPairRows, item_.rows - pair * kPairRows);
      const int64_t rows0 = std::min(kTileRows, rows);
      const int64_t rows1 = rows - rows0;
      const bool partial = rows < kPairRows;
      if (partial) LoadConfig(WideConfig(rows0, std::max<int64_t>(rows1, 1)));
      WideStep step{};
      // Without a second tile row the first one stands in for it, and the result is dropped.
      step.a[0] = Rows(2 * pair, k);
      step.a[1] = rows1 > 0 ? Rows(2 * pair + 1, k) : step.a[0];
      step.b[0] = Weights(panel, 0, k);
      step.b[1] = Weights(panel, 1, k);
      step.k_blocks = k_blocks;
      step.first = k == 0;
      // With few rows the pass over a panel is short, and the weights stream by themselves.
      if (pairs_ > 2) {
        step.next_b = NextWeights(k, panel, pair);
        step.next_a = NextRows(k, panel, pair);
      }
      Stage* stage = whole ? stages_ : &stages_[pair * item_.panels + panel];
      WideKernel(step, stage);
      if (last) Finish(panel, {item_.row + pair * kPairRows, rows}, stage);
      if (partial) LoadConfig(WideConfig(kTileRows, kTileRows));
    }
  }

  struct RowRange {
    int64_t first;
    int64_t count;
  };
  void Finish(int64_t panel, const RowRange& rows, Stage* stage) const {
    const int64_t block = 2 * (item_.panel + panel);
    const int64_t count = std::min<int64_t>(2, w_.column_blocks() - block);
    const int64_t rows0 = std::min(kTileRows, rows.count);
    WriteTiles(product_, {rows.first, rows0, block, count}, stage->tiles);
    WriteTiles(product_, {rows.first + kTileRows, rows.count - rows0, block, count},
               stage->tiles + 2);
  }

  const Bf16Product& product_;
  const PackedBf16& w_;
  const uint16_t* tiles_;
  Item item_;
  Stage* stages_;
  int64_t chunk_blocks_;
  int64_t pairs_;
  int64_t row_words_;
};

// Items as large as the caches allow, as many for every thread, none empty.
struct ItemGrid {
  int64_t rows;
  int64_t row_items;
  int64_t column_items;
};
ItemGrid MakeGrid(int64_t m, int64_t panels) {
  const int64_t threads = MaxWorkers();
  ItemGrid grid{kItemRows, 0, 0};
  auto row_items = [&] { return (m + grid.rows - 1) / grid.rows; };
  while (grid.rows > kPairRows && row_items() * panels < threads) grid.rows /= 2;
  grid.row_items = row_items();
  grid.column_items = (panels + kItemPanels - 1) / kItemPanels;
  while (grid.row_items * grid.column_items % threads != 0 && grid.column_items < panels) {
    ++grid.column_items;
  }
  return grid;
}

PF_AMX void WideProduct(const Bf16Product& product, const uint16_t* tiles, Stage* stages) {
  const int64_t panels = (product.weight->column_blocks() + 1) / 2;
  const ItemGrid grid = MakeGrid(product.m, panels);
  ParallelTasks(grid.row_items * grid.column_items, [&](int64_t i, int worker) PF_AMX {
    const int64_t row = i / grid.column_items * grid.rows;
    const int64_t column = i % grid.column_items;
    const int64_t panel = panels * column / grid.column_items;
    const int64_t end = panels * (column + 1) / grid.column_items;
    const Item item{row, std::min(grid.rows, product.m - row), panel, end - panel};
    WideItem(product, tiles, item, stages + worker * kItemStages).Run();
    ReleaseTiles();
  });
}

// Up to 16 rows of x by four column blocks: four streams of weights.
PF_AMX void NarrowProduct(const Bf16Product& product, const uint16_t* tiles) {
  const PackedBf16& w = *product.weight;
  const int64_t steps = (w.column_blocks() + 3) / 4;
  ParallelFor(steps, w.k_blocks() * kTileWords * 8, [&](int64_t step, int64_t end) PF_AMX {
    Stage stage;
    LoadConfig(NarrowConfig(product.m));
    for (int64_t block = 4 * step; block < std::min(4 * end, w.column_blocks()); block += 4) {
      const int64_t count = std::min<int64_t>(4, w.column_blocks() - block);
      TileBlock sums;
      sums.k_tiles = w.k_blocks();
      sums.a[0] = tiles;
      for (int64_t c = 0; c < 4; ++c) {
        sums.b[c] = w.column_block(block + std::min(c, count - 1));
        sums.c[c] = stage.tiles[c];
      }
      AmxProduct1x4(sums);
      WriteTiles(product, {0, product.m, block, count}, stage.tiles);
    }
    ReleaseTiles();
  });
}

}  // namespace

size_t AmxStageBytes(int64_t m) {
  return m <= kTileRows ? 0 : MaxWorkers() * kItemStages * sizeof(Stage);
}

void Bf16ProductAmx(const Bf16Product& product, const uint16_t* tiles, void* stages) {
  if (product.weight->k() == 0) {
    // No tile instruction with nothing to add: the sums are zero.
    for (int64_t r = 0; r < product.m; ++r) {
      std::memset(product.y.data + r * product.y.stride, 0, product.weight->n() * sizeof(float));
    }
    return;
  }
  if (product.m <= kTileRows) {
    NarrowProduct(product, tiles);
    return;
  }
  WideProduct(product, tiles, static_cast<Stage*>(stages));
}

#else

size_t AmxStageBytes(int64_t) { return 0; }

void Bf16ProductAmx(const Bf16Product&, const uint16_t*, void*) { PF_CHECK(false); }

#endif

}  // namespace pagefuse
