// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
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

// Lines of memory that are needed soon.
struct ComingLines {
  const std::byte* from = nullptr;
  int64_t count = 0;
  int64_t each = 0;  // with each block of k

  void Ask(int64_t block) const {
    constexpr int kSecondLevel = 2;
    const int64_t end = std::min(count, (block + 1) * each);
    for (int64_t line = block * each; line < end; ++line) {
      __builtin_prefetch(from + line * kLine, 0, kSecondLevel);
    }
  }
  static constexpr int64_t kLine = 64;
};

// One step of the wide product: 32 rows of x by two column blocks over a chunk of k.
struct WideStep {
  const uint16_t* a[2];
  const uint16_t* b[2];
  int64_t k_blocks;
  bool first;  // the chunk starts the sum; otherwise it goes on from `stage`
  ComingLines coming;
};

// The tile behind this one, into the first level: where threads share a core, a tile is loaded before
// the product before it ends only if its lines are there.
PF_AMX inline void AskForTile(const uint16_t* tile) {
  constexpr int kFirstLevel = 3;
  for (int64_t line = 0; line < kTileRows; ++line) {
    __builtin_prefetch(tile + line * kTileDepth, 0, kFirstLevel);
  }
}

PF_AMX void WideKernel(const WideStep& step, Stage* stage) {
  if (step.first) {
    ZeroSums();
  } else {
    LoadSums(*stage);
  }
  const uint16_t* const a0 = step.a[0];
  const uint16_t* const a1 = step.a[1];
  const uint16_t* const b0 = step.b[0];
  const uint16_t* const b1 = step.b[1];
  for (int64_t k = 0; k < step.k_blocks; ++k) {
    const int64_t i = k * kTileWords, next = i + kTileWords;
    step.coming.Ask(k);
    AskForTile(a0 + next);
    AskForTile(a1 + next);
    AskForTile(b0 + next);
    AskForTile(b1 + next);
    _tile_loadd(6, b0 + i, kTileStride);
    _tile_loadd(4, a0 + i, kTileStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b1 + i, kTileStride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a1 + i, kTileStride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  StoreSums(stage);
}

// A part of y that one thread makes: some rows by some panels, a panel being two column blocks
// (with a gate: one of each matrix).
//
// With few blocks of k, the sums of a step stay in tiles from the first block to the last: rows and
// a panel (72 KiB of weights for k = 1152) are read from L2. With many, k is cut into chunks whose
// rows stay there for all panels of the item, and so do the sums between chunks. Either way x and the
// weights come from memory once an item, and codes are decoded once; what the next panel reads is
// asked for meanwhile.
struct Item {
  int64_t row;
  int64_t rows;
  int64_t panel;
  int64_t panels;
};
constexpr int64_t kItemRows = 512;
constexpr int64_t kItemPanels = 8;
constexpr int64_t kWholeBlocks = 40;
constexpr int64_t kChunkBlocks = 24;
constexpr int64_t kPairRows = 2 * kTileRows;
constexpr int64_t kItemStages = kItemRows / kPairRows * kItemPanels;

// What a worker has for itself.
struct Memory {
  alignas(64) uint16_t panel[2 * kWholeBlocks * kTileWords];  // decoded
  Stage stages[kItemStages];
};

class WideItem {
 public:
  WideItem(const Bf16Product& product, const uint16_t* tiles, const Item& item, Memory& memory)
      : product_(product), w_(*product.weight), tiles_(tiles), item_(item), memory_(memory) {
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
  int64_t ColumnBlock(int64_t panel, int64_t c) const {
    return std::min(2 * (item_.panel + panel) + c, w_.column_blocks() - 1);
  }
  const uint16_t* Rows(int64_t tile_row, int64_t k) const {
    return tiles_ + (item_.row / kTileRows + tile_row) * row_words_ + k * kTileWords;
  }

  // The part of the next panel, or of the next chunk's first one, that step `pair` asks for: the
  // first half of the steps asks for one column block, the others for the other.
  ComingLines Coming(int64_t k, int64_t panel, int64_t pair) const {
    const bool last_panel = panel + 1 == item_.panels;
    const int64_t next_k = last_panel ? k + chunk_blocks_ : k;
    if (next_k >= w_.k_blocks()) return {};
    const int64_t first_half = (pairs_ + 1) / 2, half = pair < first_half ? 0 : 1;
    const int64_t place = pair - half * first_half;
    const int64_t places = half == 0 ? first_half : pairs_ - first_half;
    const auto bytes =
        w_.Read(ColumnBlock(last_panel ? 0 : panel + 1, half), next_k, Blocks(next_k));
    const int64_t lines = static_cast<int64_t>(bytes.size()) / ComingLines::kLine;
    const int64_t begin = lines * place / places, count = lines * (place + 1) / places - begin;
    return {bytes.data() + begin * ComingLines::kLine, count, count / Blocks(k) + 1};
  }

  // All rows of the item by one chunk of a panel.
  PF_AMX void RunPanel(int64_t k, int64_t panel) const {
    const int64_t k_blocks = Blocks(k);
    const bool last = k + k_blocks == w_.k_blocks();
    const bool whole = k == 0 && last;
    WideStep step{};
    for (int64_t c = 0; c < 2; ++c) {
      step.b[c] = w_.Blocks(ColumnBlock(panel, c), k, k_blocks,
                            memory_.panel + c * kWholeBlocks * kTileWords);
    }
    step.k_blocks = k_blocks;
    step.first = k == 0;
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      const int64_t rows = std::min(kPairRows, item_.rows - pair * kPairRows);
      const int64_t rows0 = std::min(kTileRows, rows);
      const int64_t rows1 = rows - rows0;
      const bool partial = rows < kPairRows;
      if (partial) LoadConfig(WideConfig(rows0, std::max<int64_t>(rows1, 1)));
      // Without a second tile row the first one stands in for it, and the result is dropped.
      step.a[0] = Rows(2 * pair, k);
      step.a[1] = rows1 > 0 ? Rows(2 * pair + 1, k) : step.a[0];
      step.coming = Coming(k, panel, pair);
      Stage* stage = &memory_.stages[whole ? 0 : pair * item_.panels + panel];
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
  const Bf16Source& w_;
  const uint16_t* tiles_;
  Item item_;
  Memory& memory_;
  int64_t chunk_blocks_;
  int64_t pairs_;
  int64_t row_words_;
};

// Items of `rows` rows each by panels that are cut into column_items parts.
struct ItemGrid {
  int64_t rows;
  int64_t row_items;
  int64_t column_items;
};
// The largest items with which the thread that has most to do ends first.
ItemGrid MakeGrid(int64_t m, int64_t panels) {
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  constexpr int64_t kLeastRows = 128;
  const int64_t threads = MaxWorkers();
  ItemGrid best{};
  int64_t least = INT64_MAX;
  for (int64_t rows = kItemRows; rows >= kLeastRows; rows /= 2) {
    for (int64_t each = std::min(kItemPanels, panels); each > 0; --each) {
      const ItemGrid grid{rows, ceil_div(m, rows), ceil_div(panels, each)};
      const int64_t turns = ceil_div(grid.row_items * grid.column_items, threads);
      const int64_t time = turns * ceil_div(std::min(rows, m), kPairRows) * each;
      if (time >= least) continue;
      least = time;
      best = grid;
    }
  }
  return best;
}

PF_AMX void WideProduct(const Bf16Product& product, const uint16_t* tiles, Memory* memory) {
  const int64_t panels = (product.weight->column_blocks() + 1) / 2;
  const ItemGrid grid = MakeGrid(product.m, panels);
  ParallelTasks(grid.row_items * grid.column_items, [&](int64_t i, int worker) PF_AMX {
    const int64_t row = i / grid.column_items * grid.rows;
    const int64_t column = i % grid.column_items;
    const int64_t panel = panels * column / grid.column_items;
    const int64_t end = panels * (column + 1) / grid.column_items;
    const Item item{row, std::min(grid.rows, product.m - row), panel, end - panel};
    WideItem(product, tiles, item, memory[worker]).Run();
    ReleaseTiles();
  });
}

// Up to 16 rows of x by four column blocks: four streams of weights.
PF_AMX void NarrowProduct(const Bf16Product& product, const uint16_t* tiles) {
  const Bf16Source& w = *product.weight;
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

size_t AmxStageBytes(int64_t m) { return m == 0 ? 0 : MaxWorkers() * sizeof(Memory); }

void Bf16ProductAmx(const Bf16Product& product, const uint16_t* tiles, void* stages) {
  if (product.weight->k() == 0) {
    // No tile instruction with nothing to add: the sums are zero.
    for (int64_t r = 0; r < product.m; ++r) {
      std::memset(product.y.data + r * product.y.stride, 0, product.weight->n() * sizeof(float));
    }
    return;
  }
  if (product.m <= kTileRows && !product.weight->decodes()) {
    NarrowProduct(product, tiles);
    return;
  }
  WideProduct(product, tiles, static_cast<Memory*>(stages));
}

#else

size_t AmxStageBytes(int64_t) { return 0; }

void Bf16ProductAmx(const Bf16Product&, const uint16_t*, void*) { PF_CHECK(false); }

#endif

}  // namespace pagefuse
