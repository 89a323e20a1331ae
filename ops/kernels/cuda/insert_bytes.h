// SPDX-License-Identifier: Apache-2.0
// Inserts of rows that become codes of one byte, encoded in registers: several rows a warp. Device code: for .cu files.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/register_bytes.h"
#include "pagefuse/ops/kernels/cuda/register_rows.h"
#include "pagefuse/ops/kernels/cuda/strided.h"

namespace pagefuse::cuda {

// An insert whose offsets fit 32 bits but for that of a block. Keys and values lie alike.
struct ByteInsert {
  struct Side {
    const void* source;  // [rows, pieces * kPiece]
    uint8_t *data, *scales;
    const float* tensor_scales;  // null: rows have their own, at `scales`
    bool scale_per_head;
  };
  struct Steps {
    uint32_t block, row, head;  // bytes

    __device__ int64_t Offset(uint32_t of_block, uint32_t of_row, uint32_t of_head) const {
      return static_cast<int64_t>(uint64_t{of_block} * block + uint64_t{of_row} * row +
                                  uint64_t{of_head} * head);
    }
  };
  Side sides[2];
  Steps data_steps, scale_steps;
  SlotMapping slots;
  uint32_t num_slots;
  Divisor block_size, heads;
  uint32_t rows;  // of a side
  int pieces;     // of a row; a lane has one or none
  ByteCodes codes;
};

inline constexpr int kByteWarps = 8;  // of a block

// What a lane encodes.
template <typename T>
struct SourcePiece {
  RowPiece<T> elements = {};
  float tensor_scale = 0;

  __device__ SourcePiece(const ByteInsert& insert, const ByteInsert::Side& side, uint32_t row,
                         uint32_t head, int lane) {
    if (lane < insert.pieces) {
      const int64_t piece = int64_t{row} * insert.pieces + lane;
      elements = LoadPiece(static_cast<const T*>(side.source) + piece * kPiece);
    }
    if (side.tensor_scales != nullptr) {
      tensor_scale = side.tensor_scales[side.scale_per_head ? head : 0];
    }
  }
};

// kLanes lanes have a row of keys and the same one of values.
template <typename T, int kLanes>
__global__ void __launch_bounds__(kByteWarps* kWarp)
    ByteInsertKernel(const __grid_constant__ ByteInsert insert) {
  const uint32_t thread = blockIdx.x * (kByteWarps * kWarp) + threadIdx.x;
  const uint32_t team = thread / kLanes;
  const int lane = static_cast<int>(thread % kLanes);
  const uint32_t row = min(team, insert.rows - 1);  // teams without one come along
  const uint32_t token = insert.heads.Quotient(row), head = row - token * insert.heads.size;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const IndexAhead given(insert.slots.slots, insert.slots.is_int64, token);
  SourcePiece<T> piece(insert, insert.sides[0], row, head, lane);
  const SourcePiece<T> value(insert, insert.sides[1], row, head, lane);
  const int64_t slot = given.Get();
  const bool stores = team == row && lane < insert.pieces && slot >= 0 && slot < insert.num_slots;
  const auto place = static_cast<uint32_t>(slot);
  const uint32_t block = insert.block_size.Quotient(place);
  const uint32_t in_block = place - block * insert.block_size.size;
  const int64_t data_at = insert.data_steps.Offset(block, in_block, head) + lane * kPiece;
  const int64_t scale_at = insert.scale_steps.Offset(block, in_block, head);
#pragma unroll 1
  for (int i = 0; i < 2; ++i, piece = value) {
    float x[kPiece];
    Widen(piece.elements, x);
    uint32_t words[kPiece / 4];
    const float scale = EncodeBytes<kLanes>(insert.codes, piece.tensor_scale, x, words);
    if (!stores) continue;
    const ByteInsert::Side& side = insert.sides[i];
    StoreWords(words, side.data + data_at);
    if (lane != 0 || !HasRowScales(insert.codes)) continue;
    *reinterpret_cast<float*>(side.scales + scale_at) = scale;
  }
}

inline bool AreSame(const CacheRows::Strides& a, const CacheRows::Strides& b) {
  return a.block == b.block && a.row == b.row && a.head == b.head;
}

// Whether accesses that begin at multiples of the strides are aligned to `bytes`, and offsets are what ByteInsert has.
inline bool SuitsSteps(const void* data, const CacheRows::Strides& strides, int64_t bytes) {
  const int64_t all = strides.block | strides.row | strides.head;
  return IsAligned(data, bytes) && all % bytes == 0 && all >> 31 == 0;
}

inline bool SuitsByteInsert(const CacheInsert& insert) {
  constexpr int64_t kMost = int64_t{1} << 31;
  const InsertSide &key = insert.key, &value = insert.value;
  const auto suits = [&](const InsertSide& side) {
    return side.source_type == key.source_type && ByteCodesOf(side) == ByteCodesOf(key) &&
           side.heads == key.heads && side.head_size == key.head_size &&
           side.rows.block_size == key.rows.block_size &&
           AreSame(side.rows.data_strides, key.rows.data_strides) &&
           AreSame(side.rows.scale_strides, key.rows.scale_strides) &&
           IsAligned(side.source, sizeof(uint4)) &&
           SuitsSteps(side.rows.data, side.rows.data_strides, sizeof(uint4)) &&
           SuitsSteps(side.rows.scales, side.rows.scale_strides, sizeof(float));
  };
  return ByteCodesOf(key) != ByteCodes::kNone && key.source_type != DataType::kFloat8E4M3FN &&
         insert.slots.unique && key.heads > 0 && key.head_size > 0 && key.head_size % kPiece == 0 &&
         key.head_size <= kPiece * kWarp && NumSlots(key.rows) < kMost &&
         insert.slots.tokens * key.heads < kMost / kWarp && suits(key) && suits(value);
}

inline ByteInsert ByteInsertOf(const CacheInsert& insert) {
  const auto side_of = [](const InsertSide& side) -> ByteInsert::Side {
    return {side.source, side.rows.data, side.rows.scales, side.tensor_scales,
            side.tensor_scale_count != 1};
  };
  const auto steps_of = [](const CacheRows::Strides& strides) -> ByteInsert::Steps {
    return {static_cast<uint32_t>(strides.block), static_cast<uint32_t>(strides.row),
            static_cast<uint32_t>(strides.head)};
  };
  const InsertSide& key = insert.key;
  return {.sides = {side_of(key), side_of(insert.value)},
          .data_steps = steps_of(key.rows.data_strides),
          .scale_steps = steps_of(key.rows.scale_strides),
          .slots = insert.slots,
          .num_slots = static_cast<uint32_t>(NumSlots(key.rows)),
          .block_size = Divisor(static_cast<uint32_t>(key.rows.block_size)),
          .heads = Divisor(static_cast<uint32_t>(key.heads)),
          .rows = static_cast<uint32_t>(insert.slots.tokens * key.heads),
          .pieces = key.head_size / kPiece,
          .codes = ByteCodesOf(key)};
}

template <typename T>
Error LaunchByteInsert(const CacheInsert& insert, Stream stream) {
  const ByteInsert call = ByteInsertOf(insert);
  const auto launch = [&]<int kLanes>() {
    constexpr int kBlock = kByteWarps * kWarp;
    const auto blocks = static_cast<unsigned>(CeilDiv(int64_t{call.rows} * kLanes, kBlock));
    return Launch(ByteInsertKernel<T, kLanes>, {.grid = blocks, .block = kBlock}, stream, call);
  };
  if (call.pieces <= 4) return launch.template operator()<4>();
  if (call.pieces <= 8) return launch.template operator()<8>();
  return call.pieces <= 16 ? launch.template operator()<16>() : launch.template operator()<32>();
}

}  // namespace pagefuse::cuda
