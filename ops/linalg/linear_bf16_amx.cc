#include <algorithm>
#include <cstring>

#include <omp.h>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/linalg/linear_bf16_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pagefuse {

#if defined(__x86_64__)

namespace {

#define PF_AMX __attribute__((target("amx-tile,amx-bf16")))

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileColumns = 16;
constexpr int64_t kTileFloats = kTileRows * kTileColumns;
constexpr int64_t kTileWords = PackedBf16::kBlockWords;
constexpr int64_t kCacheLine = 64;
constexpr int64_t kPrefetchLines = 4;
constexpr int64_t kTileStride = 64;  // bytes of a row of A, B and staged C tiles

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0-3 hold C; the wide kernel has A in 4 and 5 (32 rows of x) and B in 6 and 7; the narrow
// one A in 4, B in 5, 6, 7. `rows0` and `rows1` are the rows of x in the first and second tile row.
TileConfig WideConfig(int64_t rows0, int64_t rows1) {
  TileConfig config;
  const int64_t rows[8] = {rows0, rows0, rows1, rows1, rows0, rows1, kTileRows, kTileRows};
  for (int t = 0; t < 8; ++t) {
    config.row_bytes[t] = kTileStride;
    config.rows[t] = static_cast<uint8_t>(rows[t]);
  }
  return config;
}

TileConfig NarrowConfig(int64_t rows) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.row_bytes[t] = kTileStride;
    config.rows[t] = static_cast<uint8_t>(t < 5 ? rows : kTileRows);
  }
  return config;
}

PF_AMX inline void LoadConfig(const TileConfig& config) {
  // The intrinsic of GCC 12 tells the compiler of the first 8 bytes only.
  asm volatile("ldtilecfg %0" ::"m"(config));
}

// C tiles of one step, 16 rows of 16 floats each: (row tile r, column block c) at [2 * r + c] wide,
// [c] narrow.
struct alignas(64) Stage {
  float tiles[4][kTileFloats];
};

// One step of the wide product: 32 rows of x by two column blocks over a chunk of k.
struct WideStep {
  const uint16_t* a[2];
  const uint16_t* b[2];
  int64_t k_blocks;
  bool first;  // the chunk starts the sum; otherwise it goes on from `stage`
  // Weights that are needed soon, kPrefetchLines cache lines a block of k; null for none.
  const uint16_t* prefetch;
};

PF_AMX void LoadSums(const Stage& stage) {
  _tile_loadd(0, stage.tiles[0], kTileStride);
  _tile_loadd(1, stage.tiles[1], kTileStride);
  _tile_loadd(2, stage.tiles[2], kTileStride);
  _tile_loadd(3, stage.tiles[3], kTileStride);
}

PF_AMX void ZeroSums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

PF_AMX void StoreSums(Stage* stage) {
  _tile_stored(0, stage->tiles[0], kTileStride);
  _tile_stored(1, stage->tiles[1], kTileStride);
  _tile_stored(2, stage->tiles[2], kTileStride);
  _tile_stored(3, stage->tiles[3], kTileStride);
}

template <bool kPrefetch>
PF_AMX void AddBlocks(const WideStep& step) {
  const uint16_t* const a0 = step.a[0];
  const uint16_t* const a1 = step.a[1];
  const uint16_t* const b0 = step.b[0];
  const uint16_t* const b1 = step.b[1];
  const char* prefetch = reinterpret_cast<const char*>(step.prefetch);
  const int64_t words = step.k_blocks * kTileWords;
  for (int64_t i = 0; i < words; i += kTileWords) {
    if constexpr (kPrefetch) {
      __builtin_prefetch(prefetch, 0, 2);
      __builtin_prefetch(prefetch + kCacheLine, 0, 2);
      __builtin_prefetch(prefetch + 2 * kCacheLine, 0, 2);
      __builtin_prefetch(prefetch + 3 * kCacheLine, 0, 2);
      prefetch += kPrefetchLines * kCacheLine;
    }
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
  if (step.prefetch != nullptr) {
    AddBlocks<true>(step);
  } else {
    AddBlocks<false>(step);
  }
  StoreSums(stage);
}

// Up to 16 rows of x by four column blocks: four streams of weights.
PF_AMX void NarrowKernel(const uint16_t* a, const uint16_t* const* b, int64_t k_blocks,
                         Stage* stage) {
  ZeroSums();
  for (int64_t i = 0; i < k_blocks; ++i) {
    _tile_loadd(4, a + i * kTileWords, kTileStride);
    _tile_loadd(5, b[0] + i * kTileWords, kTileStride);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, b[1] + i * kTileWords, kTileStride);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, b[2] + i * kTileWords, kTileStride);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, b[3] + i * kTileWords, kTileStride);
    _tile_dpbf16ps(3, 4, 5);
  }
  StoreSums(stage);
}

// Where a finished tile row goes: `count` column blocks from `block`, rows [first, first + rows).
struct Target {
  int64_t first;
  int64_t rows;
  int64_t block;
  int64_t count;
};

void Write(const Bf16Product& product, const Target& target, float (*tiles)[kTileFloats]) {
  const PackedBf16& w = *product.weight;
  const int64_t step = w.gated() ? 2 : 1;
  for (int64_t c = 0; c < target.count; c += step) {
    const int64_t column = (target.block + c) / step * kTileColumns;
    const int64_t columns = std::min(kTileColumns, w.n() - column);
    if (w.gated()) {
      GatedProduct(product.activation, tiles[c], tiles[c + 1], target.rows * kTileColumns,
                   tiles[c]);
    }
    float* y = product.y.data + target.first * product.y.stride + column;
    for (int64_t r = 0; r < target.rows; ++r, y += product.y.stride) {
      std::memcpy(y, tiles[c] + r * kTileColumns, columns * sizeof(float));
    }
  }
}

// A part of y that one thread makes: some rows by some column blocks. Its sums (256 KiB), a chunk
// of x (256 rows by 768 of k at most, 384 KiB) and a chunk of two column blocks (48 KiB) stay in
// L2; x and the weights are read from memory once an item.
struct Item {
  int64_t row;
  int64_t rows;
  int64_t block;
  int64_t blocks;
};
constexpr int64_t kItemRows = 256;
constexpr int64_t kItemBlocks = 16;
constexpr int64_t kMaxChunkBlocks = 24;
constexpr int64_t kItemStages = kItemRows / (2 * kTileRows) * (kItemBlocks / 2);

class WideItem {
 public:
  WideItem(const Bf16Product& product, const uint16_t* tiles, const Item& item, Stage* stages)
      : product_(product), w_(*product.weight), tiles_(tiles), item_(item), stages_(stages) {
    const int64_t chunks = (w_.k_blocks() + kMaxChunkBlocks - 1) / kMaxChunkBlocks;
    chunk_blocks_ = (w_.k_blocks() + chunks - 1) / chunks;
    panels_ = (item_.blocks + 1) / 2;
    pairs_ = (item_.rows + 2 * kTileRows - 1) / (2 * kTileRows);
  }

  PF_AMX void Run() const {
    LoadConfig(WideConfig(kTileRows, kTileRows));
    for (int64_t k = 0; k < w_.k_blocks(); k += chunk_blocks_) {
      for (int64_t panel = 0; panel < panels_; ++panel) RunPanel(k, panel);
    }
  }

 private:
  const uint16_t* Block(int64_t block, int64_t k) const {
    return w_.column_block(item_.block + block) + k * kTileWords;
  }

  // All rows of the item by one chunk of two column blocks.
  PF_AMX void RunPanel(int64_t k, int64_t panel) const {
    const int64_t k_blocks = std::min(chunk_blocks_, w_.k_blocks() - k);
    const int64_t count = std::min<int64_t>(2, item_.blocks - 2 * panel);
    const bool last_panel = panel + 1 == panels_;
    const bool last = k + k_blocks == w_.k_blocks();
    WideStep step{};
    step.k_blocks = k_blocks;
    step.first = k == 0;
    // A single last block is computed twice rather than by a kernel of its own.
    step.b[0] = Block(2 * panel, k);
    step.b[1] = Block(2 * panel + count - 1, k);
    // The next panel, or the first one of the next chunk, comes from memory while this one is used.
    // The eight row pairs of a whole item ask for a quarter of a block each; with fewer, the pass
    // over this panel is short and the weights stream by themselves.
    const int64_t next_k = last_panel ? k + k_blocks : k;
    const int64_t next_panel = last_panel ? 0 : panel + 1;
    const bool prefetch = next_k < w_.k_blocks() && pairs_ > 2;
    const int64_t row_words = w_.k_blocks() * kTileWords;
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      const int64_t row = item_.row + pair * 2 * kTileRows;
      const int64_t rows = std::min(2 * kTileRows, item_.row + item_.rows - row);
      const int64_t rows0 = std::min(kTileRows, rows);
      const int64_t rows1 = rows - rows0;
      const bool partial = rows < 2 * kTileRows;
      if (partial) LoadConfig(WideConfig(rows0, std::max<int64_t>(rows1, 1)));
      step.a[0] = tiles_ + row / kTileRows * row_words + k * kTileWords;
      // Without a second tile row the first one stands in for it, and the result is dropped.
      step.a[1] = rows1 > 0 ? step.a[0] + row_words : step.a[0];
      if (prefetch) {
        const int64_t block = std::min(2 * next_panel + pair / 4, item_.blocks - 1);
        step.prefetch = Block(block, next_k) + pair % 4 * (k_blocks * kTileWords / 4);
      }
      Stage* stage = &stages_[pair * panels_ + panel];
      WideKernel(step, stage);
      if (last) {
        Write(product_, {row, rows0, item_.block + 2 * panel, count}, stage->tiles);
        Write(product_, {row + kTileRows, rows1, item_.block + 2 * panel, count}, stage->tiles + 2);
      }
      if (partial) LoadConfig(WideConfig(kTileRows, kTileRows));
    }
  }

  const Bf16Product& product_;
  const PackedBf16& w_;
  const uint16_t* tiles_;
  Item item_;
  Stage* stages_;
  int64_t chunk_blocks_;
  int64_t panels_;
  int64_t pairs_;
};

PF_AMX void WideProduct(const Bf16Product& product, const uint16_t* tiles, Stage* stages) {
  const int64_t blocks = product.weight->column_blocks();
  const int64_t row_items = (product.m + kItemRows - 1) / kItemRows;
  // Items of all 16 blocks read x least often; narrower ones where there would be too few for the
  // threads.
  int64_t item_blocks = kItemBlocks;
  while (item_blocks > 2 && row_items * (blocks / item_blocks) < 4 * omp_get_max_threads()) {
    item_blocks /= 2;
  }
  const int64_t column_items = (blocks + item_blocks - 1) / item_blocks;
#pragma omp parallel
  {
    Stage* mine = stages + omp_get_thread_num() * kItemStages;
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < row_items * column_items; ++i) {
      const int64_t row = i / column_items * kItemRows;
      const int64_t block = i % column_items * item_blocks;
      const Item item{row, std::min(kItemRows, product.m - row), block,
                      std::min(item_blocks, blocks - block)};
      WideItem(product, tiles, item, mine).Run();
    }
    _tile_release();
  }
}

PF_AMX void NarrowProduct(const Bf16Product& product, const uint16_t* tiles) {
  const PackedBf16& w = *product.weight;
#pragma omp parallel
  {
    Stage stage;
    LoadConfig(NarrowConfig(product.m));
#pragma omp for schedule(static)
    for (int64_t block = 0; block < w.column_blocks(); block += 4) {
      const int64_t count = std::min<int64_t>(4, w.column_blocks() - block);
      const uint16_t* b[4];
      for (int64_t c = 0; c < 4; ++c) b[c] = w.column_block(block + std::min(c, count - 1));
      NarrowKernel(tiles, b, w.k_blocks(), &stage);
      Write(product, {0, product.m, block, count}, stage.tiles);
    }
    _tile_release();
  }
}

}  // namespace

size_t AmxStageBytes(int64_t m) {
  return m <= kTileRows ? 0 : omp_get_max_threads() * kItemStages * sizeof(Stage);
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

#undef PF_AMX

#else

size_t AmxStageBytes(int64_t) { return 0; }

void Bf16ProductAmx(const Bf16Product&, const uint16_t*, void*) { PF_CHECK(false); }

#endif

}  // namespace pagefuse
