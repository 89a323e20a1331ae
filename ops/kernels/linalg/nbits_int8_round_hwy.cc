// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // VNNI
// Rows of x as integers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "pagefuse/ops/kernels/linalg/nbits_int8_hwy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/nbits_int8_round_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/linalg/nbits_int8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

// Rounds 32 numbers; returns their unit and sets *sum to that of the integers.
HWY_INLINE float RoundBlock(const float* x, int8_t* to, int32_t* sum) {
  const DF df;
  const D32 d32;
  const hn::Rebind<int16_t, DF> d16;
  const hn::Rebind<int8_t, DF> d8;
  auto most = hn::Zero(df);
  auto all = hn::Zero(df);  // Max may drop a NaN
  for (int64_t i = 0; i < kInt8Block; i += kLanes) {
    const auto magnitude = hn::Abs(hn::LoadU(df, x + i));
    most = hn::Max(most, magnitude);
    all = hn::Add(all, hn::Mul(magnitude, hn::Set(df, 0x1p-5f)));
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(df, most));
  const bool usual = std::isfinite(hn::GetLane(hn::SumOfLanes(df, all)));
  const float unit = largest / 127;
  // Units that are subnormal have no reciprocal.
  const float factor = usual && unit >= std::numeric_limits<float>::min() ? 127 / largest : 0;
  auto total = hn::Zero(d32);
  for (int64_t i = 0; i < kInt8Block; i += kLanes) {
    const auto v = hn::LoadU(df, x + i);
    const auto whole = hn::NearestInt(usual ? hn::Mul(v, hn::Set(df, factor)) : hn::Zero(df));
    total = hn::Add(total, whole);
    hn::StoreU(hn::DemoteTo(d8, hn::DemoteTo(d16, whole)), d8, to + i);
  }
  *sum = hn::GetLane(hn::SumOfLanes(d32, total));
  return usual ? (factor > 0 ? unit : 0) : std::numeric_limits<float>::quiet_NaN();
}

// The even bytes of a block, then the odd ones.
HWY_INLINE void SplitBlock(const int8_t* block, int8_t* to) {
  const hn::Full128<int16_t> d16;
  const hn::Rebind<uint8_t, decltype(d16)> d8;
  for (int64_t i = 0; i < kInt8Block / 2; i += 8) {
    const auto pairs = hn::LoadU(d16, reinterpret_cast<const int16_t*>(block + 2 * i));
    const auto odd = hn::ShiftRight<8>(hn::BitCast(hn::RebindToUnsigned<decltype(d16)>(), pairs));
    auto* bytes = reinterpret_cast<uint8_t*>(to + i);
    hn::StoreU(hn::DemoteTo(d8, hn::And(pairs, hn::Set(d16, 0xFF))), d8, bytes);
    hn::StoreU(hn::DemoteTo(d8, hn::BitCast(d16, odd)), d8, bytes + kInt8Block / 2);
  }
}

void RoundRow(const float* x, int64_t k, int bits, int64_t row, const Int8Rows& to) {
  for (int64_t b = 0; b < to.blocks; ++b) {
    HWY_ALIGN int8_t block[kInt8Block] = {};
    HWY_ALIGN float rest[kInt8Block] = {};
    const int64_t begin = b * kInt8Block;
    const float* from = x + begin;
    if (begin + kInt8Block > k) {
      std::copy(x + std::min(begin, k), x + k, rest);
      from = rest;
    }
    int32_t sum = 0;
    const int64_t at = to.At(row, b);
    to.units[at] = begin < k ? RoundBlock(from, block, &sum) : 0;
    to.starts[at] = -sum * (bits == 8 ? Centre<8>() : Centre<4>());
    to.unit_sums[at] = to.units[at] * static_cast<float>(sum);
    int8_t* codes = to.codes + at * kInt8Block;
    if (bits == 8) {
      std::memcpy(codes, block, sizeof(block));
    } else {
      SplitBlock(block, codes);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(RoundRow);

void RoundToInt8(const float* x, int64_t k, int bits, int64_t row, const Int8Rows& to) {
  HWY_DYNAMIC_DISPATCH(RoundRow)(x, k, bits, row, to);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
