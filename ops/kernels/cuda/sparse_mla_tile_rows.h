// SPDX-License-Identifier: Apache-2.0
// Cache rows of the published sizes on their way to tiles of bfloat16 in shared memory, four rows a warp: copied as they are, and widened where
// they are codes. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/convert.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_rows.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_tiles.h"

namespace pagefuse::cuda::latent {

inline constexpr int kTileWarps = 8;
inline constexpr int kTileThreads = kTileWarps * kWarp;
inline constexpr int kWarpRows = kLatentTileRows / kTileWarps;
inline constexpr int kPadding = 16;  // behind rows of a tile: eight of them lie in different banks

// Of each format: `kSize` elements; kRowBytes + kScaleBytes that are copied, kStride from a row of a stage to the next.
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

// Begins to copy the warp's rows of a tile to a stage; lane i % 4 has where row i lies, null data for zeros. `some`: any address aligned to 16.
template <class Rows>
__device__ void CopyWarpRows(const RowAddress& row, const void* some, uint8_t* stage) {
  constexpr int kStep = 16 * kWarp;  // bytes
  uint8_t* own = stage + WarpId() * kWarpRows * Rows::kStride;
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const uint8_t* from = OfLane(row.data, r);
    const bool there = from != nullptr;
    from = there ? from + 16 * LaneId() : static_cast<const uint8_t*>(some);
    uint8_t* to = own + r * Rows::kStride + 16 * LaneId();
#pragma unroll
    for (int at = 0; at < Rows::kRowBytes; at += kStep) {
      if (at + kStep > Rows::kRowBytes && at + 16 * LaneId() >= Rows::kRowBytes) continue;
      ptx::CopyAsync16(to + at, there ? from + at : from, there ? 16 : 0);
    }
  }
  if constexpr (Rows::kScaleBytes > 0) {
    constexpr int kWords = Rows::kScaleBytes / 4;
    const int r = LaneId() / kWords % kWarpRows, at = LaneId() % kWords * 4;
    const uint8_t* from = OfLane(row.scale, r);
    if (LaneId() >= kWarpRows * kWords) return;
    const bool there = from != nullptr;
    ptx::CopyAsync4(own + r * Rows::kStride + Rows::kRowBytes + at, there ? from + at : some,
                    there ? 4 : 0);
  }
}

// Two halves times a scale, rounded to bfloat16 once.
__device__ inline uint32_t ScaleHalves(uint32_t halves, float scale) {
  const float low = HalfToFloat(static_cast<uint16_t>(halves));
  const float high = HalfToFloat(static_cast<uint16_t>(halves >> 16));
  return PackBfloats(__fmul_rn(low, scale), __fmul_rn(high, scale));
}

// The warp's rows of a stage to those of a tile, which are `stride` bytes apart.
template <class Rows>
__device__ void WidenWarpRows(const uint8_t* stage, int stride, uint8_t* tile) {
  const uint8_t* from = stage + WarpId() * kWarpRows * Rows::kStride;
  uint8_t* to = tile + WarpId() * kWarpRows * stride;
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
#pragma unroll
    for (int first = 0; first < Rows::kCoded; first += 8 * kWarp) {
      const int d = first + 8 * LaneId();
      if (d >= Rows::kCoded) continue;
      const uint8_t* row = from + r * Rows::kStride;
      const float scale = Rows::ScaleAt(row, d);
      const uint2 codes = *reinterpret_cast<const uint2*>(row + d);
      uint32_t halves[4];
      WidenE4m3(codes.x, halves[0], halves[1]);
      WidenE4m3(codes.y, halves[2], halves[3]);
      *reinterpret_cast<uint4*>(to + r * stride + 2 * d) =
          make_uint4(ScaleHalves(halves[0], scale), ScaleHalves(halves[1], scale),
                     ScaleHalves(halves[2], scale), ScaleHalves(halves[3], scale));
    }
  }
  static_assert((Rows::kSize - Rows::kCoded) * 2 == kWarp / kWarpRows * 16);
  const int r = LaneId() / (kWarp / kWarpRows), at = LaneId() % (kWarp / kWarpRows) * 16;
  *reinterpret_cast<uint4*>(to + r * stride + 2 * Rows::kCoded + at) =
      *reinterpret_cast<const uint4*>(from + r * Rows::kStride + Rows::kPlainAt + at);
}

}  // namespace pagefuse::cuda::latent
