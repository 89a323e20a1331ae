#include "pagefuse/kernels/formats/cache_format.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/kernels/formats/row_codec.h"
#include "pagefuse/kernels/numeric/convert.h"
#include "pagefuse/kernels/numeric/dispatch.h"
#include "pagefuse/kernels/numeric/packing.h"

namespace pagefuse {
namespace {

constexpr std::pair<KvQuantMode, std::string_view> kModes[] = {
    {KvQuantMode::kNone, "none"},
    {KvQuantMode::kFp8PerTensor, "fp8_per_tensor"},
    {KvQuantMode::kInt8PerTokenHead, "int8_per_token_head"},
    {KvQuantMode::kFp8PerTokenHead, "fp8_per_token_head"},
    {KvQuantMode::kInt4PerTokenHead, "int4_per_token_head"},
};

float LargestMagnitude(const float* x, int64_t n) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

void StoreScale(float scale, RowAddress row) { std::memcpy(row.scale, &scale, sizeof(scale)); }

float LoadScale(RowAddress row) {
  float scale;
  std::memcpy(&scale, row.scale, sizeof(scale));
  return scale;
}

void EncodeInt8(Int8Rounding rounding, const float* x, int64_t n, RowAddress row) {
  const float scale = std::max(LargestMagnitude(x, n) / kInt8Max, kScaleFloor);
  const float inverse = 1.0f / scale;
  auto* codes = reinterpret_cast<int8_t*>(row.data);
  for (int64_t i = 0; i < n; ++i) {
    float y = x[i] * inverse;
    if (rounding == Int8Rounding::kHalfEven) y = std::nearbyint(y);
    codes[i] = ConvertElement<int8_t>(y);
  }
  StoreScale(scale, row);
}

void EncodeFp8(const float* x, int64_t n, RowAddress row) {
  const float scale = std::max(LargestMagnitude(x, n) / kE4M3Max, kScaleFloor);
  const float inverse = 1.0f / scale;
  for (int64_t i = 0; i < n; ++i) row.data[i] = EncodeFloat<E4M3FNFormat>(x[i] * inverse);
  StoreScale(scale, row);
}

void EncodeInt4(const RowParams& params, const float* x, int64_t n, RowAddress row) {
  std::vector<float> y(x, x + n);
  for (int64_t i = 0; i < n; ++i) y[i] *= params.rht_signs[i];
  HadamardTransform(y.data(), n);
  RoundThrough(params.source_type, y.data(), n).IgnoreError();  // a type that the op has checked
  float low = y[0];
  float high = y[0];
  for (const float v : y) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  const float scale = std::max((high - low) / kInt4Max, kScaleFloor);
  // 0 for NaN.
  const float zero_point = std::min(std::max(0.0f, std::round(-low / scale)), kInt4Max);
  for (int64_t i = 0; i < n; ++i) {
    const float q = std::clamp(std::round(y[i] / scale + zero_point), 0.0f, kInt4Max);
    if (i % 2 == 0) row.data[i / 2] = 0;
    SetNibble(row.data, i, ConvertElement<uint8_t>(q));
  }
  StoreScale(PackZeroPoint(scale, zero_point), row);
}

}  // namespace

absl::StatusOr<KvQuantMode> ParseKvQuantMode(std::string_view name) {
  std::string known;
  for (const auto& [mode, mode_name] : kModes) {
    if (name == mode_name) return mode;
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(mode_name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected one of ", known, ", got \"", std::string(name), "\""));
}

std::string_view KvQuantModeName(KvQuantMode mode) { return kModes[static_cast<int>(mode)].second; }

absl::StatusOr<Int8Rounding> ParseInt8Rounding(std::string_view name) {
  if (name == "half_even") return Int8Rounding::kHalfEven;
  if (name == "toward_zero") return Int8Rounding::kTowardZero;
  return absl::InvalidArgumentError(
      absl::StrCat("expected one of half_even, toward_zero, got \"", std::string(name), "\""));
}

absl::StatusOr<CacheFormat> CacheFormat::Make(KvQuantMode mode, DataType cache_type) {
  const auto expect = [&](bool allowed, std::string_view types,
                          DataType element) -> absl::StatusOr<CacheFormat> {
    if (allowed) return CacheFormat{.mode = mode, .element = element};
    return absl::InvalidArgumentError(absl::StrCat(
        "expected type ", std::string(types), " for mode \"", std::string(KvQuantModeName(mode)),
        "\", got ", std::string(DataTypeName(cache_type))));
  };
  const bool fp8 = cache_type == DataType::kFloat8E4M3FN || cache_type == DataType::kUint8;
  switch (mode) {
    case KvQuantMode::kNone:
      return expect(cache_type == DataType::kFloat || cache_type == DataType::kFloat16 ||
                        cache_type == DataType::kBfloat16 || cache_type == DataType::kFloat8E4M3FN,
                    "float, float16, bfloat16 or float8e4m3fn", cache_type);
    case KvQuantMode::kFp8PerTensor:
    case KvQuantMode::kFp8PerTokenHead:
      return expect(fp8, "float8e4m3fn or uint8", DataType::kFloat8E4M3FN);
    case KvQuantMode::kInt8PerTokenHead:
      return expect(cache_type == DataType::kInt8, "int8", DataType::kInt8);
    case KvQuantMode::kInt4PerTokenHead:
      return expect(cache_type == DataType::kUint8, "uint8", DataType::kUint8);
  }
  return absl::InternalError("no such mode");
}

int64_t CacheFormat::StoredElements(int64_t head_size) const {
  return mode == KvQuantMode::kInt4PerTokenHead ? PackedBytes(head_size, 4) : head_size;
}

int64_t CacheFormat::RowBytes(int64_t head_size) const {
  return StoredElements(head_size) * BitWidth(element) / 8;
}

int64_t CacheFormat::BytesPerToken(int64_t kv_heads, int64_t key_size, int64_t value_size) const {
  return kv_heads * (RowBytes(key_size) + RowBytes(value_size) + 2 * ScaleBytes());
}

void EncodeRow(const CacheFormat& format, const RowParams& params, const float* x, int64_t n,
               RowAddress row) {
  switch (format.mode) {
    case KvQuantMode::kNone:
      EncodeFromFloat(format.element, x, n, row.data)
          .IgnoreError();  // Make allows float types only
      return;
    case KvQuantMode::kFp8PerTensor:
      for (int64_t i = 0; i < n; ++i) {
        row.data[i] = EncodeFloat<E4M3FNFormat>(x[i] / params.tensor_scale);
      }
      return;
    case KvQuantMode::kInt8PerTokenHead:
      return EncodeInt8(format.int8_rounding, x, n, row);
    case KvQuantMode::kFp8PerTokenHead:
      return EncodeFp8(x, n, row);
    case KvQuantMode::kInt4PerTokenHead:
      return EncodeInt4(params, x, n, row);
  }
}

float DecodeRow(const CacheFormat& format, const RowParams& params, RowAddress row, int64_t n,
                float* codes) {
  if (format.mode == KvQuantMode::kInt4PerTokenHead) {
    const float stored = LoadScale(row);
    const float zero_point = ZeroPointOf(stored);
    for (int64_t i = 0; i < n; ++i) codes[i] = GetNibble(row.data, i) - zero_point;
    return WithoutZeroPoint(stored);
  }
  DecodeToFloat(format.element, row.data, n, codes).IgnoreError();  // never a string type
  if (format.has_row_scales()) return LoadScale(row);
  return format.has_tensor_scale() ? params.tensor_scale : 1.0f;
}

CacheRows DenseRows(const CacheFormat& format, const CacheShape& shape, void* data, void* scales) {
  CacheRows rows;
  rows.data = static_cast<uint8_t*>(data);
  rows.num_blocks = shape.num_blocks;
  rows.block_size = shape.block_size;
  const auto dense = [&](int64_t bytes) {
    const int64_t row = bytes * shape.kv_heads;
    return CacheRows::Strides{.block = row * shape.block_size, .row = row, .head = bytes};
  };
  rows.data_strides = dense(format.RowBytes(shape.head_size));
  if (format.has_row_scales()) {
    rows.scales = static_cast<uint8_t*>(scales);
    rows.scale_strides = dense(format.ScaleBytes());
  }
  return rows;
}

PageRows InlinePageRows(const CacheFormat& format, const CacheShape& shape, void* page) {
  const int64_t row_bytes = format.RowBytes(shape.head_size);
  const int64_t head = row_bytes + format.ScaleBytes();
  const int64_t part = shape.block_size * shape.kv_heads * head;
  const CacheRows::Strides strides = {
      .block = 2 * part, .row = shape.kv_heads * head, .head = head};
  const auto rows_at = [&](uint8_t* data) {
    CacheRows rows;
    rows.data = data;
    rows.num_blocks = shape.num_blocks;
    rows.block_size = shape.block_size;
    rows.data_strides = strides;
    if (format.has_row_scales()) {
      rows.scales = data + row_bytes;
      rows.scale_strides = strides;
    }
    return rows;
  };
  auto* base = static_cast<uint8_t*>(page);
  return {.key = rows_at(base), .value = rows_at(base + part)};
}

void HadamardTransform(float* x, int64_t n) {
  for (int64_t distance = 1; distance < n; distance *= 2) {
    for (int64_t start = 0; start < n; start += 2 * distance) {
      for (int64_t i = start; i < start + distance; ++i) {
        const float a = x[i];
        const float b = x[i + distance];
        x[i] = a + b;
        x[i + distance] = a - b;
      }
    }
  }
}

}  // namespace pagefuse
