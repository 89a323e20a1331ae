// SPDX-License-Identifier: Apache-2.0
// Cache rows of the published sizes on their way to tiles of bfloat16 in shared memory, a row by a warp: copied as they are, and widened where
// they are codes. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/convert.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_rows.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_tiles.h"

namespace pagefuse::cuda::latent {

inline constexpr int kPadding = 16;  // behind rows of a tile: eight of them lie in different banks

// Of each format: `kSize` elements; kRowBytes + kScaleBytes that are copied, kStride from a row to the next.
template <int kElements>
struct Bf16Rows {
  static constexpr int kSize = kElements;
  static constexpr bool kWidens = false;
  static constexpr int kRowBytes = 2 * kSize, kScaleBytes = 0;
  static constexpr int kStride = kRowBytes + kPadding;
};

// | 512 codes | 4 floats | 64 bfloat16 |
struct DsMlaRows {
  static constexpr int kSize = 576, kCoded = 512;
  static constexpr bool kWidens = true;
  static constexpr int kRowBytes = 656, kScaleBytes = 0;
  static constexpr int kStride = kRowBytes;
  static constexpr int kPlainAt = 528;

  __device__ static float ScaleAt(const uint8_t* row, int d) {
    return reinterpret_cast<const float*>(row + kCoded)[d / 128];
  }
};

// | 448 codes | 64 bfloat16 |, and in another place 7 bytes that are powers of two and one more
struct Ue8m0Rows {
  static constexpr int kSize = 512, kCoded = 448;
  static constexpr bool kWidens = true;
  static constexpr int kRowBytes = 576, kScaleBytes = 8;
  static constexpr int kStride = kRowBytes + kPadding;
  static constexpr int kPlainAt = 448;

  __device__ static float ScaleAt(const uint8_t* row, int d) {
    return DecodeUe8m0(row[kRowBytes + d / 64]);
  }
};

__device__ inline int WarpId() { return static_cast<int>(threadIdx.x) / kWarp; }

// Begins to copy a row, which begins at `data`, null for zeros. `some`: any address aligned to 16.
template <class Rows>
__device__ void CopyRowAsync(const uint8_t* data, const uint8_t* scale, const void* some,
                             uint8_t* to) {
  constexpr int kStep = 16 * kWarp;  // bytes
  const bool there = data != nullptr;
  const uint8_t* from = there ? data + 16 * LaneId() : static_cast<const uint8_t*>(some);
#pragma unroll
  for (int at = 0; at < Rows::kRowBytes; at += kStep) {
    if (at + kStep > Rows::kRowBytes && at + 16 * LaneId() >= Rows::kRowBytes) continue;
    ptx::CopyAsync16(to + 16 * LaneId() + at, there ? from + at : from, there ? 16 : 0);
  }
  if constexpr (Rows::kScaleBytes > 0) {
    if (LaneId() >= Rows::kScaleBytes / 4) return;
    ptx::CopyAsync4(to + Rows::kRowBytes + 4 * LaneId(), there ? scale + 4 * LaneId() : some,
                    there ? 4 : 0);
  }
}

// Two halves times a scale, rounded to bfloat16 once.
__device__ inline uint32_t ScaleHalves(uint32_t halves, float scale) {
  const float low = HalfToFloat(static_cast<uint16_t>(halves));
  const float high = HalfToFloat(static_cast<uint16_t>(halves >> 16));
  return PackBfloats(__fmul_rn(low, scale), __fmul_rn(high, scale));
}

// A row that was copied to one of a tile.
template <class Rows>
__device__ void WidenRow(const uint8_t* row, uint8_t* to) {
#pragma unroll
  for (int first = 0; first < Rows::kCoded; first += 8 * kWarp) {
    const int d = first + 8 * LaneId();
    if (d >= Rows::kCoded) continue;
    const float scale = Rows::ScaleAt(row, d);
    const uint2 codes = *reinterpret_cast<const uint2*>(row + d);
    uint32_t halves[4];
    WidenE4m3(codes.x, halves[0], halves[1]);
    WidenE4m3(codes.y, halves[2], halves[3]);
    *reinterpret_cast<uint4*>(to + 2 * d) =
        make_uint4(ScaleHalves(halves[0], scale), ScaleHalves(halves[1], scale),
                   ScaleHalves(halves[2], scale), ScaleHalves(halves[3], scale));
  }
  constexpr int kPieces = (Rows::kSize - Rows::kCoded) * 2 / 16;
  if (LaneId() < kPieces) {
    *reinterpret_cast<uint4*>(to + 2 * Rows::kCoded + 16 * LaneId()) =
        *reinterpret_cast<const uint4*>(row + Rows::kPlainAt + 16 * LaneId());
  }
}

}  // namespace pagefuse::cuda::latent
