// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/movement.h"
#include "pagefuse/ops/kernels/cuda/movement_parts.h"
#include "pagefuse/ops/kernels/cuda/strided.h"

namespace pagefuse::cuda {
namespace {

// --- boxes ---

constexpr int kFrom = 0, kTo = 1;

template <typename T>
__global__ void __launch_bounds__(kMovingThreads)
    CopyBoxKernel(const __grid_constant__ Strided<2> box, const T* from, T* to, uint32_t size) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  for (uint32_t i = blockIdx.x * kMovingThreads + threadIdx.x; i < size;
       i += gridDim.x * kMovingThreads) {
    int64_t places[2];
    box.PlacesOf(i, 2, places);
    to[places[kTo]] = from[places[kFrom]];
  }
}

// The widest elements as which the box may be moved: neighbours along the inner axis are joined.
int64_t WidenElements(const CopyBoxParams& params, StridedAxes<2>& box) {
  int64_t width = params.element_size;
  StridedAxes<2>::Axis& inner = box.inner();
  const auto joins = [&] {
    if (width >= 16 || inner.size % 2 != 0) return false;
    if (inner.strides[kFrom] != 1 || inner.strides[kTo] != 1) return false;
    if (!IsAligned(params.from, 2 * width) || !IsAligned(params.to, 2 * width)) return false;
    for (size_t i = 0; i + 1 < box.axes.size(); ++i) {
      if (box.axes[i].strides[kFrom] % 2 != 0 || box.axes[i].strides[kTo] % 2 != 0) return false;
    }
    return true;
  };
  while (joins()) {
    width *= 2;
    inner.size /= 2;
    for (size_t i = 0; i + 1 < box.axes.size(); ++i) {
      for (int64_t& stride : box.axes[i].strides) stride /= 2;
    }
  }
  return width;
}

// --- rows by index ---

// The row of the table that row `k` of the result is, or -1, which `tells` says too.
template <typename Params>
__device__ int64_t RowOf(const Params& p, int64_t k, bool tells) {
  const int64_t i = k % p.count;
  const int64_t index =
      CheckedIndex(IndexAt(p.indices, p.wide_indices, i), p.size, p.errors, i, tells);
  return index < 0 ? -1 : k / p.count * p.size + index;
}

// A block takes a row, or kMovingThreads elements of a long one.
template <typename T>
__global__ void __launch_bounds__(kMovingThreads)
    GatherKernel(const __grid_constant__ GatherParams p, int64_t row_size) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t column = MovedColumn();
  if (column >= row_size) return;
  for (int64_t k = blockIdx.x; k < p.outer * p.count; k += gridDim.x) {
    const int64_t row = RowOf(p, k, column == 0);
    T value = {};
    if (row >= 0) value = static_cast<const T*>(p.from)[row * row_size + column];
    static_cast<T*>(p.to)[k * row_size + column] = value;
  }
}

// --- elements by index ---

constexpr int kElements = 0, kTable = 1;

// Lines along the axis, and steps along it in `elements` and in the table.
struct Lines {
  Strided<2> walk;
  const void* indices;
  bool wide;
  uint32_t lines;
  int64_t length, size, steps[2];
  IndexErrors errors;
};

// A thread takes a line, so that what is written twice comes in order.
template <typename T, bool kScatters>
__global__ void __launch_bounds__(kMovingThreads)
    ElementsKernel(const __grid_constant__ Lines p, T* elements, T* table) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const uint32_t line = blockIdx.x * kMovingThreads + threadIdx.x;
  if (line >= p.lines) return;
  int64_t places[2];
  p.walk.PlacesOf(line, 2, places);
  for (int64_t i = 0; i < p.length; ++i, places[kElements] += p.steps[kElements]) {
    const int64_t k = places[kElements];
    const int64_t index = CheckedIndex(IndexAt(p.indices, p.wide, k), p.size, p.errors, k, true);
    const int64_t at = places[kTable] + index * p.steps[kTable];
    if constexpr (kScatters) {
      if (index >= 0) table[at] = elements[k];
    } else {
      elements[k] = index >= 0 ? table[at] : T{};
    }
  }
}

template <bool kScatters>
Error LaunchElements(const ElementsParams& params, Stream stream) {
  std::vector<int64_t> dims = params.dims, own = DenseStrides(dims), table = params.table_strides;
  Lines p{.indices = params.indices, .wide = params.wide_indices};
  p.length = dims[params.axis];
  p.size = params.size;
  p.errors = params.errors;
  p.steps[kElements] = own[params.axis];
  p.steps[kTable] = table[params.axis];
  for (std::vector<int64_t>* list : {&dims, &own, &table}) list->erase(list->begin() + params.axis);
  const StridedAxes<2> axes(dims, {own, table});
  if (axes.size() == 0 || p.length == 0) return 0;
  if (axes.outer_axes() > 0) return kTooLarge;
  p.walk = axes.Walked();
  p.lines = static_cast<uint32_t>(axes.size());
  const LaunchShape shape{.grid = static_cast<unsigned>(CeilDiv(p.lines, kMovingThreads)),
                          .block = kMovingThreads};
  return ForWidth(params.element_size, [&]<typename T>(T*) {
    return Launch(ElementsKernel<T, kScatters>, shape, stream, p, static_cast<T*>(params.elements),
                  static_cast<T*>(params.table));
  });
}

// --- rows of codes ---

__device__ int CodeAt(const uint8_t* codes, int bits, bool is_signed, int64_t i) {
  if (bits == 8) return codes[i];
  const int64_t bit = i * bits;
  const int code = (codes[bit / 8] >> (bit % 8)) & ((1 << bits) - 1);
  return is_signed && (code >> (bits - 1)) != 0 ? code - (1 << bits) : code;
}

// Element `e` of the table.
template <typename T>
__device__ float DecodedAt(const GatherCodesParams& p, int64_t e) {
  const int64_t column = e % p.after, along = e / p.after % p.length;
  const int64_t before = e / p.after / p.length;
  const int64_t blocks = (p.length + p.block - 1) / p.block;
  const int64_t at = (before * blocks + along / p.block) * p.after + column;
  int zero = p.zero;
  if (p.zeros != nullptr) {
    const int64_t a_byte = 8 / p.bits;
    const int64_t padded = (blocks + a_byte - 1) / a_byte * a_byte;
    const int64_t place = p.zeros_padded ? before * padded + along / p.block : at;
    zero = CodeAt(p.zeros, p.bits, p.is_signed, place);
  }
  const int code = CodeAt(p.codes, p.bits, p.is_signed, e);
  return static_cast<float>(code - zero) * ToFloat(static_cast<const T*>(p.scales)[at]);
}

template <typename T>
__global__ void __launch_bounds__(kMovingThreads)
    GatherCodesKernel(const __grid_constant__ GatherCodesParams p) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t column = MovedColumn();
  if (column >= p.row) return;
  for (int64_t k = blockIdx.x; k < p.outer * p.count; k += gridDim.x) {
    const int64_t row = RowOf(p, k, column == 0);
    const float value = row < 0 ? 0.0f : DecodedAt<T>(p, row * p.row + column);
    static_cast<T*>(p.to)[k * p.row + column] = FromFloat<T>(value);
  }
}

}  // namespace

Error LaunchCopyBox(const CopyBoxParams& params, Stream stream) {
  StridedAxes<2> box(params.dims, {params.from_strides, params.to_strides});
  if (box.size() == 0) return 0;
  const int64_t width = WidenElements(params, box);
  return ForWidth(width, [&]<typename T>(T*) {
    const auto* from = static_cast<const T*>(params.from);
    auto* to = static_cast<T*>(params.to);
    const Strided<2> walked = box.Walked();
    const int64_t size = box.walked_size();
    return box.ForEachWalk([&](const auto& places) {
      return Launch(CopyBoxKernel<T>, {.grid = BlocksFor(size), .block = kMovingThreads}, stream,
                    walked, from + places[kFrom], to + places[kTo], static_cast<uint32_t>(size));
    });
  });
}

Error LaunchGather(const GatherParams& params, Stream stream) {
  const int64_t rows = params.outer * params.count;
  if (rows == 0 || params.row_bytes == 0) return 0;
  const int64_t width = WidthOfRows(params.row_bytes, params.from, params.to);
  const int64_t row_size = params.row_bytes / width;
  if (row_size > kLongestMovedRow) return kTooLarge;
  return ForWidth(width, [&]<typename T>(T*) {
    return Launch(GatherKernel<T>, RowsShape(rows, row_size), stream, params, row_size);
  });
}

Error LaunchGatherElements(const ElementsParams& params, Stream stream) {
  return LaunchElements<false>(params, stream);
}

Error LaunchScatterElements(const ElementsParams& params, Stream stream) {
  return LaunchElements<true>(params, stream);
}

Error LaunchGatherCodes(const GatherCodesParams& params, Stream stream) {
  const int64_t rows = params.outer * params.count;
  if (rows == 0 || params.row == 0) return 0;
  if (params.row > kLongestMovedRow) return kTooLarge;
  return ForFloatType(params.type, [&]<typename T>() {
    return Launch(GatherCodesKernel<T>, RowsShape(rows, params.row), stream, params);
  });
}

}  // namespace pagefuse::cuda
