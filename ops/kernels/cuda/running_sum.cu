// SPDX-License-Identifier: Apache-2.0
// CumSum and CumProd. Where many lines lie side by side, a thread takes a line; else a block of threads takes one, a
// tile of it at a time in shared memory: integers are joined by all its threads, floats by one, in order.
#include <type_traits>

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/running_sum.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {
namespace {

constexpr int kThreads = 128, kEach = 8, kTile = kThreads * kEach;

// What elements are joined in. Integers of either sign are the same modulo 2^n.
template <typename T>
using Wide = std::conditional_t<sizeof(T) == 2, float, T>;

template <typename T>
__device__ Wide<T> Widened(T x) {
  if constexpr (sizeof(T) == 2) {
    return ToFloat(x);
  } else {
    return x;
  }
}

template <typename T>
__device__ T Narrowed(Wide<T> x) {
  if constexpr (sizeof(T) == 2) {
    return FromFloat<T>(x);
  } else {
    return x;
  }
}

template <bool product>
struct Join {
  template <typename W>
  __device__ W operator()(W a, W b) const {
    return product ? a * b : a + b;
  }
  static constexpr int kNone = product ? 1 : 0;  // of no element
};

// Where element i of the walk lies in its line.
__device__ int64_t PlaceOf(const RunningSum& call, int64_t i) {
  return (call.reverse ? call.n - 1 - i : i) * call.inner;
}

// Joins items[0, count) in place to what comes before, and returns what comes before the next.
template <bool product, typename W>
__device__ W JoinInOrder(W before, bool exclusive, int count, W* items) {
#pragma unroll 8
  for (int i = 0; i < count; ++i) {
    const W next = Join<product>()(before, items[i]);
    items[i] = exclusive ? before : next;
    before = next;
  }
  return before;
}

template <typename T, bool product>
__global__ void __launch_bounds__(kThreads) LinesKernel(const __grid_constant__ RunningSum call) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t line = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (line >= call.outer * call.inner) return;
  const int64_t start = line / call.inner * call.n * call.inner + line % call.inner;
  const T* x = static_cast<const T*>(call.x) + start;
  T* y = static_cast<T*>(call.y) + start;
  Wide<T> before = Join<product>::kNone;
  for (int64_t i = 0; i < call.n; i += kEach) {
    const int count = static_cast<int>(min(call.n - i, int64_t{kEach}));
    Wide<T> items[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      items[j] = j < count ? Widened(x[PlaceOf(call, i + j)]) : Wide<T>{0};
    }
    before = JoinInOrder<product>(before, call.exclusive, kEach, items);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if (j < count) y[PlaceOf(call, i + j)] = Narrowed<T>(items[j]);
    }
  }
}

// What comes before this thread's value, in the order of threads, and what all make together.
template <bool product, typename W>
__device__ W JoinBefore(W own, W* warp_totals, W* total) {
  const Join<product> join;
  W sum = own;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const W other = __shfl_up_sync(kAllLanes, sum, distance);
    if (LaneId() >= distance) sum = join(other, sum);
  }
  W before = __shfl_up_sync(kAllLanes, sum, 1);
  if (LaneId() == 0) before = Join<product>::kNone;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (LaneId() == kWarp - 1) warp_totals[warp] = sum;
  __syncthreads();
  W others = Join<product>::kNone;
  *total = Join<product>::kNone;
  for (int w = 0; w < kThreads / kWarp; ++w) {
    if (w == warp) others = *total;
    *total = join(*total, warp_totals[w]);
  }
  return join(others, before);
}

// The tile of one block, from `before` on. Returns what comes before the next; of floats, to thread 0.
template <bool product, typename W>
__device__ W JoinTile(W before, bool exclusive, int count, W* tile, W* warp_totals) {
  if constexpr (std::is_integral_v<W>) {
    W* own = tile + threadIdx.x * kEach;
    W sum = Join<product>::kNone, total;
    for (int j = 0; j < kEach; ++j) sum = Join<product>()(sum, own[j]);
    const W first = JoinBefore<product>(sum, warp_totals, &total);
    JoinInOrder<product>(Join<product>()(before, first), exclusive, kEach, own);
    return Join<product>()(before, total);
  } else {
    return threadIdx.x == 0 ? JoinInOrder<product>(before, exclusive, count, tile) : before;
  }
}

template <typename T, bool product>
__global__ void __launch_bounds__(kThreads) TilesKernel(const __grid_constant__ RunningSum call) {
  __shared__ Wide<T> tile[kTile];
  __shared__ Wide<T> warp_totals[kThreads / kWarp];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t line = blockIdx.x;
  const int64_t start = line / call.inner * call.n * call.inner + line % call.inner;
  const T* x = static_cast<const T*>(call.x) + start;
  T* y = static_cast<T*>(call.y) + start;
  Wide<T> before = Join<product>::kNone;
  for (int64_t first = 0; first < call.n; first += kTile) {
    const int count = static_cast<int>(min(call.n - first, int64_t{kTile}));
    for (int i = static_cast<int>(threadIdx.x); i < kTile; i += kThreads) {
      tile[i] = i < count ? Widened(x[PlaceOf(call, first + i)]) : Wide<T>{0};
    }
    __syncthreads();
    before = JoinTile<product>(before, call.exclusive, count, tile, warp_totals);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
      y[PlaceOf(call, first + i)] = Narrowed<T>(tile[i]);
    }
    __syncthreads();
  }
}

template <typename T, bool product>
Error LaunchOf(const RunningSum& call, Stream stream) {
  constexpr int64_t kSideBySide = 8;  // lines that make whole accesses together
  const int64_t lines = call.outer * call.inner;
  if (lines > INT32_MAX) return kTooLarge;
  if (call.inner < kSideBySide) {
    return Launch(TilesKernel<T, product>,
                  {.grid = static_cast<unsigned>(lines), .block = kThreads}, stream, call);
  }
  return Launch(LinesKernel<T, product>,
                {.grid = static_cast<unsigned>(CeilDiv(lines, kThreads)), .block = kThreads},
                stream, call);
}

template <typename T>
Error LaunchFor(const RunningSum& call, Stream stream) {
  return call.product ? LaunchOf<T, true>(call, stream) : LaunchOf<T, false>(call, stream);
}

}  // namespace

Error LaunchRunningSum(const RunningSum& call, Stream stream) {
  if (call.outer * call.n * call.inner == 0) return 0;
  switch (call.type) {
    case DataType::kDouble:
      return LaunchFor<double>(call, stream);
    case DataType::kInt32:
    case DataType::kUint32:
      return LaunchFor<uint32_t>(call, stream);
    case DataType::kInt64:
    case DataType::kUint64:
      return LaunchFor<uint64_t>(call, stream);
    default:
      return ForFloatType(call.type,
                          [&]<typename T>() -> Error { return LaunchFor<T>(call, stream); });
  }
}

}  // namespace pagefuse::cuda
