// SPDX-License-Identifier: Apache-2.0
// The plain kernel of SparseMlaAttention, for every case: tiles of 32 rows are decoded to floats in shared memory, once for all heads of a
// CTA, and scored and summed as in attention_sums.h. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/attention_sums.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_results.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_rows.h"

namespace pagefuse::cuda::latent {

using tiles::kKeys, tiles::kRows, tiles::kMostWarps;
inline constexpr int kPlainHeads = kMostWarps * kRows;  // of a CTA at most

// How a CTA's shared memory is laid out.
struct PlainShape {
  int head_size = 0, warps = 0;
  // Bytes of a row in the cache, copied while the tile before is computed; 0: there is no room.
  int row_bytes = 0;

  constexpr int tile_floats() const { return kKeys * tiles::TileStride(head_size); }
  constexpr int raw_stride() const { return (row_bytes + 15) / 16 * 16; }
  // Offsets.
  constexpr int raw() const { return 4 * tile_floats(); }
  constexpr int query() const { return raw() + kKeys * raw_stride(); }
  constexpr int weights() const {
    return query() + 4 * warps * kRows * tiles::QueryStride(head_size);
  }
  constexpr int bytes() const { return weights() + 4 * warps * kKeys * kRows; }
};

// How a call is cut: a CTA takes one split of a token's rows for up to kPlainHeads heads, four a warp.
struct PlainCut {
  int groups = 1;  // of heads
  int splits = 1;
};

struct PlainShared {
  uint8_t* raw;
  tiles::SharedTile tile;  // of which only what sums need
};
__device__ inline PlainShared PlacePlain(const PlainShape& shape) {
  extern __shared__ float4 latent_shared[];
  auto* base = reinterpret_cast<uint8_t*>(latent_shared);
  PlainShared shared = {};
  shared.raw = base + shape.raw();
  shared.tile.tile = reinterpret_cast<float*>(base);
  shared.tile.query = reinterpret_cast<float*>(base + shape.query());
  shared.tile.weights = reinterpret_cast<float*>(base + shape.weights());
  return shared;
}

// Queries of the warp's heads, from `head` on, as floats; zeros where there are no more heads.
__device__ inline void LoadQueries(const SparseMla& call, int64_t token, int64_t head,
                                   const PlainShared& shared) {
  const int n = call.head_size, stride = tiles::QueryStride(n);
  float* to = shared.tile.query + static_cast<int>(threadIdx.x) / kWarp * kRows * stride;
#pragma unroll 1
  for (int i = 0; i < kRows; ++i, ++head, to += stride) {
    const int64_t at = (token * call.heads + head) * n;
    const bool there = head < call.heads;
    if (there && call.query_type == DataType::kFloat16) {
      LoadRow(static_cast<const Float16*>(call.q) + at, n, to);
    } else if (there && call.query_type == DataType::kBfloat16) {
      LoadRow(static_cast<const Bfloat16*>(call.q) + at, n, to);
    } else if (there) {
      LoadRow(static_cast<const float*>(call.q) + at, n, to);
    }
    for (int d = (there ? n : 0) + LaneId(); d < stride; d += kWarp) to[d] = 0;
  }
  __syncwarp();
}

// Begins to copy the rows of a tile that this warp will decode. `row` is that of the lane's place.
__device__ inline void CopyRows(const PlainShape& shape, const RowAddress& row,
                                const PlainShared& shared) {
  if (shape.row_bytes == 0) return;
#pragma unroll 1
  for (int k = static_cast<int>(threadIdx.x) / kWarp; k < kKeys; k += shape.warps) {
    const uint8_t* from = OfLane(row.data, k);
    if (from != nullptr) tiles::CopyRow(shared.raw + k * shape.raw_stride(), from, shape.row_bytes);
  }
  ptx::CommitCopies();
}

// Decodes them.
__device__ inline void DecodeRows(const SparseMla& call, const PlainShape& shape,
                                  const RowAddress& row, const PlainShared& shared) {
  const int stride = tiles::TileStride(call.head_size);
  ptx::WaitForCopies<0>();
  __syncwarp();
#pragma unroll 1
  for (int k = static_cast<int>(threadIdx.x) / kWarp; k < kKeys; k += shape.warps) {
    const uint8_t* data = OfLane(row.data, k);
    const uint8_t* scale = OfLane(row.scale, k);
    if (data == nullptr) continue;
    if (shape.row_bytes != 0) data = shared.raw + k * shape.raw_stride();
    float* to = shared.tile.tile + k * stride;
    DecodeLatentRow(call, data, scale, to);
    for (int d = call.head_size + LaneId(); d < stride; d += kWarp) to[d] = 0;
  }
  __syncwarp();  // rows are read before the next ones are copied
}

// Adds a decoded tile, of which this lane has row `present`.
template <int chunks>
__device__ void AddRows(const SparseMla& call, bool present, const PlainShared& shared,
                        tiles::Accumulators<chunks>& sums) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float dots[kRows];
  tiles::Dots(shared.tile, shared.tile.tile, call.head_size, warp, dots);
  const unsigned there = __ballot_sync(kAllLanes, present);
  const unsigned seen[kRows] = {there, there, there, there};
  float* weights = shared.tile.weights + warp * (kKeys * kRows);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float score = present ? dots[i] * call.scale : 0;
    weights[LaneId() * kRows + i] = sums.Weigh(i, present, score);
  }
  __syncwarp();
  if (there == kAllLanes) {
    sums.template Add<true>(weights, shared.tile.tile, call.head_size, seen);
  } else {
    sums.template Add<false>(weights, shared.tile.tile, call.head_size, seen);
  }
}

template <int chunks>
__device__ void AttendPlaces(const SparseMla& call, const PlainShape& shape, const SeenRows& seen,
                             Places places, const PlainShared& shared,
                             tiles::Accumulators<chunks>& sums) {
  const auto row_at = [&](int first) -> RowAddress {
    const int place = first + LaneId();
    if (place >= places.end) return {};
    return RowOfEntry(call, seen, place, EntryAt(call, seen, place));
  };
  if (places.begin >= places.end) return;
  for (RowSums& row : sums.sums) row.max = kLeastScore;
  RowAddress row = row_at(places.begin);
  CopyRows(shape, row, shared);
  for (int first = places.begin; first < places.end; first += kKeys) {
    DecodeRows(call, shape, row, shared);
    __syncthreads();
    const bool present = row.data != nullptr;
    row = row_at(first + kKeys);
    CopyRows(shape, row, shared);
    AddRows(call, present, shared, sums);
    __syncthreads();
  }
  ptx::WaitForCopies<0>();
}

template <int chunks>
__global__ void __launch_bounds__(kMostWarps* kWarp, 2)
    PlainKernel(const __grid_constant__ SparseMla call, const __grid_constant__ SinkResults results,
                const PlainCut cut, const PlainShape shape) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  if (blockIdx.x == 0 && call.is_dense) CheckStarts(call);
  // Groups of heads read the same rows: they are neighbours.
  const int group = static_cast<int>(blockIdx.x % static_cast<unsigned>(cut.groups));
  const unsigned rest = blockIdx.x / static_cast<unsigned>(cut.groups);
  const int split = static_cast<int>(rest % static_cast<unsigned>(cut.splits));
  const auto token = static_cast<int>(rest / static_cast<unsigned>(cut.splits));
  const int first = static_cast<int>(threadIdx.x) / kWarp * kRows;  // of the CTA's heads
  const int64_t head = int64_t{group} * (shape.warps * kRows) + first;
  const PlainShared shared = PlacePlain(shape);
  LoadQueries(call, token, head, shared);
  tiles::Accumulators<chunks> sums;
  sums.Clear();
  const SeenRows seen = RowsOfToken(call, token);
  AttendPlaces(call, shape, seen, SplitOf(seen, cut.splits, split), shared, sums);
  // The tile's memory is free, and that of the weights.
  const int stride = tiles::TileStride(call.head_size);
  float* o = shared.tile.tile + first * stride;
  auto* row_sums = reinterpret_cast<RowSums*>(shared.tile.weights) + first;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    sums.Store(i, call.value_size, o + i * stride);
    if (LaneId() == 0) row_sums[i] = sums.sums[i];
  }
  __syncwarp();
#pragma unroll 1
  for (int i = 0; i < kRows && head + i < call.heads; ++i) {
    StoreSinkRow(results, int64_t{token} * call.heads + head + i, split, row_sums[i],
                 o + i * stride);
  }
}

}  // namespace pagefuse::cuda::latent
