// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/numeric/convert.cc"
#include "pagefuse/ops/kernels/numeric/convert.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/base/packed_types.h"
#include "pagefuse/ops/kernels/numeric/convert-inl.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/kernels/numeric/packed_elements.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

void Float16ToFloat(const Float16* from, size_t count, float* to) { ConvertArray(from, count, to); }
void Bfloat16ToFloat(const Bfloat16* from, size_t count, float* to) {
  ConvertArray(from, count, to);
}
void E4M3ToFloat(const Float8E4M3FN* from, size_t count, float* to) {
  ConvertArray(from, count, to);
}
void E5M2ToFloat(const Float8E5M2* from, size_t count, float* to) { ConvertArray(from, count, to); }
void Int8ToFloat(const int8_t* from, size_t count, float* to) { ConvertArray(from, count, to); }
void Uint8ToFloat(const uint8_t* from, size_t count, float* to) { ConvertArray(from, count, to); }
void FloatToFloat16(const float* from, size_t count, Float16* to) { ConvertArray(from, count, to); }
void FloatToBfloat16(const float* from, size_t count, Bfloat16* to) {
  ConvertArray(from, count, to);
}
void FloatToE4M3(const float* from, size_t count, Float8E4M3FN* to) {
  ConvertArray(from, count, to);
}
void FloatToE5M2(const float* from, size_t count, Float8E5M2* to) { ConvertArray(from, count, to); }

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(Float16ToFloat);
HWY_EXPORT(Bfloat16ToFloat);
HWY_EXPORT(E4M3ToFloat);
HWY_EXPORT(E5M2ToFloat);
HWY_EXPORT(Int8ToFloat);
HWY_EXPORT(Uint8ToFloat);
HWY_EXPORT(FloatToFloat16);
HWY_EXPORT(FloatToBfloat16);
HWY_EXPORT(FloatToE4M3);
HWY_EXPORT(FloatToE5M2);

namespace {

// The value of a packed code.
float DecodePacked(DataType type, uint8_t code) {
  if (type == DataType::kFloat4E2M1) return kFloat4E2M1Table[code];
  return IsSigned(type) ? SignExtendPacked(code, BitWidth(type)) : static_cast<float>(code);
}

uint8_t EncodePacked(DataType type, float x) {
  // The type has no NaN; the standard gives its code of -0.
  if (type == DataType::kFloat4E2M1) return x != x ? 8 : EncodeFloat<E2M1Format>(x);
  const int codes = 1 << BitWidth(type);
  const auto low = static_cast<float>(IsSigned(type) ? -codes / 2 : 0);
  const float high = low + static_cast<float>(codes - 1);
  const float clamped = x < low ? low : (x > high ? high : x);
  return static_cast<uint8_t>(ConvertElement<int32_t>(clamped) & (codes - 1));
}

template <typename To>
absl::Status DecodePlain(DataType type, const void* from, int64_t count, To* to) {
  if (IsPacked(type)) {
    const auto* packed = static_cast<const uint8_t*>(from);
    const int bits = BitWidth(type);
    for (int64_t i = 0; i < count; ++i) to[i] = DecodePacked(type, GetPacked(packed, i, bits));
    return absl::OkStatus();
  }
  return DispatchType(type, [&]<typename T>() {
    const auto* bytes = static_cast<const std::byte*>(from);
    for (int64_t i = 0; i < count; ++i) {
      T element;
      std::memcpy(&element, bytes + i * sizeof(T), sizeof(T));  // rows of caches are unaligned
      to[i] = static_cast<To>(element);
    }
  });
}

}  // namespace

absl::Status DecodeToDouble(DataType type, const void* from, int64_t count, double* to) {
  return DecodePlain(type, from, count, to);
}

absl::Status DecodeToFloat(DataType type, const void* from, int64_t count, float* to) {
  const size_t n = static_cast<size_t>(count);
  switch (type) {
    case DataType::kFloat16:
      HWY_DYNAMIC_DISPATCH(Float16ToFloat)(static_cast<const Float16*>(from), n, to);
      return absl::OkStatus();
    case DataType::kBfloat16:
      HWY_DYNAMIC_DISPATCH(Bfloat16ToFloat)(static_cast<const Bfloat16*>(from), n, to);
      return absl::OkStatus();
    case DataType::kFloat8E4M3FN:
      HWY_DYNAMIC_DISPATCH(E4M3ToFloat)(static_cast<const Float8E4M3FN*>(from), n, to);
      return absl::OkStatus();
    case DataType::kFloat8E5M2:
      HWY_DYNAMIC_DISPATCH(E5M2ToFloat)(static_cast<const Float8E5M2*>(from), n, to);
      return absl::OkStatus();
    case DataType::kInt8:
      HWY_DYNAMIC_DISPATCH(Int8ToFloat)(static_cast<const int8_t*>(from), n, to);
      return absl::OkStatus();
    case DataType::kUint8:
      HWY_DYNAMIC_DISPATCH(Uint8ToFloat)(static_cast<const uint8_t*>(from), n, to);
      return absl::OkStatus();
    default:
      return DecodePlain(type, from, count, to);
  }
}

absl::Status EncodeFromFloat(DataType type, const float* from, int64_t count, void* to,
                             bool saturate) {
  const size_t n = static_cast<size_t>(count);
  if (type == DataType::kFloat16) {
    HWY_DYNAMIC_DISPATCH(FloatToFloat16)(from, n, static_cast<Float16*>(to));
    return absl::OkStatus();
  }
  if (type == DataType::kBfloat16) {
    HWY_DYNAMIC_DISPATCH(FloatToBfloat16)(from, n, static_cast<Bfloat16*>(to));
    return absl::OkStatus();
  }
  if (type == DataType::kFloat8E4M3FN && saturate) {
    HWY_DYNAMIC_DISPATCH(FloatToE4M3)(from, n, static_cast<Float8E4M3FN*>(to));
    return absl::OkStatus();
  }
  if (type == DataType::kFloat8E5M2 && saturate) {
    HWY_DYNAMIC_DISPATCH(FloatToE5M2)(from, n, static_cast<Float8E5M2*>(to));
    return absl::OkStatus();
  }
  if (IsPacked(type)) {
    auto* packed = static_cast<uint8_t*>(to);
    const int bits = BitWidth(type);
    for (int64_t i = 0; i < count; ++i) {
      if (i * bits % 8 == 0) packed[i * bits / 8] = 0;
      SetPacked(packed, i, bits, EncodePacked(type, from[i]));
    }
    return absl::OkStatus();
  }
  return DispatchType(type, [&]<typename T>() {
    auto* bytes = static_cast<std::byte*>(to);
    for (int64_t i = 0; i < count; ++i) {
      const T element = ConvertElement<T>(from[i], saturate);
      std::memcpy(bytes + i * sizeof(T), &element, sizeof(T));
    }
  });
}

absl::Status RoundThrough(DataType type, float* values, int64_t count) {
  if (type == DataType::kFloat) return absl::OkStatus();
  return DispatchFloat(type, [&]<typename T>() {
    constexpr int64_t kChunk = 256;
    T chunk[kChunk];
    for (int64_t i = 0; i < count; i += kChunk) {
      const int64_t n = std::min(kChunk, count - i);
      EncodeFromFloat(type, values + i, n, chunk).IgnoreError();  // the type has conversions
      DecodeToFloat(type, chunk, n, values + i).IgnoreError();
    }
  });
}

}  // namespace pagefuse
#endif  // HWY_ONCE
