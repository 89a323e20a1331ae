#include "pagefuse/ops/linalg/amx_product.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/linalg/amx_tiles.h"

namespace pagefuse {

#if defined(__x86_64__)

namespace {

using amx::kTileStride;

static_assert(kAmxWords == amx::kTileWords && kAmxFloats == amx::kTileFloats);

// The sums lie anywhere, so that tiles 0 to 3 have addresses of their own.
PF_AMX inline void BeginSums(const AmxBlock& block) {
  if (!block.accumulate) {
    amx::ZeroSums();
    return;
  }
  _tile_loadd(0, block.c[0], kTileStride);
  _tile_loadd(1, block.c[1], kTileStride);
  _tile_loadd(2, block.c[2], kTileStride);
  _tile_loadd(3, block.c[3], kTileStride);
}

PF_AMX inline void EndSums(const AmxBlock& block) {
  _tile_stored(0, block.c[0], kTileStride);
  _tile_stored(1, block.c[1], kTileStride);
  _tile_stored(2, block.c[2], kTileStride);
  _tile_stored(3, block.c[3], kTileStride);
}

}  // namespace

PF_AMX void BeginAmxProducts() {
  amx::TileConfig config;
  for (int t = 0; t < 8; ++t) config.SetRows(t, kAmxRows);
  amx::LoadConfig(config);
}

PF_AMX void EndAmxProducts() { amx::ReleaseTiles(); }

PF_AMX void AmxProduct2x2(const AmxBlock& block) {
  BeginSums(block);
  const int64_t words = block.k_tiles * kAmxWords;
  for (int64_t i = 0; i < words; i += kAmxWords) {
    _tile_loadd(6, block.b[0] + i, kTileStride);
    _tile_loadd(4, block.a[0] + i, kTileStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, block.b[1] + i, kTileStride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, block.a[1] + i, kTileStride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  EndSums(block);
}

PF_AMX void AmxProduct4x1(const AmxBlock& block) {
  BeginSums(block);
  const int64_t words = block.k_tiles * kAmxWords;
  for (int64_t i = 0; i < words; i += kAmxWords) {
    _tile_loadd(4, block.b[0] + i, kTileStride);
    _tile_loadd(5, block.a[0] + i, kTileStride);
    _tile_dpbf16ps(0, 5, 4);
    _tile_loadd(6, block.a[1] + i, kTileStride);
    _tile_dpbf16ps(1, 6, 4);
    _tile_loadd(7, block.a[2] + i, kTileStride);
    _tile_dpbf16ps(2, 7, 4);
    _tile_loadd(5, block.a[3] + i, kTileStride);
    _tile_dpbf16ps(3, 5, 4);
  }
  EndSums(block);
}

PF_AMX void AmxProduct1x4(const AmxBlock& block) {
  BeginSums(block);
  const int64_t words = block.k_tiles * kAmxWords;
  for (int64_t i = 0; i < words; i += kAmxWords) {
    _tile_loadd(4, block.a[0] + i, kTileStride);
    _tile_loadd(5, block.b[0] + i, kTileStride);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, block.b[1] + i, kTileStride);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, block.b[2] + i, kTileStride);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, block.b[3] + i, kTileStride);
    _tile_dpbf16ps(3, 4, 5);
  }
  EndSums(block);
}

#else

void BeginAmxProducts() { PF_CHECK(false); }
void EndAmxProducts() {}
void AmxProduct2x2(const AmxBlock&) { PF_CHECK(false); }
void AmxProduct4x1(const AmxBlock&) { PF_CHECK(false); }
void AmxProduct1x4(const AmxBlock&) { PF_CHECK(false); }

#endif

}  // namespace pagefuse
