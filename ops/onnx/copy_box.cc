// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/onnx/strided_loop.h"

namespace pagefuse::onnx_ops {
namespace {

// Side of the square tiles by which planes are transposed: two tiles of 8-byte elements take half
// of a 32 KiB L1 cache.
constexpr int64_t kTile = 32;

// Drops dims of size 1 and joins neighbours that both sides walk as one.
void Simplify(StridedBox& box) {
  size_t rank = 0;
  for (size_t i = 0; i < box.dims.size(); ++i) {
    const int64_t dim = box.dims[i];
    const int64_t from = box.from_strides[i], to = box.to_strides[i];
    if (dim == 1) continue;
    const bool joins = rank > 0 && box.from_strides[rank - 1] == from * dim &&
                       box.to_strides[rank - 1] == to * dim;
    if (!joins) ++rank;
    box.dims[rank - 1] = joins ? box.dims[rank - 1] * dim : dim;
    box.from_strides[rank - 1] = from;
    box.to_strides[rank - 1] = to;
  }
  box.dims.resize(rank);
  box.from_strides.resize(rank);
  box.to_strides.resize(rank);
}

struct Dimension {
  int64_t size = 1;
  int64_t from = 0;  // strides
  int64_t to = 0;
};

Dimension Take(StridedBox& box, size_t axis) {
  const Dimension taken{box.dims[axis], box.from_strides[axis], box.to_strides[axis]};
  box.dims.erase(box.dims.begin() + axis);
  box.from_strides.erase(box.from_strides.begin() + axis);
  box.to_strides.erase(box.to_strides.begin() + axis);
  return taken;
}

template <typename T>
void CopyRow(const Dimension& row, const T* from, T* to) {
  if (row.from == 1 && row.to == 1) {
    std::memcpy(to, from, row.size * sizeof(T));
  } else if (row.from == 0 && row.to == 1) {
    std::fill_n(to, row.size, *from);
  } else {
    for (int64_t i = 0; i < row.size; ++i) to[i * row.to] = from[i * row.from];
  }
}

// Four by four elements of 32 bits: rows become columns.
void TransposeFour(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  // Of GCC and Clang: what every processor with vectors of 16 bytes has needs no dispatch.
  using Four = uint32_t __attribute__((vector_size(16)));
  Four rows[4];
  for (int64_t i = 0; i < 4; ++i) std::memcpy(&rows[i], from + i * from_stride, sizeof(Four));
  const Four low01 = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const Four high01 = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const Four low23 = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const Four high23 = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  const Four columns[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                           __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                           __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                           __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (int64_t i = 0; i < 4; ++i) std::memcpy(to + i * to_stride, &columns[i], sizeof(Four));
}

// Rows of `across` (neighbours in the source) become columns: reads and writes stay inside a tile.
template <typename T>
void CopyTile(const Dimension& across, const Dimension& row, const T* from, T* to) {
  int64_t done = 0;  // of row, for whole fours of across
  const int64_t fours = across.size / 4 * 4;
  if constexpr (sizeof(T) == sizeof(uint32_t)) {
    for (; row.to == 1 && done + 4 <= row.size; done += 4) {
      for (int64_t r = 0; r < fours; r += 4) {
        TransposeFour(reinterpret_cast<const uint32_t*>(from + r + done * row.from), row.from,
                      reinterpret_cast<uint32_t*>(to + r * across.to + done), across.to);
      }
    }
  }
  for (int64_t r = 0; r < across.size; ++r) {
    for (int64_t i = r < fours ? done : 0; i < row.size; ++i) {
      to[r * across.to + i * row.to] = from[r * across.from + i * row.from];
    }
  }
}

// `across`: the axis along which source elements are neighbours, where that is not the
// destination's.
template <typename T>
void CopyPlanes(const StridedBox& outer, const Dimension& across, const Dimension& row,
                const T* from, T* to) {
  const int64_t bands = (across.size + kTile - 1) / kTile;
  StridedBox tasks = outer;
  tasks.dims.push_back(bands);
  tasks.from_strides.push_back(kTile * across.from);
  tasks.to_strides.push_back(kTile * across.to);
  const int64_t count = Product(tasks.dims, 0, tasks.dims.size());
  const int64_t item_bytes = std::max<int64_t>(1, kTile * row.size);
  ParallelFor(count, item_bytes, [&](int64_t begin, int64_t end) {
    int64_t task = begin;
    ForEachPoint<2>(
        tasks.dims, {tasks.from_strides, tasks.to_strides}, {begin, end}, [&](const auto& offset) {
          const auto [from_offset, to_offset] = offset;
          Dimension band = across;
          band.size = std::min(kTile, across.size - task++ % bands * kTile);
          for (int64_t i = 0; i < row.size; i += kTile) {
            const Dimension part{std::min(kTile, row.size - i), row.from, row.to};
            CopyTile(band, part, from + from_offset + i * row.from, to + to_offset + i * row.to);
          }
        });
  });
}

template <typename T>
void Copy(StridedBox box, const T* from, T* to) {
  Dimension row{1, 1, 1};
  if (!box.dims.empty()) row = Take(box, box.dims.size() - 1);
  if (row.from != 1 && row.from != 0) {
    for (size_t axis = 0; axis < box.dims.size(); ++axis) {
      if (box.from_strides[axis] != 1) continue;
      const Dimension across = Take(box, axis);
      return CopyPlanes(box, across, row, from, to);
    }
  }
  const int64_t count = Product(box.dims, 0, box.dims.size());
  ParallelFor(count, row.size, [&](int64_t begin, int64_t end) {
    ForEachPoint<2>(box.dims, {box.from_strides, box.to_strides}, {begin, end},
                    [&](const auto& offset) { CopyRow(row, from + offset[0], to + offset[1]); });
  });
}

}  // namespace

void CopyBox(StridedBox box, int64_t element_size, const void* from, void* to) {
  for (int64_t dim : box.dims) {
    if (dim == 0) return;
  }
  Simplify(box);
  DispatchSize(element_size, [&]<typename T>(T*) {
    Copy<T>(std::move(box), static_cast<const T*>(from), static_cast<T*>(to));
  });
}

}  // namespace pagefuse::onnx_ops
