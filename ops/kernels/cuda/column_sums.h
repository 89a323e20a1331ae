// SPDX-License-Identifier: Apache-2.0
// Products of few rows with weights [K, N], in float, bound by the memory's bandwidth: a block takes up to 8 rows at a time,
// and reads its weights once for them. Device code alone.
//
// A block sums a tile of columns over a part of K. Its lanes lie 8, 16 or 32 beside each other, so that a warp reads runs
// of up to 512 bytes; what is left of lanes and warps lies below and shares K. Where columns are too few for all
// multiprocessors, the blocks of a cluster share K too. A lane has several rows' weights on their way, the first of them
// before x is known. All sums are added up in a fixed order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "pagefuse/ops/kernels/cuda/cluster.h"
#include "pagefuse/ops/kernels/cuda/element.h"

namespace pagefuse::cuda {

inline constexpr int kColumnThreads = 256, kColumnWarps = kColumnThreads / 32;
inline constexpr int64_t kMostColumnRows = INT32_MAX / 2;  // K: of a part they are int

// How blocks lie over W. Of x it is the number of columns a lane that depends on its rows, and nothing else.
struct ColumnPlan {
  int across = 32;  // lanes beside each other
  int parts = 1;    // of K: blocks of a cluster
  int64_t part = 0, tiles = 0;

  // For `count` columns a lane, and so many such products at once.
  static ColumnPlan Of(int64_t n, int64_t k, int count, int64_t products = 1) {
    constexpr int64_t kEnough = 264;  // blocks: two for each multiprocessor
    constexpr int64_t kLeastPart = 64;
    const int most = MostClusterBlocks();
    ColumnPlan plan;
    const auto blocks = [&] { return CeilDiv(n, plan.across * count) * products * plan.parts; };
    while (plan.across > 8 && blocks() * most < kEnough) plan.across /= 2;
    while (plan.parts < most && blocks() < kEnough && k >= 2 * plan.parts * kLeastPart) {
      plan.parts *= 2;
    }
    plan.part = CeilDiv(k, plan.parts);
    plan.tiles = CeilDiv(n, plan.across * count);
    return plan;
  }
};

// Up to kCount weights of one row of W. Whole: neighbours, which are loaded at once.
template <typename W, int kCount, bool kWhole>
class ColumnPiece {
  using Bits = std::conditional_t<kCount * sizeof(W) == 16, uint4, uint2>;
  static_assert(kCount * sizeof(W) == sizeof(Bits));

 public:
  __device__ void Load(const W* from, int, int) {
    bits_ = __ldcs(reinterpret_cast<const Bits*>(from));
  }
  __device__ void Clear() { bits_ = {}; }
  __device__ float operator[](int i) const {
    return ToFloat(reinterpret_cast<const Vector<W, kCount>*>(&bits_)->at[i]);
  }

 private:
  Bits bits_;
};

// Else `step` columns apart; the first `columns` behind the first one are there.
template <typename W, int kCount>
class ColumnPiece<W, kCount, false> {
 public:
  __device__ void Load(const W* from, int step, int columns) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      at_[i] = i * step < columns ? __ldcs(from + i * step) : FromFloat<W>(0.0f);
    }
  }
  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) at_[i] = FromFloat<W>(0.0f);
  }
  __device__ float operator[](int i) const { return ToFloat(at_[i]); }

 private:
  W at_[kCount];
};

// The sums of a block. kMatrices: of one shape, by the same x; each has warps of its own. kWhole: each row of W begins at
// a multiple of 16 bytes.
template <typename W, int kMatrices, int kRows, bool kWhole>
class ColumnSums {
  static constexpr int kThreads = kColumnThreads / kMatrices;  // of a matrix
  static constexpr int kLoads = kRows == 1 ? 8 : 6;            // rows on their way to a lane
  static constexpr int kMostRound = kLoads * kThreads / 8;
  // Elements of a row of x in shared memory: whole rounds.
  static constexpr int kWindow = 8192 / kRows / kMostRound * kMostRound;
  using XColumn = Vector<float, kRows>;

 public:
  // Columns of a lane: fewer where many rows have sums for each of them.
  static constexpr int kCount = kRows > 4 || !kWhole ? 4 : 16 / sizeof(W);

  // Of a block: its sums, and behind them a window of x, later those of its warps.
  static size_t SharedBytes(const ColumnPlan& plan) {
    const int64_t sums = int64_t{kRows} * plan.across * kCount;
    const int64_t round = kLoads * (kThreads / plan.across);
    const int64_t window = std::min<int64_t>(kWindow, CeilDiv(plan.part, round) * round);
    const int64_t floats = kMatrices * sums + std::max(window * kRows, kColumnWarps * sums);
    return static_cast<size_t>(floats) * sizeof(float);
  }
  // That of the thread.
  __device__ static int Matrix() { return static_cast<int>(threadIdx.x) / kThreads; }

  // Asks for the first weights of the thread's matrix: of columns from `column0` on, of rows from `begin` up to `end`.
  __device__ ColumnSums(const W* weights, int64_t n, int across, int64_t column0, int64_t begin,
                        int64_t end)
      : across_(across),
        down_(kThreads / across),
        first_(static_cast<int>(threadIdx.x) % kThreads / across),
        count_(static_cast<int>(max(end - begin, int64_t{0}))),
        begin_(begin),
        row_step_(down_ * n) {
    const int64_t column = column0 + ColumnOf(0);
    columns_ = static_cast<int>(min(n - column, int64_t{kCount} * across));
    left_ = columns_ > 0 ? count_ - first_ : 0;
    at_ = weights + (begin + first_) * n + column;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) Load(i);
  }

  // Adds all products. x_at(row, k) is asked for the first `rows` rows.
  template <typename F>
  __device__ void Add(int rows, const F& x_at) {
    auto* x = reinterpret_cast<XColumn*>(Totals() + kMatrices * sums());
    const int round = kLoads * down_;
    for (int window = 0; window < count_; window += kWindow) {
      const int count = min(count_ - window, kWindow);
      const int padded = (count + round - 1) / round * round;
      if (window > 0) __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < padded; i += kColumnThreads) {
        XColumn values;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          values.at[r] = r < rows && i < count ? x_at(r, begin_ + window + i) : 0.0f;
        }
        x[i] = values;
      }
      __syncthreads();
      for (int k = first_; k < padded; k += round) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          AddRow(i, x[k + i * down_]);
          Load(i);
        }
      }
    }
  }

  // Adds up the sums of lanes and warps. Behind it Total may be called, and then ptx::WaitForCluster by all.
  __device__ void Join() {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    float* totals = Totals();
    float* work = totals + kMatrices * sums();
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kCount; ++c) {
        float sum = own_[r][c];
        for (int distance = across_; distance < 32; distance *= 2) {
          sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
        }
        if (lane < across_) work[warp * sums() + r * columns() + ColumnOf(c)] = sum;
      }
    }
    __syncthreads();
    constexpr int kWarps = kColumnWarps / kMatrices;
    for (int at = static_cast<int>(threadIdx.x); at < kMatrices * sums(); at += kColumnThreads) {
      const float* own = work + (at / sums() * kWarps * sums() + at % sums());
      float total = 0;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) total += own[i * sums()];
      totals[at] = total;
    }
    ptx::WaitForCluster();
  }

  // Of a tile.
  __device__ int columns() const { return across_ * kCount; }
  __device__ int sums() const { return kRows * columns(); }
  // The sum number `at` of a matrix, by rows of x, of all blocks of the cluster.
  __device__ float Total(int matrix, int at, int blocks) const {
    float total = 0;
    for (int i = 0; i < blocks; ++i) {
      total += ptx::SharedOfBlock(Totals() + matrix * sums() + at, i);
    }
    return total;
  }

 private:
  __device__ static float* Totals() {
    extern __shared__ float4 column_shared[];
    return reinterpret_cast<float*>(column_shared);
  }

  // Of the tile, of the lane's weight number c.
  __device__ int ColumnOf(int c) const {
    const int lane = static_cast<int>(threadIdx.x) % across_;
    return kWhole ? lane * kCount + c : lane + c * across_;
  }

  // The lane's next row of W.
  __device__ void Load(int i) {
    if (left_ > 0) {
      pieces_[i].Load(at_, across_, columns_);
    } else {
      pieces_[i].Clear();
    }
    at_ += row_step_;
    left_ -= down_;
  }

  __device__ void AddRow(int i, const XColumn& x) {
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      const float number = pieces_[i][c];
#pragma unroll
      for (int r = 0; r < kRows; ++r) own_[r][c] += x.at[r] * number;
    }
  }

  const int across_, down_, first_, count_;
  const int64_t begin_, row_step_;
  int columns_, left_;
  const W* at_;
  ColumnPiece<W, kCount, kWhole> pieces_[kLoads];
  float own_[kRows][kCount] = {};
};

}  // namespace pagefuse::cuda
