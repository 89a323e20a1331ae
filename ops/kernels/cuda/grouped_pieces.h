// SPDX-License-Identifier: Apache-2.0
// Grouped rows of published formats to bfloat16, several rows a warp at once: the numbers of DecodeRowOfGroups. A lane decodes eight codes in
// registers and stores 16 bytes. And bytes that a warp copies. Device code: for .cu files.
#pragma once

#include <cstdint>
#include <type_traits>

#include "pagefuse/ops/kernels/cuda/convert.h"
#include "pagefuse/ops/kernels/cuda/grouped_rows.h"

namespace pagefuse::cuda {

// Lane i of a warp knows the address of row i % kRowsAtOnce of the warp's.
inline constexpr int kRowsAtOnce = 4;

// --- eight codes ---

// Whether a code of e4m3fn is NaN, or a scale makes it one.
__device__ inline bool MayBeNan(uint2 codes, float scale) {
  constexpr uint32_t kMagnitudes = 0x7F7F7F7Fu, kOnes = 0x01010101u, kSigns = 0x80808080u;
  const uint32_t above = ((codes.x & kMagnitudes) + kOnes) | ((codes.y & kMagnitudes) + kOnes);
  return (above & kSigns) != 0 || !(fabsf(scale) < __uint_as_float(0x7F800000u));
}

__device__ inline uint2 DecodeFour(uint32_t codes, float scale) {
  float x[4];
  FloatsOfE4m3(codes, x);
#pragma unroll
  for (float& value : x) value = __fmul_rn(value, scale);
  return {PackBfloats(x[0], x[1]), PackBfloats(x[2], x[3])};
}

// The same where NaN keeps the bits that it has on the CPU.
__device__ inline uint2 DecodeFourWithNan(uint32_t codes, float scale) {
  uint64_t bits = 0;
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    const float x = DecodeCode(GroupCodes::kE4M3, codes, i, scale);
    bits |= uint64_t{Bfloat16(x).bits} << (16 * i);
  }
  return {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
}

__device__ inline uint4 DecodeEight(uint2 codes, float scale) {
  uint2 low, high;
  if (MayBeNan(codes, scale)) {
    low = DecodeFourWithNan(codes.x, scale);
    high = DecodeFourWithNan(codes.y, scale);
  } else {
    low = DecodeFour(codes.x, scale);
    high = DecodeFour(codes.y, scale);
  }
  return {low.x, low.y, high.x, high.y};
}

// --- rows ---

__device__ inline uint8_t* PointerOfLane(uint8_t* pointer, int lane) {
  const auto address = static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(pointer));
  return reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(__shfl_sync(kAllLanes, address, lane)));
}
__device__ inline RowAddress RowOfLane(const RowAddress& own, int lane) {
  return {PointerOfLane(own.data, lane), PointerOfLane(own.scale, lane)};
}

// Rows of any format at any address, one after the other. Rows whose bits are in `stored` are written, as zeros where they have no address.
struct AnyRows {
  __device__ static void Decode(const GroupedRowFormat& format, const RowAddress& own,
                                unsigned stored, Bfloat16* to) {
#pragma unroll 1
    for (int j = 0; j < kRowsAtOnce; ++j, to += format.elements()) {
      const RowAddress row = RowOfLane(own, j);
      if ((stored >> j & 1) == 0) continue;
      if (row.data != nullptr) {
        DecodeRowOfGroups(format, row, to);
      } else {
        StoreRow(to, static_cast<int>(format.elements()),
                 [](int) { return Bfloat16::FromBits(0); });
      }
    }
  }
};

// Rows of a format that the compiler knows, each aligned as Fits says.
template <int kCoded, int kGroup, GroupScale kScale, GroupedLayout kLayout>
struct KnownRows {
  static constexpr int kPlain = 64, kElements = kCoded + kPlain;
  static constexpr int kPieces = kCoded / kDecodedAtOnce;  // of a row
  static constexpr int kTurns = (kPieces + kWarp - 1) / kWarp;
  using ScaleBits = std::conditional_t<kScale == GroupScale::kUe8m0, uint8_t, uint32_t>;
  static constexpr int kScaleBytes = sizeof(ScaleBits);
  static constexpr int kPlainOffset =
      kCoded + (kLayout == GroupedLayout::kInline ? kCoded / kGroup * kScaleBytes : 0);
  // The plain elements of all rows are one piece of 16 bytes a lane.
  static constexpr int kPlainLanes = kWarp / kRowsAtOnce, kPlainAtOnce = 8;
  static_assert(kPlainLanes * kPlainAtOnce == kPlain && kPlainOffset % sizeof(uint4) == 0);

  static bool Fits(const GroupedRowFormat& format, const CacheRows& rows, const void* to) {
    const auto addresses = reinterpret_cast<uintptr_t>(rows.data) |
                           reinterpret_cast<uintptr_t>(to) |
                           static_cast<uintptr_t>(rows.data_strides.block) |
                           static_cast<uintptr_t>(rows.data_strides.row);
    const auto scales = reinterpret_cast<uintptr_t>(rows.scales) |
                        static_cast<uintptr_t>(rows.scale_strides.block) |
                        static_cast<uintptr_t>(rows.scale_strides.row);
    return format.groups.codes == GroupCodes::kE4M3 && format.groups.scale == kScale &&
           format.layout == kLayout && format.coded == kCoded && format.group == kGroup &&
           format.plain == kPlain && format.PlainOffset() == kPlainOffset &&
           addresses % sizeof(uint4) == 0 && scales % kScaleBytes == 0;
  }

  __device__ static float ScaleOf(ScaleBits bits) {
    if constexpr (kScale == GroupScale::kUe8m0) {
      return DecodeUe8m0(bits);
    } else {
      return __uint_as_float(bits);
    }
  }

  // As AnyRows.
  __device__ static void Decode(const GroupedRowFormat&, const RowAddress& own, unsigned stored,
                                Bfloat16* to) {
    const int lane = LaneId();
    uint2 codes[kRowsAtOnce][kTurns];
    ScaleBits scales[kRowsAtOnce][kTurns];
#pragma unroll
    for (int j = 0; j < kRowsAtOnce; ++j) {
      const RowAddress row = RowOfLane(own, j);
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
        const int piece = lane + t * kWarp;
        const bool is_one = row.data != nullptr && piece < kPieces;
        codes[j][t] = is_one ? reinterpret_cast<const uint2*>(row.data)[piece] : uint2{};
        const int group = piece * kDecodedAtOnce / kGroup;
        scales[j][t] = is_one ? reinterpret_cast<const ScaleBits*>(row.scale)[group] : ScaleBits{0};
      }
    }
    const int plain_row = lane / kPlainLanes, plain_piece = lane % kPlainLanes;
    const uint8_t* plain_data = PointerOfLane(own.data, plain_row);
    uint4 plain = {};
    if (plain_data != nullptr) {
      plain = reinterpret_cast<const uint4*>(plain_data + kPlainOffset)[plain_piece];
    }
#pragma unroll
    for (int j = 0; j < kRowsAtOnce; ++j) {
      auto* pieces = reinterpret_cast<uint4*>(to + j * kElements);
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
        const int piece = lane + t * kWarp;
        if ((stored >> j & 1) == 0 || piece >= kPieces) continue;
        pieces[piece] = DecodeEight(codes[j][t], ScaleOf(scales[j][t]));
      }
    }
    if ((stored >> plain_row & 1) == 0) return;
    reinterpret_cast<uint4*>(to + plain_row * kElements + kCoded)[plain_piece] = plain;
  }
};

// --- bytes ---

// A lane's part of bytes that the warp copies, while they are in registers.
template <typename Piece, int kPieces>
struct CopyOfLane {
  Piece pieces[kPieces];

  __device__ static bool Takes(const uint8_t* from, const uint8_t* to, int bytes) {
    return bytes <= kPieces * kWarp * static_cast<int>(sizeof(Piece)) &&
           ComesIn<Piece>(from, to, bytes);
  }
  __device__ void Load(const uint8_t* from, int bytes) {
    const auto* source = reinterpret_cast<const Piece*>(from);
    const int count = bytes / static_cast<int>(sizeof(Piece));
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int at = LaneId() + i * kWarp;
      pieces[i] = at < count ? source[at] : Piece{};
    }
  }
  __device__ void Store(uint8_t* to, int bytes) const {
    auto* target = reinterpret_cast<Piece*>(to);
    const int count = bytes / static_cast<int>(sizeof(Piece));
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int at = LaneId() + i * kWarp;
      if (at < count) target[at] = pieces[i];
    }
  }
};

}  // namespace pagefuse::cuda
