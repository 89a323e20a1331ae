// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/onednn.h"

#include <algorithm>
#include <atomic>

#include <dlfcn.h>

#include "dnnl.h"

#include "pagefuse/base/parallel.h"

namespace pagefuse {
namespace {

// The OpenMP that oneDNN is linked to, found as its own calls find it. Both are null if it was
// built without: then it has no threads either.
struct OpenMp {
  int (*max_threads)();
  void (*set_num_threads)(int);
};

const OpenMp& OneDnnsOpenMp() {
  static const OpenMp openmp = {
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads")),
      reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))};
  return openmp;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Sizes of tiles. oneDNN packs both operands of each product that it computes, which costs a few
// hundredths of the product at these sizes; of a transposed b with fewer than 128 columns it takes
// half as long again.
constexpr int64_t kTileRows = 512;
constexpr int64_t kMinTileColumns = 128;
constexpr int64_t kMaxTileColumns = 384;
constexpr int64_t kManyTiles = 16;
// A product of fewer multiplications is not cut.
constexpr int64_t kMinProducts = int64_t{1} << 21;

// `size` in equal parts of `wanted` or somewhat more, whole vectors each.
int64_t EvenPart(int64_t size, int64_t wanted) {
  constexpr int64_t kVector = 16;
  const int64_t count = std::max<int64_t>(size / wanted, 1);
  return std::min(CeilDiv(CeilDiv(size, count), kVector) * kVector, size);
}

// The size of tiles for a product of m rows and n columns.
struct TileSize {
  int64_t rows;
  int64_t columns;
};
TileSize TileSizeFor(int64_t m, int64_t n, int64_t k) {
  if (m * n * k < kMinProducts) return {m, n};
  const int64_t columns = std::clamp(n / kManyTiles, kMinTileColumns, kMaxTileColumns);
  return {EvenPart(m, kTileRows), EvenPart(n, columns)};
}

bool RunByteGemm(const ByteGemm& p) {
  const OneDnnOnThisThread alone;
  constexpr int32_t kNothing = 0;
  const auto run = [&]<typename A>(const auto& function, const A* a) {
    return function('N', 'N', 'F', p.m, p.n, p.k, 1.0f, a, p.lda, static_cast<A>(p.a_zero), p.b,
                    p.ldb, p.b_zero, 0.0f, p.c, p.ldc, &kNothing) == dnnl_success;
  };
  return p.a_signed ? run(dnnl_gemm_s8s8s32, static_cast<const int8_t*>(p.a))
                    : run(dnnl_gemm_u8s8s32, static_cast<const uint8_t*>(p.a));
}

}  // namespace

OneDnnOnThisThread::OneDnnOnThisThread() {
  const OpenMp& openmp = OneDnnsOpenMp();
  if (openmp.max_threads == nullptr || openmp.set_num_threads == nullptr) return;
  const int threads = openmp.max_threads();
  if (threads == 1) return;
  before_ = threads;
  openmp.set_num_threads(1);
}

OneDnnOnThisThread::~OneDnnOnThisThread() {
  if (before_ > 0) OneDnnsOpenMp().set_num_threads(before_);
}

bool RunSgemm(const Sgemm& p) {
  const OneDnnOnThisThread alone;
  return dnnl_sgemm(p.trans_a ? 'T' : 'N', p.trans_b ? 'T' : 'N', p.m, p.n, p.k, p.alpha, p.a,
                    p.lda, p.b, p.ldb, 0.0f, p.c, p.ldc) == dnnl_success;
}

bool ParallelByteGemm(const ByteGemm& p) {
  const auto [rows, columns] = TileSizeFor(p.m, p.n, p.k);
  const int64_t row_tiles = CeilDiv(p.m, rows);
  std::atomic<bool> ok = true;
  ParallelTasks(row_tiles * CeilDiv(p.n, columns), [&, rows = rows, columns = columns](int64_t i) {
    const int64_t row = i % row_tiles * rows;
    const int64_t column = i / row_tiles * columns;
    ByteGemm tile = p;
    tile.m = std::min(rows, p.m - row);
    tile.n = std::min(columns, p.n - column);
    tile.a = static_cast<const uint8_t*>(p.a) + row * p.lda;
    tile.b += column;
    tile.c += row * p.ldc + column;
    if (!RunByteGemm(tile)) ok = false;
  });
  return ok;
}

}  // namespace pagefuse
