// SPDX-License-Identifier: Apache-2.0
// SinkAttention in float: a CTA takes up to 16 rows (head of a group, query), four a warp, and one split of their keys, in tiles of 32; values of
// a tile come while its keys are scored, and the next keys while they are summed.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/attention_sums.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/shared_memory.h"
#include "pagefuse/ops/kernels/cuda/sink_attention.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_results.h"

namespace pagefuse::cuda {
namespace {

using tiles::kKeys, tiles::kRows, tiles::kMostWarps;

// How a CTA's shared memory is laid out: tiles of keys and values, queries, weights.
struct SinkShape {
  int size = 0, value_size = 0, warps = 0;

  constexpr int values() const { return 4 * kKeys * tiles::TileStride(size); }
  constexpr int query() const { return values() + 4 * kKeys * tiles::TileStride(value_size); }
  constexpr int weights() const { return query() + 4 * warps * kRows * tiles::QueryStride(size); }
  constexpr int bytes() const { return weights() + 4 * warps * kKeys * kRows; }
};

struct SinkCut {
  int64_t parts = 1;  // CTAs that share the rows of a group
  int splits = 1;     // of the keys
};

// The rows of a group of heads, which share keys, one head's after the other's.
constexpr int64_t GroupRows(const SinkAttention& call) {
  return call.heads / call.groups * call.queries;
}

// What a CTA computes.
struct SinkTask {
  int64_t group;  // among [B, G]
  int64_t row;    // the warp's first one among the group's
  int split;
};
__device__ SinkTask TaskOf(const SinkCut& cut, int warps) {
  SinkTask task;
  task.split = static_cast<int>(blockIdx.x % static_cast<unsigned>(cut.splits));
  const int64_t rest = blockIdx.x / static_cast<unsigned>(cut.splits);
  task.group = rest / cut.parts;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  task.row = (rest % cut.parts * warps + warp) * kRows;
  return task;
}

// Zeros behind rows of a tile, whose vectors are whole.
__device__ void ClearPadding(float* tile, int size) {
  const int stride = tiles::TileStride(size), padding = stride - size;
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * padding;
       i += static_cast<int>(blockDim.x)) {
    tile[i / padding * stride + size + i % padding] = 0;
  }
}

__device__ void LoadQueries(const SinkAttention& call, const SinkTask& task, float* to) {
  const int stride = tiles::QueryStride(call.size);
  const int64_t first = task.group * GroupRows(call) + task.row;
#pragma unroll 1
  for (int i = 0; i < kRows; ++i, to += stride) {
    const bool there = task.row + i < GroupRows(call);
    if (there) LoadRow(call.query + (first + i) * call.size, call.size, to);
    for (int d = (there ? call.size : 0) + LaneId(); d < stride; d += kWarp) to[d] = 0;
  }
  __syncwarp();
}

// Begins to copy `count` rows of keys or of values to a tile.
__device__ void CopyRows(const float* from, int64_t count, int size, float* tile) {
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  for (int k = static_cast<int>(threadIdx.x) / kWarp; k < kKeys && k < count; k += warps) {
    tiles::CopyRow(reinterpret_cast<uint8_t*>(tile + k * tiles::TileStride(size)),
                   reinterpret_cast<const uint8_t*>(from + int64_t{k} * size), 4 * size);
  }
  ptx::CommitCopies();
}

// Where the masks of the warp's rows begin; null where there are no more rows.
struct RowMasks {
  const float* at[kRows];
};
__device__ RowMasks MasksOf(const SinkAttention& call, const SinkTask& task) {
  const int64_t batch = task.group / call.groups, group = task.group % call.groups;
  const int64_t rows = GroupRows(call);
  RowMasks masks;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t row = task.row + i;
    const int64_t head = group * (call.heads / call.groups) + row / call.queries;
    masks.at[i] = row >= rows
                      ? nullptr
                      : call.mask + batch * call.mask_strides[0] + head * call.mask_strides[1] +
                            row % call.queries * call.mask_strides[2];
  }
  return masks;
}

// Scores key `key` of this lane, if it is one; keys that the mask hides are not seen.
template <int chunks>
__device__ void ScoreKey(const SinkAttention& call, const RowMasks& masks, int64_t key,
                         const float* keys, const tiles::SharedTile& shared,
                         tiles::TileWeights& found, tiles::Accumulators<chunks>& sums) {
  float dots[kRows];
  tiles::Dots(shared, keys, call.size, static_cast<int>(threadIdx.x) / kWarp, dots);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    float score = -INFINITY;
    if (key < call.keys && masks.at[i] != nullptr) {
      score = dots[i] * call.scale + masks.at[i][key * call.mask_strides[3]];
    }
    const bool visible = score != -INFINITY;
    found.seen[i] = __ballot_sync(kAllLanes, visible);
    found.weights[i] = sums.Weigh(i, visible, score);
  }
}

template <int chunks>
__device__ void AddValues(const SinkAttention& call, const float* values,
                          const tiles::SharedTile& shared, const tiles::TileWeights& found,
                          tiles::Accumulators<chunks>& sums) {
  float* weights = shared.weights + static_cast<int>(threadIdx.x) / kWarp * (kKeys * kRows);
#pragma unroll
  for (int i = 0; i < kRows; ++i) weights[LaneId() * kRows + i] = found.weights[i];
  __syncwarp();
  if (found.all_see_all()) {
    sums.template Add<true>(weights, values, call.value_size, found.seen);
  } else {
    sums.template Add<false>(weights, values, call.value_size, found.seen);
  }
}

// Keys [begin, end) of a split.
template <int chunks>
__device__ void AttendKeys(const SinkAttention& call, const SinkTask& task, int64_t begin,
                           int64_t end, float* keys, float* values, const tiles::SharedTile& shared,
                           tiles::Accumulators<chunks>& sums) {
  const float* all_keys = call.key + task.group * call.keys * call.size;
  const float* all_values = call.value + task.group * call.keys * call.value_size;
  const auto copy_keys = [&](int64_t first) {
    CopyRows(all_keys + first * call.size, end - first, call.size, keys);
  };
  copy_keys(begin);
  const RowMasks masks = MasksOf(call, task);
  tiles::TileWeights found;
  for (int64_t first = begin; first < end; first += kKeys) {
    CopyRows(all_values + first * call.value_size, end - first, call.value_size, values);
    ptx::WaitForCopies<1>();
    __syncthreads();
    const int64_t key = first + LaneId();
    ScoreKey(call, masks, key < end ? key : call.keys, keys, shared, found, sums);
    __syncthreads();
    copy_keys(first + kKeys);
    ptx::WaitForCopies<1>();
    __syncthreads();
    AddValues(call, values, shared, found, sums);
    __syncthreads();
  }
  ptx::WaitForCopies<0>();
}

template <int chunks>
__global__ void __launch_bounds__(kMostWarps* kWarp, 2)
    SinkAttentionKernel(const __grid_constant__ SinkAttention call,
                        const __grid_constant__ SinkResults results, const SinkCut cut,
                        const SinkShape shape) {
  extern __shared__ float4 sink_shared[];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  auto* base = reinterpret_cast<uint8_t*>(sink_shared);
  auto* keys = reinterpret_cast<float*>(base);
  auto* values = reinterpret_cast<float*>(base + shape.values());
  tiles::SharedTile shared = {};
  shared.query = reinterpret_cast<float*>(base + shape.query());
  shared.weights = reinterpret_cast<float*>(base + shape.weights());
  const SinkTask task = TaskOf(cut, shape.warps);
  const int first = static_cast<int>(threadIdx.x) / kWarp * kRows;
  ClearPadding(keys, call.size);
  LoadQueries(call, task, shared.query + first * tiles::QueryStride(call.size));
  const int64_t count = CeilDiv(CeilDiv(call.keys, kKeys), cut.splits) * kKeys;
  const int64_t begin = min(task.split * count, call.keys), end = min(begin + count, call.keys);
  tiles::Accumulators<chunks> sums;
  sums.Clear();
  if (begin < end) AttendKeys(call, task, begin, end, keys, values, shared, sums);
  // The values' memory is free, and that of the weights.
  const int stride = tiles::TileStride(call.value_size);
  float* o = values + first * stride;
  auto* row_sums = reinterpret_cast<RowSums*>(shared.weights) + first;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    sums.Store(i, call.value_size, o + i * stride);
    if (LaneId() == 0) row_sums[i] = sums.sums[i];
  }
  __syncwarp();
#pragma unroll 1
  for (int i = 0; i < kRows && task.row + i < GroupRows(call); ++i) {
    StoreSinkRow(results, task.group * GroupRows(call) + task.row + i, task.split, row_sums[i],
                 o + i * stride);
  }
}

SinkShape ShapeOf(const SinkAttention& call) {
  const int64_t rows = std::clamp<int64_t>(GroupRows(call), 1, kMostWarps * kRows);
  SinkShape shape{.size = call.size,
                  .value_size = call.value_size,
                  .warps = static_cast<int>(CeilDiv(rows, kRows))};
  while (shape.bytes() > MostShared() && shape.warps > 1) --shape.warps;
  return shape;
}

SinkCut CutOf(const SinkAttention& call, const SinkShape& shape) {
  constexpr int kMostCtas = 8;  // that a multiprocessor has at a time
  const int resident = std::clamp(MostShared() / std::max(shape.bytes(), 1), 1, kMostCtas);
  SinkCut cut;
  cut.parts = CeilDiv(GroupRows(call), shape.warps * kRows);
  cut.splits = SplitsOf({.ctas = call.batch * call.groups * cut.parts,
                         .tiles = CeilDiv(call.keys, kKeys),
                         .slots = int64_t{Multiprocessors()} * resident});
  return cut;
}

SinkResults ResultsOf(const SinkAttention& call, const SinkCut& cut) {
  constexpr float kLog2E = 1.4426950408889634f;
  return {.rows = call.rows(),
          .heads = call.heads,
          .rows_of_head = call.queries,
          .value_size = call.value_size,
          .out = call.out,
          .sink = call.sinks,
          .unit = kLog2E,
          .splits = cut.splits};
}

template <int chunks>
Error LaunchChunksOf(const SinkAttention& call, const SinkResults& results, const SinkCut& cut,
                     const SinkShape& shape, Stream stream) {
  const auto kernel = SinkAttentionKernel<chunks>;
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const Error error = cudaFuncSetAttribute(kernel, attribute, MostShared()); error != 0) {
    return error;
  }
  const int64_t ctas = call.batch * call.groups * cut.parts * cut.splits;
  if (ctas > INT32_MAX) return kTooLarge;
  const LaunchShape launch = {dim3(static_cast<unsigned>(ctas)), dim3(shape.warps * kWarp),
                              static_cast<size_t>(shape.bytes())};
  return Launch(kernel, launch, stream, call, results, cut, shape);
}

bool IsEmpty(const SinkAttention& call) { return call.rows() == 0 || call.value_size == 0; }

}  // namespace

bool HasMemoryForSinkAttention(const SinkAttention& call) {
  return IsEmpty(call) || ShapeOf(call).bytes() <= MostShared();
}

size_t SinkAttentionWorkspace(const SinkAttention& call) {
  return IsEmpty(call) ? 0 : PartialBytes(ResultsOf(call, CutOf(call, ShapeOf(call))));
}

Error LaunchSinkAttention(const SinkAttention& call, void* workspace, Stream stream) {
  if (IsEmpty(call)) return 0;
  if (std::max(call.size, call.value_size) > kLongestSinkRow) return kTooLarge;
  const SinkShape shape = ShapeOf(call);
  const SinkCut cut = CutOf(call, shape);
  SinkResults results = ResultsOf(call, cut);
  PlacePartials(workspace, results);
  Error error = 0;
  if (call.value_size <= 256) {
    error = LaunchChunksOf<2>(call, results, cut, shape, stream);
  } else if (call.value_size <= 512) {
    error = LaunchChunksOf<4>(call, results, cut, shape, stream);
  } else {
    error = LaunchChunksOf<8>(call, results, cut, shape, stream);
  }
  if (error != 0 || results.splits == 1) return error;
  return LaunchSinkJoin(results, stream);
}

}  // namespace pagefuse::cuda
