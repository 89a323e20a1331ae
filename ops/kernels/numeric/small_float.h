// SPDX-License-Identifier: Apache-2.0
// The floating-point formats narrower than float: their codes, exact scalar conversion, and value
// types.
//
// format     | bits s.e.m | bias | largest | specials                      | source
// float16    | 1.5.10     | 15   | 65504   | infinities, NaN               | IEEE 754 binary16
// bfloat16   | 1.8.7      | 127  | 3.39e38 | infinities, NaN               | upper half of a float
// e4m3fn     | 1.4.3      | 7    | 448     | NaN s.1111.111, no infinity   | OCP OFP8 1.0, ONNX
// e4m3fnuz   | 1.4.3      | 8    | 240     | NaN 0x80, no infinity, no -0  | ONNX
// e5m2       | 1.5.2      | 15   | 57344   | infinities, NaN               | OCP OFP8 1.0, ONNX
// e5m2fnuz   | 1.5.2      | 16   | 57344   | NaN 0x80, no infinity, no -0  | ONNX
// e2m1       | 1.2.1      | 1    | 6       | none                          | OCP MX 1.0, ONNX
// e8m0       | 0.8.0      | 127  | 2^127   | NaN 0xFF, no zero, no sign    | OCP MX 1.0, ONNX
// ONNX calls the last two FLOAT4E2M1 and FLOAT8E8M0.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace pagefuse {

enum class FloatSpecials {
  kIeee,  // top exponent: mantissa 0 is infinity, anything else NaN
  kFn,    // all ones is NaN, there is no infinity
  kFnuz,  // the code of -0 is NaN, there is no infinity
  kNone,  // every code is a number
};

// What happens to a magnitude that rounds beyond the largest number, and to infinity: ONNX Cast's
// `saturate`.
enum class Overflow {
  kSaturate,  // the largest number
  kSpecial,   // infinity where the format has it, else NaN
};

template <typename StorageType, int exponent_bits, int mantissa_bits, int bias,
          FloatSpecials specials>
struct FloatFormat {
  using Storage = StorageType;
  static constexpr int kMantissaBits = mantissa_bits;
  static constexpr int kBias = bias;
  static constexpr FloatSpecials kSpecials = specials;

  static constexpr uint32_t kSignBit = uint32_t{1} << (exponent_bits + mantissa_bits);
  static constexpr uint32_t kMagnitudeMask = kSignBit - 1;
  // Code of infinity; of what would be infinity in formats without it.
  static constexpr uint32_t kTopExponent = kMagnitudeMask >> mantissa_bits << mantissa_bits;
  static constexpr uint32_t kMaxFinite = specials == FloatSpecials::kIeee ? kTopExponent - 1
                                         : specials == FloatSpecials::kFn ? kMagnitudeMask - 1
                                                                          : kMagnitudeMask;
  // The 16-bit types follow IEEE 754 (overflow gives infinity), the narrower ones what ONNX does by
  // default.
  static constexpr Overflow kDefaultOverflow =
      sizeof(Storage) == 2 ? Overflow::kSpecial : Overflow::kSaturate;
};

using Float16Format = FloatFormat<uint16_t, 5, 10, 15, FloatSpecials::kIeee>;
using Bfloat16Format = FloatFormat<uint16_t, 8, 7, 127, FloatSpecials::kIeee>;
using E4M3FNFormat = FloatFormat<uint8_t, 4, 3, 7, FloatSpecials::kFn>;
using E4M3FNUZFormat = FloatFormat<uint8_t, 4, 3, 8, FloatSpecials::kFnuz>;
using E5M2Format = FloatFormat<uint8_t, 5, 2, 15, FloatSpecials::kIeee>;
using E5M2FNUZFormat = FloatFormat<uint8_t, 5, 2, 16, FloatSpecials::kFnuz>;
using E2M1Format = FloatFormat<uint8_t, 2, 1, 1, FloatSpecials::kNone>;  // low four bits

// The code of a float NaN with these bits. 16-bit types keep sign and payload (made quiet), as the
// hardware conversions do; 8-bit types keep the sign where they can. e2m1 has none and takes +6 for
// either sign: so ONNX's table of casts to float4 has it, where OCP MX 1.0 leaves it open.
template <typename F>
constexpr typename F::Storage NanCode(uint32_t float_bits) {
  const uint32_t sign = float_bits >> 31 ? F::kSignBit : 0;
  if constexpr (F::kSpecials == FloatSpecials::kNone) {
    return F::kMaxFinite;
  } else if constexpr (F::kSpecials == FloatSpecials::kFnuz) {
    return F::kSignBit;
  } else if constexpr (sizeof(typename F::Storage) == 1) {
    return static_cast<typename F::Storage>(sign | F::kMagnitudeMask);
  } else {
    constexpr uint32_t kQuiet = uint32_t{1} << (F::kMantissaBits - 1);
    const uint32_t payload = (float_bits & 0x7FFFFF) >> (23 - F::kMantissaBits);
    return static_cast<typename F::Storage>(sign | F::kTopExponent | kQuiet | payload);
  }
}

// The magnitude of a float that is no NaN, rounded to nearest even as if the exponent had no upper
// end: codes above kMaxFinite overflow.
template <typename F>
constexpr uint32_t RoundMagnitude(uint32_t magnitude) {
  constexpr int kShift = 23 - F::kMantissaBits;
  constexpr uint32_t kMinNormal = uint32_t{127 - F::kBias + 1} << 23;
  if (magnitude >= kMinNormal) {
    const uint32_t odd = magnitude >> kShift & 1;
    const uint32_t rounded = magnitude + (uint32_t{1} << (kShift - 1)) - 1 + odd;
    return (rounded >> kShift) - (uint32_t{127 - F::kBias} << F::kMantissaBits);
  }
  // Subnormal. A float of 2^23 steps has a unit in the last place of one step: adding it makes the
  // FPU round.
  constexpr uint32_t kRounder = uint32_t{1 - F::kBias - F::kMantissaBits + 23 + 127} << 23;
  const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kRounder);
  return std::bit_cast<uint32_t>(sum) - kRounder;
}

// Rounds to nearest, ties to the even code.
template <typename F>
constexpr typename F::Storage EncodeFloat(float x, Overflow overflow = F::kDefaultOverflow) {
  using Storage = typename F::Storage;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return NanCode<F>(bits);
  const uint32_t sign = bits >> 31 ? F::kSignBit : 0;
  uint32_t code = RoundMagnitude<F>(magnitude);
  if (code > F::kMaxFinite) {
    if (overflow == Overflow::kSaturate || F::kSpecials == FloatSpecials::kNone) {
      code = F::kMaxFinite;
    } else if constexpr (F::kSpecials == FloatSpecials::kIeee) {
      code = F::kTopExponent;
    } else {
      return NanCode<F>(bits);
    }
  }
  if (F::kSpecials == FloatSpecials::kFnuz && code == 0) return 0;
  return static_cast<Storage>(sign | code);
}

// Exact: a float holds every value of every format here.
template <typename F>
constexpr float DecodeFloat(typename F::Storage code) {
  constexpr int kShift = 23 - F::kMantissaBits;
  const uint32_t magnitude = code & F::kMagnitudeMask;
  const uint32_t sign = code & F::kSignBit ? 0x80000000u : 0;
  if constexpr (F::kSpecials == FloatSpecials::kIeee) {
    if (magnitude >= F::kTopExponent) {
      return std::bit_cast<float>(sign | 0x7F800000 | (magnitude - F::kTopExponent) << kShift);
    }
  } else if constexpr (F::kSpecials == FloatSpecials::kFn) {
    if (magnitude == F::kMagnitudeMask) return std::bit_cast<float>(sign | 0x7FC00000);
  } else if constexpr (F::kSpecials == FloatSpecials::kFnuz) {
    if (code == F::kSignBit) return std::numeric_limits<float>::quiet_NaN();
  }
  if constexpr (F::kBias == 127) return std::bit_cast<float>(sign | magnitude << kShift);
  // The same bits read as a float are the value times 2^(bias - 127).
  constexpr uint32_t kScale = uint32_t{127 + 127 - F::kBias} << 23;
  return std::bit_cast<float>(sign | magnitude << kShift) * std::bit_cast<float>(kScale);
}

// Rounding to a power of two: ONNX Cast's `round_mode`.
enum class E8M0Rounding { kUp, kDown, kNearest };

// The code b of 2^(b - 127) for the magnitude of x; the sign is ignored. kUp: the smallest power
// that is not less; kNearest takes the larger one at a tie. Magnitudes below 2^-127 give code 0.
// Past 2^127: code 254 (saturate) or NaN. Infinity and NaN give NaN.
constexpr uint8_t EncodeE8M0(float x, E8M0Rounding rounding = E8M0Rounding::kUp,
                             Overflow overflow = Overflow::kSaturate) {
  const uint32_t bits = std::bit_cast<uint32_t>(x) & 0x7FFFFFFF;
  if (bits >= 0x7F800000) return 0xFF;
  constexpr uint32_t kHalf = 0x400000;  // the mantissa of 1.5, and all bits of 2^-127
  uint32_t exponent = bits >> 23;
  const uint32_t mantissa = bits & 0x7FFFFF;
  // Below 2^-126 the mantissa has no implied one: 2^-127 is kHalf, 1.5 * 2^-127 is kHalf + kHalf/2.
  const uint32_t exact = exponent == 0 ? kHalf : 0;
  const uint32_t tie = exponent == 0 ? kHalf + kHalf / 2 : kHalf;
  if (rounding == E8M0Rounding::kUp && mantissa > exact) ++exponent;
  if (rounding == E8M0Rounding::kNearest && mantissa >= tie) ++exponent;
  if (exponent == 0xFF && overflow == Overflow::kSaturate) exponent = 0xFE;
  return static_cast<uint8_t>(exponent);
}

constexpr float DecodeE8M0(uint8_t code) {
  if (code == 0xFF) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(code == 0 ? 0x400000u : uint32_t{code} << 23);
}

// A number of format F in memory. Trivially copyable; arithmetic is done in float.
template <typename F>
struct SmallFloat {
  using Format = F;
  using Storage = typename F::Storage;
  Storage bits;

  SmallFloat() = default;
  explicit constexpr SmallFloat(float x, Overflow overflow = F::kDefaultOverflow)
      : bits(EncodeFloat<F>(x, overflow)) {}
  static constexpr SmallFloat FromBits(Storage bits) {
    SmallFloat x(0.0f);
    x.bits = bits;
    return x;
  }
  template <typename T>
  requires std::is_arithmetic_v<T>
  explicit constexpr operator T() const { return static_cast<T>(DecodeFloat<F>(bits)); }
};

using Float16 = SmallFloat<Float16Format>;
using Bfloat16 = SmallFloat<Bfloat16Format>;
using Float8E4M3FN = SmallFloat<E4M3FNFormat>;
using Float8E4M3FNUZ = SmallFloat<E4M3FNUZFormat>;
using Float8E5M2 = SmallFloat<E5M2Format>;
using Float8E5M2FNUZ = SmallFloat<E5M2FNUZFormat>;

// A power of two in memory.
struct Float8E8M0 {
  using Storage = uint8_t;
  Storage bits;

  Float8E8M0() = default;
  explicit constexpr Float8E8M0(float x, Overflow overflow = Overflow::kSaturate,
                                E8M0Rounding rounding = E8M0Rounding::kUp)
      : bits(EncodeE8M0(x, rounding, overflow)) {}
  static constexpr Float8E8M0 FromBits(Storage bits) {
    Float8E8M0 x(1.0f);
    x.bits = bits;
    return x;
  }
  template <typename T>
  requires std::is_arithmetic_v<T>
  explicit constexpr operator T() const { return static_cast<T>(DecodeE8M0(bits)); }
};

template <typename T>
inline constexpr bool kIsSmallFloat = false;
template <typename F>
inline constexpr bool kIsSmallFloat<SmallFloat<F>> = true;
template <>
inline constexpr bool kIsSmallFloat<Float8E8M0> = true;

// The 256 values of an 8-bit type.
template <typename T>
inline constexpr std::array<float, 256> kFloat8Table = [] {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    table[code] = static_cast<float>(T::FromBits(static_cast<uint8_t>(code)));
  }
  return table;
}();

// The 16 values of e2m1.
inline constexpr std::array<float, 16> kFloat4E2M1Table = [] {
  std::array<float, 16> table{};
  for (int code = 0; code < 16; ++code) {
    table[code] = DecodeFloat<E2M1Format>(static_cast<uint8_t>(code));
  }
  return table;
}();

}  // namespace pagefuse
