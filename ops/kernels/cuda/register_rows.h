// SPDX-License-Identifier: Apache-2.0
// Rows in registers, for the sizes that published models have: a lane mostly has 16 neighbouring elements, so that 8 lanes of a warp or all
// 32 have a row. The numbers are those of rotate_row.h, which takes rows of any size; register_codes.h makes codes of them.
// Device code, and which rows are so on the host: for .cu files.
//
// All lanes of a warp call these functions, some of them with a row that nobody stores where there are too few.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pagefuse/ops/kernels/cuda/convert.h"
#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/rotate_row.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"

namespace pagefuse::cuda {

inline constexpr int kPiece = 16;  // elements of a lane

template <int kSize>
inline constexpr int kRowLanes = kSize / kPiece;
template <int kSize>
inline constexpr int kWarpRows = kWarp / kRowLanes<kSize>;

// --- in memory ---

// As they lie there, at a multiple of 16 bytes.
template <typename T>
struct RowPiece {
  static constexpr int kWords = kPiece * sizeof(T) / sizeof(uint4);
  uint4 words[kWords];
};

template <typename T>
__device__ RowPiece<T> LoadPiece(const T* from) {
  RowPiece<T> piece;
#pragma unroll
  for (int i = 0; i < piece.kWords; ++i) piece.words[i] = reinterpret_cast<const uint4*>(from)[i];
  return piece;
}

// The numbers of a word.
template <typename T>
__device__ void WidenWord(uint32_t word, float* x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    x[0] = __uint_as_float(word);
  } else {
    x[0] = static_cast<float>(T::FromBits(static_cast<uint16_t>(word)));
    x[1] = static_cast<float>(T::FromBits(static_cast<uint16_t>(word >> 16)));
  }
}
template <>
__device__ inline void WidenWord<Bfloat16>(uint32_t word, float* x) {
  x[0] = __uint_as_float(word << 16);
  x[1] = __uint_as_float(word & 0xFFFF0000u);
}

template <>
__device__ inline void WidenWord<Float16>(uint32_t word, float* x) {
  // NaNs that are converted may lose their sign.
  x[0] = copysignf(HalfToFloat(static_cast<uint16_t>(word)), __uint_as_float(word << 16));
  x[1] = copysignf(HalfToFloat(static_cast<uint16_t>(word >> 16)), __uint_as_float(word));
}

template <typename T>
__device__ void Widen(const RowPiece<T>& piece, float (&x)[kPiece]) {
  constexpr int kWordNumbers = sizeof(uint32_t) / sizeof(T);
#pragma unroll
  for (int i = 0; i < piece.kWords; ++i) {
    const uint32_t words[4] = {piece.words[i].x, piece.words[i].y, piece.words[i].z,
                               piece.words[i].w};
#pragma unroll
    for (int k = 0; k < 4; ++k) WidenWord<T>(words[k], x + (4 * i + k) * kWordNumbers);
  }
}

// Words at a multiple of 16 bytes, or of as many as there are.
template <int kWords>
__device__ void StoreWords(const uint32_t (&words)[kWords], void* to) {
  if constexpr (kWords == 1) {
    *static_cast<uint32_t*>(to) = words[0];
  } else if constexpr (kWords == 2) {
    *static_cast<uint2*>(to) = make_uint2(words[0], words[1]);
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      static_cast<uint4*>(to)[i / 4] =
          make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
    }
  }
}

// Elements [first, first + kCount) of float, float16 or bfloat16. All are on their way before one is used.
template <int kCount>
__device__ void LoadElements(DataType type, const void* from, int64_t first, float (&to)[kCount]) {
  if (type == DataType::kFloat) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = static_cast<const float*>(from)[first + i];
    return;
  }
  uint16_t bits[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) bits[i] = static_cast<const uint16_t*>(from)[first + i];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    to[i] = type == DataType::kFloat16 ? HalfToFloat(bits[i])
                                       : __uint_as_float(uint32_t{bits[i]} << 16);
  }
}

// --- arithmetic ---

// x rounded to bfloat16 and back. Its NaNs are computed.
template <int kElements>
__device__ void RoundPiece(float (&x)[kElements]) {
#pragma unroll
  for (int i = 0; i < kElements; i += 2) WidenWord<Bfloat16>(PackBfloats(x[i], x[i + 1]), x + i);
}

// f over the values of a row's lanes, or of a group's.
template <int kLanes, typename T, class F>
__device__ T OverRowLanes(T value, const F& f) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value = f(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

// HadamardRotate of rotate_row.h.
template <int kSize, int kElements>
__device__ void HadamardRotatePieces(float (&x)[kElements]) {
#pragma unroll
  for (int distance = 1; distance < kElements; distance *= 2) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      if (i & distance) continue;
      const float a = x[i], b = x[i + distance];
      x[i] = __fadd_rn(a, b);
      x[i + distance] = __fsub_rn(a, b);
    }
  }
#pragma unroll
  for (int distance = 1; distance < kSize / kElements; distance *= 2) {
    const bool is_second = (LaneId() & distance) != 0;
#pragma unroll
    for (float& own : x) {
      const float other = __shfl_xor_sync(kAllLanes, own, distance);
      own = is_second ? __fsub_rn(other, own) : __fadd_rn(own, other);
    }
  }
  const float entry = __fdiv_rn(1.0f, __fsqrt_rn(static_cast<float>(kSize)));
#pragma unroll
  for (float& own : x) own = __fmul_rn(own, entry);
}

// Of this lane's elements.
template <int kElements>
__device__ double SquaresOf(const float (&x)[kElements]) {
  double sum = 0;
#pragma unroll
  for (const float own : x) sum += static_cast<double>(own) * own;
  return sum;
}
// Factor of NormFloats, of the sum of a row's squares.
template <int kSize>
__device__ float NormFactorOf(double squares, float epsilon) {
  const float mean = __fdiv_rn(static_cast<float>(squares), static_cast<float>(kSize));
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, epsilon)));
}
template <int kSize>
__device__ float NormFactor(const float (&x)[kPiece], float epsilon) {
  const double sum =
      OverRowLanes<kRowLanes<kSize>>(SquaresOf(x), [](double a, double b) { return a + b; });
  return NormFactorOf<kSize>(sum, epsilon);
}

// --- rotation ---

// Whether a lane has both of each pair, or those of one side.
inline bool RotatesPieces(const RowRotation& rotation) {
  const int side = rotation.interleaved ? 2 * rotation.pairs : rotation.pairs;
  return rotation.offset % kPiece == 0 && side % kPiece == 0;
}

// What a lane's pairs are rotated by: cosines and sines that it has for all rows of a token.
template <bool kInterleaved, int kElements = kPiece>
class PieceRotation {
 public:
  // By that row of the table; -1: none. `first`: the lane's first element of a row.
  __device__ PieceRotation(const RowRotation& r, int64_t table_row, int first) {
    const int behind = first - r.offset;  // the first rotated one
    rotates_ = table_row >= 0 && behind >= 0 && behind < 2 * r.pairs;
    const bool is_second = !kInterleaved && behind >= r.pairs;
    partner_ = rotates_ && !kInterleaved ? (is_second ? -1 : 1) * r.pairs / kElements : 0;
    if (!rotates_) return;
    const int pair = kInterleaved ? behind / 2 : behind - (is_second ? r.pairs : 0);
    const int64_t at = table_row * 2 * r.pairs + pair;
    // Of (a cos - b sin, b cos + a sin) the first.
    const bool is_negative = r.inverse != (!kInterleaved && !is_second);
    LoadElements(r.table_type, r.table, at, cos_);
    LoadElements(r.table_type, r.table, at + r.pairs, sin_);
#pragma unroll
    for (float& sin : sin_) sin = is_negative ? -sin : sin;
  }

  // Rotates them, `rounds`: and rounds them to bfloat16.
  __device__ void Rotate(float (&x)[kElements], bool rounds) const {
    if constexpr (kInterleaved) {
      if (!rotates_) return;
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = __fsub_rn(__fmul_rn(a, cos_[i]), __fmul_rn(b, sin_[i]));
        x[2 * i + 1] = __fadd_rn(__fmul_rn(b, cos_[i]), __fmul_rn(a, sin_[i]));
      }
    } else {
      float other[kElements];
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        other[i] = __shfl_sync(kAllLanes, x[i], LaneId() + partner_);
      }
      if (!rotates_) return;
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        x[i] = __fadd_rn(__fmul_rn(x[i], cos_[i]), __fmul_rn(other[i], sin_[i]));
      }
    }
    if (rounds) RoundPiece(x);
  }

 private:
  static constexpr int kPairs = kInterleaved ? kElements / 2 : kElements;
  float cos_[kPairs], sin_[kPairs];
  int partner_;  // lanes from this one to that with the other side of its pairs
  bool rotates_;
};

// The token's row of the table, or -1, which is told.
__device__ inline int64_t TableRowOf(const RotatedRows& rows, int64_t token) {
  const int64_t position = rows.positions[token];
  if (position >= 0 && position < rows.rotation.table_rows) return position;
  if (LaneId() == 0) rows.errors.Tell(rows.positions_input, token, position);
  return -1;
}

// --- rows of a token ---

inline constexpr int kHeadWarps = 4;  // of a block

// A block a token, or as many as there are rows for where tokens are few.
inline LaunchShape HeadsGrid(int64_t tokens, int heads, int warp_rows) {
  constexpr int64_t kBlocks = 1024;
  const int64_t turns = CeilDiv(heads, kHeadWarps * warp_rows);
  const int64_t parts = std::clamp<int64_t>(CeilDiv(kBlocks, tokens), 1, turns);
  return {dim3(static_cast<unsigned>(tokens), static_cast<unsigned>(parts)),
          dim3(kHeadWarps * kWarp)};
}

// The heads of a lane: of the block's token, every so many.
template <int kSize>
class OwnHeads {
 public:
  __device__ explicit OwnHeads(int heads) : heads_(heads) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    first_ = (static_cast<int>(blockIdx.y) * kHeadWarps + warp) * kWarpRows<kSize>;
  }

  // What `load` gives for the first one.
  template <class Load>
  __device__ auto LoadFirst(const Load& load) const {
    return load(HeadFrom(first_));
  }
  // use(head, is_one, load(head)) for each; the next one is on its way while one is used. Lanes without a head come along.
  template <class Loaded, class Load, class Use>
  __device__ void ForEach(Loaded next, const Load& load, const Use& use) const {
    const int step = static_cast<int>(gridDim.y) * kHeadWarps * kWarpRows<kSize>;
    for (int first = first_; first < heads_; first += step) {
      const Loaded loaded = next;
      if (first + step < heads_) next = load(HeadFrom(first + step));
      const int head = first + LaneId() / kRowLanes<kSize>;
      use(head, head < heads_, loaded);
    }
  }

 private:
  __device__ int HeadFrom(int first) const {
    return min(first + LaneId() / kRowLanes<kSize>, heads_ - 1);
  }

  int heads_, first_;
};

}  // namespace pagefuse::cuda
