// SPDX-License-Identifier: Apache-2.0
// Rows of grouped codes (formats/grouped_row.h), a warp a row: the bytes that the CPU's encoders write and the numbers that they read.
// Device code: for .cu files.
//
//   EncodeRowOfGroups(format, x, tail, row);  // a whole row, x of any float type in shared or global memory
//
//   EncodeCodedElements(format, x, row);         // the same in two parts, where the plain elements are computed:
//   StorePlainElements(format, row, [&](int i) { return Bfloat16(tail[i]); });
//
//   EncodeGroups(format.groups, x, {count, size}, codes, [&](int g, float scale) { ... });  // with scales of one's own layout
//
// All lanes of the warp call these functions and have written what they read. No address needs alignment.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/warp_row.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse::cuda {

// Groups that follow one another.
struct GroupRun {
  int count, size;
};

__device__ inline GroupRun GroupsOf(const GroupedRowFormat& format) {
  const int size = static_cast<int>(format.group);
  return {static_cast<int>(format.coded) / size, size};
}

// --- NaN ---
// One that x86 makes has a sign and one that it is given keeps its bits, where devices make one of their own. The sign shows in codes.

__device__ inline float MadeNan() { return __uint_as_float(0xFFC00000u); }
__device__ inline float QuietNan(float nan) {
  return __uint_as_float(__float_as_uint(nan) | 0x400000u);
}
// The number that a and b were computed to.
__device__ inline float WithNanOf(float a, float b, float result) {
  if (result == result) return result;
  if (a != a) return QuietNan(a);
  return b != b ? QuietNan(b) : MadeNan();
}

// --- bytes ---

template <typename Piece>
__device__ bool ComesIn(const void* a, const void* b, int64_t bytes) {
  const auto all = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) |
                   static_cast<uintptr_t>(bytes);
  return all % sizeof(Piece) == 0;
}
template <typename Piece>
__device__ void CopyPieces(const uint8_t* __restrict__ from, int64_t bytes,
                           uint8_t* __restrict__ to) {
  const auto* source = reinterpret_cast<const Piece*>(from);
  auto* target = reinterpret_cast<Piece*>(to);
  const auto count = static_cast<int>(bytes / static_cast<int64_t>(sizeof(Piece)));
#pragma unroll 4
  for (int i = LaneId(); i < count; i += kWarp) target[i] = source[i];
}
// to[0, bytes) = from[0, bytes), which do not overlap, in the largest pieces that both allow.
__device__ inline void CopyBytes(const uint8_t* from, int64_t bytes, uint8_t* to) {
  if (ComesIn<uint4>(from, to, bytes)) return CopyPieces<uint4>(from, bytes, to);
  if (ComesIn<uint32_t>(from, to, bytes)) return CopyPieces<uint32_t>(from, bytes, to);
  if (ComesIn<uint16_t>(from, to, bytes)) return CopyPieces<uint16_t>(from, bytes, to);
  CopyPieces<uint8_t>(from, bytes, to);
}
// A lane's own: the low `bytes` bytes of a word, lowest first.
template <typename Word>
__device__ void StoreWord(Word word, int bytes, uint8_t* to) {
  if (bytes == sizeof(Word) && reinterpret_cast<uintptr_t>(to) % sizeof(Word) == 0) {
    *reinterpret_cast<Word*>(to) = word;
    return;
  }
  for (int i = 0; i < bytes; ++i) to[i] = static_cast<uint8_t>(word >> (8 * i));
}
template <typename Word>
__device__ Word LoadWord(const uint8_t* from, int bytes) {
  if (bytes == sizeof(Word) && reinterpret_cast<uintptr_t>(from) % sizeof(Word) == 0) {
    return *reinterpret_cast<const Word*>(from);
  }
  Word word = 0;
  for (int i = 0; i < bytes; ++i) word |= Word{from[i]} << (8 * i);
  return word;
}

// --- encoding ---
// A group belongs to a team of 1 to 32 lanes, each of which takes four elements at a time.

inline constexpr int kEncodedAtOnce = 4;

__device__ inline int LanesOfGroup(int size) {
  int lanes = 1;
  while (lanes < kWarp && lanes * kEncodedAtOnce < size) lanes *= 2;
  return lanes;
}

// x[0, n) for n of at most four, and zeros behind them. `aligned`: there are four, at an address of a Four.
template <typename T>
__device__ void LoadFloats(const T* from, int n, bool aligned, float (&x)[kEncodedAtOnce]) {
  if (aligned) {
    const auto four = *reinterpret_cast<const Four<T>*>(from);
    for (int i = 0; i < kEncodedAtOnce; ++i) x[i] = static_cast<float>(four.at[i]);
    return;
  }
  for (int i = 0; i < kEncodedAtOnce; ++i) x[i] = i < n ? static_cast<float>(from[i]) : 0.0f;
}

// What divides by a scale.
struct GroupDivisor {
  float scale, inverse;
  bool is_power;  // then the product with the inverse is the quotient

  __device__ float operator()(float x) const {
    return WithNanOf(x, scale, is_power ? __fmul_rn(x, inverse) : __fdiv_rn(x, scale));
  }
};
__device__ inline GroupDivisor DivisorOf(GroupScale kind, float scale) {
  return {scale, __fdiv_rn(1.0f, scale), kind != GroupScale::kFloat};
}

// Codes of four elements, the first in the lowest bits.
__device__ inline uint32_t EncodeFour(GroupCodes kind, const GroupDivisor& divide,
                                      const float (&x)[kEncodedAtOnce]) {
  uint32_t codes = 0;
  for (int i = 0; i < kEncodedAtOnce; ++i) {
    const float y = divide(x[i]);
    codes |= kind == GroupCodes::kE4M3 ? uint32_t{EncodeFloat<E4M3FNFormat>(y)} << (8 * i)
                                       : uint32_t{EncodeFloat<E2M1Format>(y)} << (4 * i);
  }
  return codes;
}

// f(d, n, four) for the elements [d, d + n) of a group at x that this lane of its team takes.
template <typename T, class F>
__device__ void ForOwnFours(const T* x, int size, int lanes, const F& f) {
  const bool aligned = ComesInFours(x, size);
  for (int d = LaneId() % lanes * kEncodedAtOnce; d < size; d += lanes * kEncodedAtOnce) {
    const int n = min(size - d, kEncodedAtOnce);
    float four[kEncodedAtOnce];
    LoadFloats(x + d, n, aligned, four);
    f(d, n, four);
  }
}

// The largest magnitude among what this lane takes; NaN is none.
template <typename T>
__device__ float LargestOfOwn(const T* x, int size, int lanes) {
  float largest = 0;
  ForOwnFours(x, size, lanes, [&](int, int, const float(&four)[kEncodedAtOnce]) {
    for (const float value : four) {
      if (fabsf(value) > largest) largest = fabsf(value);
    }
  });
  return largest;
}

// The codes of groups of x, whose bytes follow one another too. Their scales go to store_scale(group, scale), from one lane each.
template <typename T, class F>
__device__ void EncodeGroups(const GroupFormat& format, const T* x, GroupRun groups, uint8_t* codes,
                             const F& store_scale) {
  const int lanes = LanesOfGroup(groups.size);
  for (int first = 0; first < groups.count; first += kWarp / lanes) {
    const int group = first + LaneId() / lanes;
    const bool is_one = group < groups.count;  // else the team has none left
    const T* from = x + int64_t{group} * groups.size;
    float largest = is_one ? LargestOfOwn(from, groups.size, lanes) : 0;
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    }
    if (!is_one) continue;
    const float scale = format.ScaleOf(largest);
    const GroupDivisor divide = DivisorOf(format.scale, scale);
    uint8_t* to = codes + group * format.CodeBytes(groups.size);
    ForOwnFours(from, groups.size, lanes, [&](int d, int n, const float(&four)[kEncodedAtOnce]) {
      const uint32_t word = EncodeFour(format.codes, divide, four);
      const int bytes = static_cast<int>(format.CodeBytes(n));
      if (format.codes == GroupCodes::kE4M3) return StoreWord(word, bytes, to + d);
      StoreWord(static_cast<uint16_t>(word), bytes, to + d / 2);
    });
    if (LaneId() % lanes == 0) store_scale(group, scale);
  }
}

// Codes, scales and padding of a row: x[0, coded).
template <typename T>
__device__ void EncodeCodedElements(const GroupedRowFormat& format, const T* x, RowAddress row) {
  const GroupRun groups = GroupsOf(format);
  const int scale_bytes = static_cast<int>(format.groups.ScaleBytes());
  EncodeGroups(format.groups, x, groups, row.data, [&](int group, float scale) {
    StoreGroupScale(format.groups.scale, scale, row.scale + group * scale_bytes);
  });
  uint8_t* padding = row.scale + groups.count * scale_bytes;
  for (int i = LaneId(); i < format.scale_padding; i += kWarp) padding[i] = 0;
}

// The elements behind the coded ones: element(i), a Bfloat16, for i in [0, plain).
template <class F>
__device__ void StorePlainElements(const GroupedRowFormat& format, RowAddress row,
                                   const F& element) {
  uint8_t* to = row.data + format.PlainOffset();
  const int plain = static_cast<int>(format.plain);
  if (reinterpret_cast<uintptr_t>(to) % sizeof(Bfloat16) == 0) {
    return StoreRow(reinterpret_cast<Bfloat16*>(to), plain, element);
  }
  for (int i = LaneId(); i < plain; i += kWarp) {
    StoreWord(Bfloat16(element(i)).bits, sizeof(Bfloat16), to + 2 * i);
  }
}

// Encodes a row: x[0, coded) in groups, the bfloat16 numbers tail[0, plain) as they are.
template <typename T>
__device__ void EncodeRowOfGroups(const GroupedRowFormat& format, const T* x, const uint8_t* tail,
                                  RowAddress row) {
  EncodeCodedElements(format, x, row);
  CopyBytes(tail, 2 * format.plain, row.data + format.PlainOffset());
}

// --- decoding ---

inline constexpr int kDecodedAtOnce = 8;

// Code i of a word times the scale, rounded once.
__device__ inline float DecodeCode(GroupCodes kind, uint64_t codes, int i, float scale) {
  const float code = kind == GroupCodes::kE4M3
                         ? DecodeFloat<E4M3FNFormat>(static_cast<uint8_t>(codes >> (8 * i)))
                         : DecodeFloat<E2M1Format>(static_cast<uint8_t>(codes >> (4 * i) & 15));
  return WithNanOf(code, scale, __fmul_rn(code, scale));
}

// Decodes the coded elements of a row: store(d, x, n) for elements [d, d + n), up to eight of one group, from one lane each.
template <class F>
__device__ void DecodeCodedElements(const GroupedRowFormat& format, RowAddress row,
                                    const F& store) {
  const GroupFormat& kind = format.groups;
  const GroupRun groups = GroupsOf(format);
  const int parts = (groups.size + kDecodedAtOnce - 1) / kDecodedAtOnce;  // of a group
  const int code_bytes = static_cast<int>(kind.CodeBytes(groups.size));
  const int scale_bytes = static_cast<int>(kind.ScaleBytes());
  for (int part = LaneId(); part < groups.count * parts; part += kWarp) {
    const int group = part / parts;
    const int d = (part - group * parts) * kDecodedAtOnce;
    const int n = min(groups.size - d, kDecodedAtOnce);
    const float scale = LoadGroupScale(kind.scale, row.scale + group * scale_bytes);
    const uint8_t* from = row.data + group * code_bytes + kind.CodeBytes(d);
    const int bytes = static_cast<int>(kind.CodeBytes(n));
    const uint64_t codes = kind.codes == GroupCodes::kE4M3 ? LoadWord<uint64_t>(from, bytes)
                                                           : LoadWord<uint32_t>(from, bytes);
    float x[kDecodedAtOnce];
    for (int i = 0; i < kDecodedAtOnce; ++i) x[i] = DecodeCode(kind.codes, codes, i, scale);
    store(group * groups.size + d, x, n);
  }
}

// Stores up to eight elements at x, from one lane.
template <typename T>
__device__ void StoreDecoded(const float (&values)[kDecodedAtOnce], int n, T* x) {
  struct alignas(16) Piece {
    T at[16 / sizeof(T)];
  };
  constexpr int kPiece = 16 / sizeof(T);
  if (n < kDecodedAtOnce || reinterpret_cast<uintptr_t>(x) % sizeof(Piece) != 0) {
    for (int i = 0; i < n; ++i) x[i] = T(values[i]);
    return;
  }
  for (int first = 0; first < kDecodedAtOnce; first += kPiece) {
    Piece piece;
    for (int i = 0; i < kPiece; ++i) piece.at[i] = T(values[first + i]);
    *reinterpret_cast<Piece*>(x + first) = piece;
  }
}

// Decodes a row to x[0, elements()), float or Bfloat16, which the lanes see afterwards.
template <typename T>
__device__ void DecodeRowOfGroups(const GroupedRowFormat& format, RowAddress row, T* x) {
  DecodeCodedElements(format, row, [&](int d, const float(&values)[kDecodedAtOnce], int n) {
    StoreDecoded(values, n, x + d);
  });
  const uint8_t* plain = row.data + format.PlainOffset();
  if constexpr (__is_same(T, Bfloat16)) {
    CopyBytes(plain, 2 * format.plain, reinterpret_cast<uint8_t*>(x + format.coded));
  } else {
    for (int i = LaneId(); i < format.plain; i += kWarp) {
      const auto bits = LoadWord<uint16_t>(plain + 2 * i, sizeof(uint16_t));
      x[format.coded + i] = DecodeFloat<Bfloat16Format>(bits);
    }
  }
  __syncwarp();
}

}  // namespace pagefuse::cuda
