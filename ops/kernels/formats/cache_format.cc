// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/formats/cache_format.h"

#include <algorithm>
#include <array>
#include <bit>

#include "absl/strings/str_cat.h"

#include "pagefuse/ops/kernels/formats/row_codec.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/numeric/packing.h"

namespace pagefuse {
namespace {

// "a, b or c".
std::string Alternatives(std::span<const DataType> types) {
  std::string text;
  for (size_t i = 0; i < types.size(); ++i) {
    const char* before = i == 0 ? "" : i + 1 == types.size() ? " or " : ", ";
    absl::StrAppend(&text, before, std::string(DataTypeName(types[i])));
  }
  return text;
}

}  // namespace

std::span<const RowFormat> RowFormats() {
  static const std::array formats = {NoneFormat(), Fp8PerTensorFormat(), Int8PerTokenHeadFormat(),
                                     Fp8PerTokenHeadFormat(), Int4PerTokenHeadFormat()};
  return formats;
}

const RowFormat& RowFormatOf(KvQuantMode mode) { return RowFormats()[static_cast<size_t>(mode)]; }

absl::StatusOr<KvQuantMode> ParseKvQuantMode(std::string_view name) {
  for (const RowFormat& format : RowFormats()) {
    if (name == format.name) return format.mode;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected one of ", KvQuantModeNames(), ", got \"", std::string(name), "\""));
}

std::string_view KvQuantModeName(KvQuantMode mode) { return RowFormatOf(mode).name; }

std::string KvQuantModeNames(bool with_signs) {
  std::string names;
  for (const RowFormat& format : RowFormats()) {
    if (format.operand == RowOperand::kTransformed && !with_signs) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(format.name));
  }
  return names;
}

absl::StatusOr<Int8Rounding> ParseInt8Rounding(std::string_view name) {
  for (const Int8Rounding rounding : {Int8Rounding::kHalfEven, Int8Rounding::kTowardZero}) {
    if (name == Int8RoundingName(rounding)) return rounding;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected one of half_even, toward_zero, got \"", std::string(name), "\""));
}

std::string_view Int8RoundingName(Int8Rounding rounding) {
  return rounding == Int8Rounding::kHalfEven ? "half_even" : "toward_zero";
}

const RowFormat* FindRowFormat(DataType element, ScaleKind scales) {
  for (const RowFormat& format : RowFormats()) {
    if (format.operand != RowOperand::kTransformed && format.element == element &&
        format.scales == scales) {
      return &format;
    }
  }
  return nullptr;
}

absl::StatusOr<CacheFormat> CacheFormat::Make(KvQuantMode mode, DataType cache_type) {
  return CacheFormat{.mode = mode}.StoredAs(cache_type);
}

absl::StatusOr<CacheFormat> CacheFormat::StoredAs(DataType cache_type) const {
  const RowFormat& format = row();
  if (std::find(format.types.begin(), format.types.end(), cache_type) == format.types.end()) {
    return absl::InvalidArgumentError(absl::StrCat("expected type ", Alternatives(format.types),
                                                   " for mode \"", std::string(name()), "\", got ",
                                                   std::string(DataTypeName(cache_type))));
  }
  CacheFormat stored = *this;
  stored.element = is_plain() ? cache_type : format.element;
  return stored;
}

bool CacheFormat::TakesSize(int64_t head_size) const {
  return !needs_signs() ||
         (head_size >= 2 && std::has_single_bit(static_cast<uint64_t>(head_size)));
}

int64_t CacheFormat::StoredElements(int64_t head_size) const {
  return PackedBytes(head_size, row().code_bits);
}

int64_t CacheFormat::RowBytes(int64_t head_size) const {
  return StoredElements(head_size) * BitWidth(element) / 8;
}

int64_t CacheFormat::BytesPerToken(int64_t kv_heads, int64_t key_size, int64_t value_size) const {
  return kv_heads * (RowBytes(key_size) + RowBytes(value_size) + 2 * ScaleBytes());
}

void EncodeRow(const CacheFormat& format, const RowParams& params, const float* x, int64_t n,
               RowAddress row) {
  format.row().encode(format, params, x, n, row);
}

float DecodeRow(const CacheFormat& format, const RowParams& params, RowAddress row, int64_t n,
                float* codes) {
  if (format.row().decode != nullptr) return format.row().decode(row, n, codes);
  DecodeToFloat(format.element, row.data, n, codes).IgnoreError();  // never a string type
  if (format.has_row_scales()) return LoadRowScale(row);
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
