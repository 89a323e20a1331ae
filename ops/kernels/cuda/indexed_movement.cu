// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <type_traits>

#include "pagefuse/ops/kernels/cuda/indexed_movement.h"
#include "pagefuse/ops/kernels/cuda/movement_parts.h"

namespace pagefuse::cuda {
namespace {

// --- rows by tuples of indices ---

// -1 if there is none, which `tells` says too.
__device__ int64_t RowOf(const IndexTuples& p, int64_t k, bool tells) {
  int64_t row = k / p.batch_count * p.batch_rows;
  bool there = true;
  for (int i = 0; i < p.depth; ++i) {
    const int64_t at = k * p.depth + i;
    const int64_t index = CheckedIndex(p.indices[at], p.sizes[i], p.errors, at, tells);
    there = there && index >= 0;
    row += index * p.strides[i];
  }
  return there ? row : -1;
}

template <typename T>
__global__ void __launch_bounds__(kMovingThreads)
    GatherTuplesKernel(const __grid_constant__ GatherTuplesParams p, int64_t row_size) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t column = MovedColumn();
  if (column >= row_size) return;
  for (int64_t k = blockIdx.x; k < p.tuples.count; k += gridDim.x) {
    const int64_t row = RowOf(p.tuples, k, column == 0);
    T value = {};
    if (row >= 0) value = static_cast<const T*>(p.table)[row * row_size + column];
    static_cast<T*>(p.to)[k * row_size + column] = value;
  }
}

// The last tuple that names each row.
__global__ void __launch_bounds__(kMovingThreads)
    LastTuplesKernel(const __grid_constant__ IndexTuples p, int32_t* last) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  for (int64_t k = int64_t{blockIdx.x} * kMovingThreads + threadIdx.x; k < p.count;
       k += int64_t{gridDim.x} * kMovingThreads) {
    const int64_t row = RowOf(p, k, true);
    if (row >= 0) atomicMax(last + row, static_cast<int32_t>(k));
  }
}

template <typename T>
__global__ void __launch_bounds__(kMovingThreads)
    ScatterTuplesKernel(const __grid_constant__ ScatterTuplesParams p, const int32_t* last,
                        int64_t row_size) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t column = MovedColumn();
  if (column >= row_size) return;
  for (int64_t k = blockIdx.x; k < p.tuples.count; k += gridDim.x) {
    const int64_t row = RowOf(p.tuples, k, false);
    if (row < 0 || last[row] != k) continue;
    static_cast<T*>(p.table)[row * row_size + column] =
        static_cast<const T*>(p.from)[k * row_size + column];
  }
}

// --- tensors of places ---

// element(i) at every place i.
template <typename T, typename F>
__global__ void __launch_bounds__(kMovingThreads)
    PlacesKernel(T* to, int64_t count, const __grid_constant__ F element) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  for (int64_t i = int64_t{blockIdx.x} * kMovingThreads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kMovingThreads) {
    to[i] = element.At(i);
  }
}

template <typename T, typename F>
Error LaunchPlaces(void* to, int64_t count, const F& element, Stream stream) {
  if (count == 0) return 0;
  const LaunchShape shape{.grid = BlocksFor(count), .block = kMovingThreads};
  return Launch(PlacesKernel<T, F>, shape, stream, static_cast<T*>(to), count, element);
}

template <typename T>
struct SameElement {
  T value;
  __device__ T At(int64_t) const { return value; }
};

// T, and what it is computed as.
template <typename T>
struct CountedElement {
  using Wide = std::conditional_t<std::is_integral_v<T> || std::is_same_v<T, double>, T, float>;
  Wide start, delta;

  __device__ T At(int64_t i) const {
    if constexpr (std::is_same_v<T, double>) {
      return __dadd_rn(start, __dmul_rn(static_cast<double>(i), delta));
    } else if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;  // which wraps
      return static_cast<T>(static_cast<Unsigned>(start) +
                            static_cast<Unsigned>(i) * static_cast<Unsigned>(delta));
    } else {
      return FromFloat<T>(__fadd_rn(start, __fmul_rn(static_cast<float>(i), delta)));
    }
  }
};

template <typename T>
Error LaunchRangeOf(const RangeParams& p, Stream stream) {
  using Wide = typename CountedElement<T>::Wide;
  CountedElement<T> element;
  if constexpr (std::is_integral_v<T>) {
    element = {static_cast<T>(p.int_start), static_cast<T>(p.int_delta)};
  } else {
    element = {static_cast<Wide>(p.start), static_cast<Wide>(p.delta)};
  }
  return LaunchPlaces<T>(p.to, p.count, element, stream);
}

template <typename T>
struct TriangleElement {
  const T* from;
  int64_t rows, columns, k;
  bool upper;

  __device__ T At(int64_t i) const {
    const int64_t column = i % columns, diagonal = i / columns % rows + k;
    return (upper ? column >= diagonal : column <= diagonal) ? from[i] : T{};
  }
};

template <typename T>
struct OneHotElement {
  const void* indices;
  DataType type;
  const T* values;
  int64_t depth, inner;

  // As Cast makes it: NaN becomes 0. One that no depth has for what is too far.
  __device__ int64_t IndexOf(int64_t i) const {
    if (type != DataType::kFloat) return IndexAt(indices, type == DataType::kInt64, i);
    const float index = static_cast<const float*>(indices)[i];
    if (index != index) return 0;
    constexpr float kFar = 0x1p62f;
    return fabsf(index) < kFar ? static_cast<int64_t>(index) : INT64_MAX;
  }
  __device__ T At(int64_t i) const {
    const int64_t place = i / inner % depth, index = IndexOf(i / inner / depth * inner + i % inner);
    return values[(index < 0 ? index + depth : index) == place ? 1 : 0];
  }
};

}  // namespace

Error LaunchGatherTuples(const GatherTuplesParams& params, Stream stream) {
  if (params.tuples.count == 0 || params.row_bytes == 0) return 0;
  const int64_t width = WidthOfRows(params.row_bytes, params.table, params.to);
  const int64_t row_size = params.row_bytes / width;
  if (row_size > kLongestMovedRow || params.tuples.depth > kMostTupleIndices) return kTooLarge;
  return ForWidth(width, [&]<typename T>(T*) {
    return Launch(GatherTuplesKernel<T>, RowsShape(params.tuples.count, row_size), stream, params,
                  row_size);
  });
}

size_t ScatterTuplesScratchBytes(const ScatterTuplesParams& params) {
  return static_cast<size_t>(params.table_rows) * sizeof(int32_t);
}

Error LaunchScatterTuples(const ScatterTuplesParams& params, Stream stream) {
  const IndexTuples& tuples = params.tuples;
  if (tuples.count == 0 || params.row_bytes == 0) return 0;
  const int64_t width = WidthOfRows(params.row_bytes, params.from, params.table);
  const int64_t row_size = params.row_bytes / width;
  if (row_size > kLongestMovedRow || tuples.depth > kMostTupleIndices || tuples.count > INT32_MAX) {
    return kTooLarge;
  }
  auto* last = static_cast<int32_t*>(params.scratch);
  Error error = LaunchPlaces<int32_t>(last, params.table_rows, SameElement<int32_t>{-1}, stream);
  if (error != 0) return error;
  error = Launch(LastTuplesKernel, {.grid = BlocksFor(tuples.count), .block = kMovingThreads},
                 stream, tuples, last);
  if (error != 0) return error;
  return ForWidth(width, [&]<typename T>(T*) {
    return Launch(ScatterTuplesKernel<T>, RowsShape(tuples.count, row_size), stream, params, last,
                  row_size);
  });
}

Error LaunchFill(const FillParams& params, Stream stream) {
  // As wide elements as hold whole ones.
  const int64_t bytes = params.count * params.element_size;
  const int64_t width = WidthOfRows(bytes, params.to, params.to);
  ElementBytes pattern = params.value;
  for (int64_t at = params.element_size; at < 16; at += params.element_size) {
    std::memcpy(pattern.bytes + at, params.value.bytes, static_cast<size_t>(params.element_size));
  }
  return ForWidth(width, [&]<typename T>(T*) {
    SameElement<T> element;
    std::memcpy(&element.value, pattern.bytes, sizeof(T));
    return LaunchPlaces<T>(params.to, bytes / width, element, stream);
  });
}

Error LaunchRange(const RangeParams& params, Stream stream) {
  switch (params.type) {
    case DataType::kDouble:
      return LaunchRangeOf<double>(params, stream);
    case DataType::kInt16:
      return LaunchRangeOf<int16_t>(params, stream);
    case DataType::kInt32:
      return LaunchRangeOf<int32_t>(params, stream);
    case DataType::kInt64:
      return LaunchRangeOf<int64_t>(params, stream);
    default:
      return ForFloatType(params.type,
                          [&]<typename T>() { return LaunchRangeOf<T>(params, stream); });
  }
}

Error LaunchTriangle(const TriangleParams& params, Stream stream) {
  const int64_t count = params.matrices * params.rows * params.columns;
  return ForWidth(params.element_size, [&]<typename T>(T*) {
    const TriangleElement<T> element{static_cast<const T*>(params.from), params.rows,
                                     params.columns, params.k, params.upper};
    return LaunchPlaces<T>(params.to, count, element, stream);
  });
}

Error LaunchOneHot(const OneHotParams& params, Stream stream) {
  const int64_t count = params.outer * params.depth * params.inner;
  return ForWidth(params.element_size, [&]<typename T>(T*) {
    const OneHotElement<T> element{params.indices, params.index_type,
                                   static_cast<const T*>(params.values), params.depth,
                                   params.inner};
    return LaunchPlaces<T>(params.to, count, element, stream);
  });
}

}  // namespace pagefuse::cuda
