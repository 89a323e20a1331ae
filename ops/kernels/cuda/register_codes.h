// SPDX-License-Identifier: Apache-2.0
// Rows in registers (register_rows.h) as grouped codes: the bytes of grouped_rows.h. Device code, and which formats are so on the host: for
// .cu files.
#pragma once

#include <cstdint>
#include <limits>

#include "pagefuse/ops/kernels/cuda/convert.h"
#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/grouped_rows.h"
#include "pagefuse/ops/kernels/cuda/register_rows.h"

namespace pagefuse::cuda {

// Codes of a lane's elements under scales that teams of kLanes lanes share.
template <GroupCodes kCodeKind, bool kIsPowerOfTwo, int kTeam, int kOfLane = kPiece>
struct PieceFormat {
  static constexpr GroupCodes kCodes = kCodeKind;
  static constexpr bool kIsPower = kIsPowerOfTwo;
  static constexpr int kLanes = kTeam, kElements = kOfLane;
  static constexpr int kBytes = kCodes == GroupCodes::kE4M3 ? kElements : kElements / 2;
  static constexpr int kWords = (kBytes + 3) / 4;

  // Whether it is the format, with groups of that size.
  static constexpr bool Is(const GroupFormat& format, int64_t group) {
    return format.codes == kCodes && (format.scale != GroupScale::kFloat) == kIsPower &&
           format.floor >= format.LargestCode() * 0x1p-126f && group == kLanes * kElements;
  }
};

template <class Format>
__device__ void PackPiece(const float (&y)[Format::kElements], uint32_t (&codes)[Format::kWords]) {
#pragma unroll
  for (int i = 0; i < Format::kWords; ++i) {
    if constexpr (Format::kCodes == GroupCodes::kE4M3) {
      codes[i] = PackE4m3(y[4 * i], y[4 * i + 1], y[4 * i + 2], y[4 * i + 3]);
    } else if constexpr (Format::kElements == 4) {
      codes[i] = PackE2m1({y[0], y[1], y[2], y[3]});
    } else {
      const float* from = y + 8 * i;
      codes[i] = PackE2m1({from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7]});
    }
  }
}

// Of groups with an infinity or a NaN, or with quotients that need a division. Quotients that are NaN become numbers: the largest ones of
// their sign, behind which e4m3 has its NaNs: `nans` are what is added to codes. e2m1 has none and takes the largest number, and its scales
// are finite.
template <class Format>
__device__ float OddQuotients(const GroupFormat& format, const float (&x)[Format::kElements],
                              float (&y)[Format::kElements], uint32_t (&nans)[Format::kWords]) {
  float largest = 0;
#pragma unroll
  for (const float own : x) largest = fmaxf(largest, fabsf(own));
  largest = OverRowLanes<Format::kLanes>(largest, [](float a, float b) { return fmaxf(a, b); });
  const float scale = format.ScaleOf(largest);
  const GroupDivisor divide =
      DivisorOf(Format::kIsPower ? GroupScale::kPowerOfTwo : GroupScale::kFloat, scale);
  constexpr bool kHasNans = Format::kCodes == GroupCodes::kE4M3;
#pragma unroll
  for (int i = 0; i < Format::kElements; ++i) {
    y[i] = divide(x[i]);
    if (y[i] == y[i]) {
      if (!kHasNans) y[i] = fminf(fmaxf(y[i], -format.LargestCode()), format.LargestCode());
      continue;
    }
    y[i] = kHasNans ? copysignf(format.LargestCode(), y[i]) : format.LargestCode();
    if (kHasNans) nans[i / 4] += 1u << (i % 4 * 8);
  }
  return scale;
}

// The codes of a piece, and the scale of its group.
template <class Format>
__device__ float EncodePiece(const GroupFormat& format, const float (&x)[Format::kElements],
                             uint32_t (&codes)[Format::kWords]) {
  float largest = LargerMagnitude(x[0], x[1]);
#pragma unroll
  for (int i = 2; i < Format::kElements; ++i) largest = LargerMagnitude(largest, x[i]);
  largest =
      OverRowLanes<Format::kLanes>(largest, [](float a, float b) { return LargerMagnitude(a, b); });
  bool is_odd = !(largest <= std::numeric_limits<float>::max());
  const float raised = fmaxf(largest, format.floor);
  float scale, inverse;
  if constexpr (Format::kIsPower) {
    const uint32_t exponent = PowerScaleExponent<Format::kCodes>(raised);
    scale = __uint_as_float(exponent << 23);
    inverse = __uint_as_float((2 * 127 - exponent) << 23);
  } else {
    scale = __fdiv_rn(raised, format.LargestCode());
    inverse = __fdiv_rn(1.0f, scale);
    is_odd = is_odd || scale < kLeastQuickScale;
  }
  float y[Format::kElements];
  uint32_t nans[Format::kWords] = {};
  if (__any_sync(kAllLanes, is_odd)) {
    scale = OddQuotients<Format>(format, x, y, nans);
  } else {
#pragma unroll
    for (int i = 0; i < Format::kElements; ++i) {
      y[i] = Format::kIsPower ? __fmul_rn(x[i], inverse) : QuickQuotient(x[i], scale, inverse);
    }
  }
  PackPiece<Format>(y, codes);
#pragma unroll
  for (int i = 0; i < Format::kWords; ++i) codes[i] += nans[i];
  return scale;
}

// The scale of the lane's group, from one lane of it, among those of a row that begin at `scales`. Floats are aligned there.
template <class Format>
__device__ void StorePieceScale(GroupScale kind, float scale, int lane, uint8_t* scales) {
  if (lane % Format::kLanes != 0) return;
  const int group = lane / Format::kLanes;
  if (kind == GroupScale::kUe8m0) {
    StoreGroupScale(kind, scale, scales + group);
  } else {
    reinterpret_cast<float*>(scales)[group] = scale;
  }
}

// --- rows of caches ---

// Rows of kCoded elements on the first of kLanes lanes, which may be those of several warps. The other lanes have plain elements; as groups
// their scales are padding.
template <int kCodedElements, int kTeam, class PieceCodes>
struct RegisterRow {
  using Codes = PieceCodes;
  static constexpr int kElements = Codes::kElements;  // of a lane
  static constexpr int kCoded = kCodedElements, kLanes = kTeam, kSize = kLanes * kElements;
  static constexpr int kCodedLanes = kCoded / kElements;

  static bool Is(const GroupedRowFormat& format) {
    return format.coded == kCoded && Codes::Is(format.groups, format.group) &&
           format.scale_padding == (kLanes - kCodedLanes) / Codes::kLanes;
  }
};
template <int kOfLane>
using V4RowOf =
    RegisterRow<448, 512 / kOfLane, PieceFormat<GroupCodes::kE4M3, true, 64 / kOfLane, kOfLane>>;
template <int kOfLane>
using IndexerRowOf =
    RegisterRow<128, 128 / kOfLane, PieceFormat<GroupCodes::kE4M3, true, 128 / kOfLane, kOfLane>>;
template <int kOfLane>
using IndexerE2M1RowOf =
    RegisterRow<128, 128 / kOfLane, PieceFormat<GroupCodes::kE2M1, true, 32 / kOfLane, kOfLane>>;
using V4Row = V4RowOf<kPiece>;
using IndexerRow = IndexerRowOf<kPiece>;
using IndexerE2M1Row = IndexerE2M1RowOf<kPiece>;
using DsMlaRow = RegisterRow<512, 32, PieceFormat<GroupCodes::kE4M3, false, 128 / kPiece>>;
using IndexerFloatRow = RegisterRow<128, 8, PieceFormat<GroupCodes::kE4M3, false, 128 / kPiece>>;

// Whether such rows lie so that they are written in pieces.
inline bool StoresPieces(const GroupedRowFormat& format, const CacheRows& rows) {
  constexpr int64_t kBytes = sizeof(uint4), kScaleBytes = sizeof(float);
  const CacheRows::Strides& data = rows.data_strides;
  const CacheRows::Strides& scales = rows.scale_strides;
  return IsAligned(rows.data, kBytes) && data.block % kBytes == 0 && data.row % kBytes == 0 &&
         (format.plain == 0 || format.PlainOffset() % kBytes == 0) &&
         (format.groups.scale == GroupScale::kUe8m0 ||
          (IsAligned(rows.scales, kScaleBytes) && scales.block % kScaleBytes == 0 &&
           scales.row % kScaleBytes == 0));
}

// The lane's codes and scale.
template <class Row>
__device__ void StoreCodes(const GroupedRowFormat& format,
                           const uint32_t (&codes)[Row::Codes::kWords], float scale, int lane,
                           RowAddress to) {
  const bool is_coded = lane < Row::kCodedLanes;
  if constexpr (Row::Codes::kBytes == sizeof(uint16_t)) {
    if (is_coded) reinterpret_cast<uint16_t*>(to.data)[lane] = static_cast<uint16_t>(codes[0]);
  } else {
    if (is_coded) StoreWords(codes, to.data + lane * Row::Codes::kBytes);
  }
  StorePieceScale<typename Row::Codes>(format.groups.scale, is_coded ? scale : 0.0f, lane,
                                       to.scale);
}

// A row of numbers that are rounded to bfloat16. `is_one`: the lane's row is stored.
template <class Row>
__device__ void StoreRoundedPiece(const GroupedRowFormat& format, const float (&x)[Row::kElements],
                                  int lane, bool is_one, RowAddress to) {
  uint32_t codes[Row::Codes::kWords];
  const float scale = EncodePiece<typename Row::Codes>(format.groups, x, codes);
  if (!is_one) return;
  StoreCodes<Row>(format, codes, scale, lane, to);
  if (lane < Row::kCodedLanes) return;
  uint32_t plain[Row::kElements / 2];
#pragma unroll
  for (int i = 0; i < Row::kElements / 2; ++i) {
    plain[i] = BytePermute(__float_as_uint(x[2 * i]), __float_as_uint(x[2 * i + 1]), 0x7632);
  }
  StoreWords(plain, to.data + format.PlainOffset() + (lane - Row::kCodedLanes) * sizeof(plain));
}

}  // namespace pagefuse::cuda
