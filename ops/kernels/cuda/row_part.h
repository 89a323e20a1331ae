// SPDX-License-Identifier: Apache-2.0
// A block's part of a row of floats, as keys: from shared memory where that holds them, else from memory each time. Device code
// alone.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {

// The elements of a row that a block has: pieces [begin, end) of four, which are aligned in memory.
struct RowPart {
  const float* from = nullptr;  // the row
  uint32_t count = 0;           // of its elements
  uint32_t skipped = 0;         // places of the first piece in front of the row
  uint32_t begin = 0, end = 0;
  uint4* keys = nullptr;  // of the pieces, in shared memory; of what is not there 0

  __device__ RowPart(const float* row, uint32_t elements, int block, int blocks, uint4* shared)
      : from(row), count(elements), keys(shared) {
    skipped = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row) / sizeof(float) % 4);
    const uint32_t pieces = (skipped + count + 3) / 4;
    const uint32_t of_block =
        (pieces + static_cast<uint32_t>(blocks) - 1) / static_cast<uint32_t>(blocks);
    begin = min(static_cast<uint32_t>(block) * of_block, pieces);
    end = min(begin + of_block, pieces);
  }
  // Of the first element of a piece; in front of the row more than any.
  __device__ uint32_t IndexOf(uint32_t piece) const { return 4 * piece - skipped; }
};

// Larger for larger numbers, and not 0; those of either zero are equal, NaN is as small as -inf.
__device__ inline uint32_t KeyOfFloat(float x) {
  constexpr uint32_t kSign = 0x80000000u, kMinusInfinity = 0xFF800000u;
  const uint32_t bits = __float_as_uint(__fadd_rn(fmaxf(x, __uint_as_float(kMinusInfinity)), 0.0f));
  return bits ^ (static_cast<uint32_t>(static_cast<int>(bits) >> 31) | kSign);
}

// The key of an element: more than 0.
using KeyFunction = uint32_t(float);

// One piece, some of which is not there.
template <KeyFunction kKeyOf>
__device__ uint4 LoadPiece(const RowPart& part, uint32_t piece) {
  const uint32_t index = part.IndexOf(piece);
  const auto key = [&](uint32_t i) { return i < part.count ? kKeyOf(part.from[i]) : 0; };
  return {key(index), key(index + 1), key(index + 2), key(index + 3)};
}

// Keys of pieces from memory, `first` and each `step` behind the one before: of what is not there 0.
template <KeyFunction kKeyOf, int kBatch, class Step>
__device__ void LoadPieces(const RowPart& part, uint32_t first, Step step, uint4 (&keys)[kBatch]) {
  float4 pieces[kBatch] = {};
  bool whole[kBatch];
#pragma unroll
  for (int j = 0; j < kBatch; ++j) {
    const uint32_t piece = first + j * step, index = part.IndexOf(piece);
    whole[j] = piece < part.end && index < part.count && part.count - index >= 4;
    if (whole[j]) pieces[j] = *reinterpret_cast<const float4*>(part.from + index);
  }
#pragma unroll
  for (int j = 0; j < kBatch; ++j) {
    const uint32_t piece = first + j * step;
    const float4& x = pieces[j];
    keys[j] = {0, 0, 0, 0};
    if (whole[j]) {
      keys[j] = {kKeyOf(x.x), kKeyOf(x.y), kKeyOf(x.z), kKeyOf(x.w)};
    } else if (piece < part.end) {
      keys[j] = LoadPiece<kKeyOf>(part, piece);
    }
  }
}

// The same from shared memory, where that holds the part.
template <KeyFunction kKeyOf, int kBatch, class Step>
__device__ void ReadPieces(const RowPart& part, uint32_t first, Step step, uint4 (&keys)[kBatch]) {
  if (part.keys == nullptr) return LoadPieces<kKeyOf>(part, first, step, keys);
#pragma unroll
  for (int j = 0; j < kBatch; ++j) {
    const uint32_t piece = first + j * step;
    keys[j] = piece < part.end ? part.keys[piece - part.begin] : uint4{0, 0, 0, 0};
  }
}

// Reads the block's part into shared memory. All threads see it.
__device__ inline void LoadKeys(const RowPart& part) {
  constexpr int kBatch = 4;  // pieces that are on their way at a time
  for (uint32_t first = part.begin + threadIdx.x; first < part.end; first += kBatch * blockDim.x) {
    uint4 keys[kBatch];
    LoadPieces<KeyOfFloat>(part, first, blockDim.x, keys);
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const uint32_t piece = first + j * blockDim.x;
      if (piece < part.end) part.keys[piece - part.begin] = keys[j];
    }
  }
  __syncthreads();
}

// f(keys, index of the first) of the block's pieces, some of them behind it, with keys of 0: `kBatch` are on their way at a time.
// Of lines of memory one of `every` is taken. The lanes of a warp come together.
template <int kBatch, class F>
__device__ void ForPieceKeys(const RowPart& part, uint32_t every, const F& f) {
  constexpr uint32_t kLine = 8;  // pieces
  const auto lane = static_cast<uint32_t>(LaneId());
  const uint32_t step = blockDim.x * every, of_lane = lane / kLine * kLine * every + lane % kLine;
  for (uint32_t begin = part.begin + threadIdx.x / kWarp * kWarp * every; begin < part.end;
       begin += kBatch * step) {
    const uint32_t first = begin + of_lane;
    uint4 keys[kBatch];
    ReadPieces<KeyOfFloat>(part, first, step, keys);
#pragma unroll
    for (int j = 0; j < kBatch; ++j) f(keys[j], part.IndexOf(first + j * step));
  }
}

}  // namespace pagefuse::cuda
