// SPDX-License-Identifier: Apache-2.0
// What kernels that copy elements by index share. Device code, and their launches.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/index_errors.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {

inline constexpr int kMovingThreads = 256;
// The input of the node that indices are.
inline constexpr int kIndicesInput = 1;

// Calls f(static_cast<T*>(nullptr)) with what moves 16, 8, 4, 2 or 1 bytes at once.
template <typename F>
Error ForWidth(int64_t bytes, const F& f) {
  switch (bytes) {
    case 16:
      return f(static_cast<uint4*>(nullptr));
    case 8:
      return f(static_cast<uint2*>(nullptr));
    case 4:
      return f(static_cast<uint32_t*>(nullptr));
    case 2:
      return f(static_cast<uint16_t*>(nullptr));
    case 1:
      return f(static_cast<uint8_t*>(nullptr));
    default:
      return kTooLarge;
  }
}

// The widest elements as which rows of so many bytes, one behind the other, may be moved.
inline int64_t WidthOfRows(int64_t row_bytes, const void* from, const void* to) {
  int64_t width = 16;
  while (row_bytes % width != 0 || !IsAligned(from, width) || !IsAligned(to, width)) width /= 2;
  return width;
}

// Blocks for so many threads' work; those that a device does not hold at once take more than one each.
inline unsigned BlocksFor(int64_t size) {
  return static_cast<unsigned>(std::min<int64_t>(CeilDiv(size, kMovingThreads), 1 << 16));
}

// Rows of elements: blockIdx.x strides over rows, and blockIdx.y are the blocks of a row.
inline constexpr int64_t kLongestMovedRow = int64_t{65535} * kMovingThreads;
inline LaunchShape RowsShape(int64_t rows, int64_t row_size) {
  const int64_t threads = std::min<int64_t>(CeilDiv(row_size, 32) * 32, kMovingThreads);
  constexpr int64_t kMostRows = (int64_t{1} << 31) - 1;
  return {.grid = dim3(static_cast<unsigned>(std::min(rows, kMostRows)),
                       static_cast<unsigned>(CeilDiv(row_size, threads))),
          .block = dim3(static_cast<unsigned>(threads))};
}

#ifdef __CUDACC__

// The column of this thread in a grid of RowsShape.
__device__ inline int64_t MovedColumn() { return int64_t{blockIdx.y} * blockDim.x + threadIdx.x; }

__device__ inline int64_t IndexAt(const void* indices, bool wide, int64_t i) {
  return wide ? static_cast<const int64_t*>(indices)[i] : static_cast<const int32_t*>(indices)[i];
}

// Index `given`, which is element i of the indices, of `size`: negative ones count from the end. -1 if it is out of
// range, which `tells` says too.
__device__ inline int64_t CheckedIndex(int64_t given, int64_t size, const IndexErrors& errors,
                                       int64_t i, bool tells) {
  const int64_t index = given < 0 ? given + size : given;
  if (index >= 0 && index < size) return index;
  if (tells) errors.Tell(kIndicesInput, i, given);
  return -1;
}

#endif  // __CUDACC__

}  // namespace pagefuse::cuda
