// SPDX-License-Identifier: Apache-2.0
// KV-cache formats: how a row (one token, one head) becomes bytes and back. Where its bytes and
// scales lie: cache_rows.h.
//
// The scalar functions here are the definition. Kernels use the vectors of for_format-inl.h, which
// give the same bytes. docs/formats.md draws every format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/formats/cache_rows.h"
#include "pagefuse/ops/kernels/formats/row_format.h"

namespace pagefuse {

// InvalidArgument `unknown mode "x"` listing the known ones.
absl::StatusOr<KvQuantMode> ParseKvQuantMode(std::string_view name);
std::string_view KvQuantModeName(KvQuantMode mode);
// "none, fp8_per_tensor, ...", with those that need signs or without.
std::string KvQuantModeNames(bool with_signs = true);
// InvalidArgument `unknown rounding "x"` listing the known ones.
absl::StatusOr<Int8Rounding> ParseInt8Rounding(std::string_view name);
std::string_view Int8RoundingName(Int8Rounding rounding);

// The format whose codes are of type `element` under such scales, none of them transformed; null if
// there is none.
const RowFormat* FindRowFormat(DataType element, ScaleKind scales);

// What is stored for one row. A value type; sizes are in bytes.
struct CacheFormat {
  KvQuantMode mode = KvQuantMode::kNone;
  // The logical type of a stored element: what UINT8 stands for where a cache of float8 comes as
  // its twin. kUint8 for int4 rows.
  DataType element = DataType::kFloat;
  Int8Rounding int8_rounding = Int8Rounding::kHalfEven;

  // The format of a cache tensor of type `cache_type` under `mode`. InvalidArgument `expected type
  // ..., got ...` where the mode does not allow the type.
  static absl::StatusOr<CacheFormat> Make(KvQuantMode mode, DataType cache_type);
  // The same of this mode and rounding.
  absl::StatusOr<CacheFormat> StoredAs(DataType cache_type) const;

  const RowFormat& row() const { return RowFormatOf(mode); }
  std::string_view name() const { return row().name; }
  // Rows are the numbers themselves, in any type.
  bool is_plain() const { return row().element == DataType::kUndefined; }
  // One float scale for each row, in a tensor (or place) of its own.
  bool has_row_scales() const { return row().scales == ScaleKind::kRow; }
  bool has_tensor_scale() const { return row().scales == ScaleKind::kTensor; }
  // Rows are transformed with these.
  bool needs_signs() const { return row().operand == RowOperand::kTransformed; }
  // Whether rows may have `head_size` elements: a power of two where they are transformed.
  bool TakesSize(int64_t head_size) const;

  // Last dimension of the cache tensor for rows of `head_size` elements.
  int64_t StoredElements(int64_t head_size) const;
  int64_t RowBytes(int64_t head_size) const;
  int64_t ScaleBytes() const { return has_row_scales() ? 4 : 0; }
  // What a token costs in memory, keys and values together.
  int64_t BytesPerToken(int64_t kv_heads, int64_t key_size, int64_t value_size) const;

  bool operator==(const CacheFormat&) const = default;
};

// Parameters of a row that are not stored with it.
struct RowParams {
  float tensor_scale = 1.0f;         // fp8_per_tensor
  const float* rht_signs = nullptr;  // int4: [head_size], +-1
  DataType source_type =
      DataType::kFloat;  // int4: the transformed row is rounded to it before it is quantised
};

// Encodes x[0, n). Writes RowBytes(n) bytes of data and, with row scales, the scale. Exact
// semantics: the op PagedCacheInsert.
void EncodeRow(const CacheFormat& format, const RowParams& params, const float* x, int64_t n,
               RowAddress row);

// Decodes a row of n elements to codes[0, n) and returns its scale: element d is codes[d] * scale
// (one rounding to float). int4 rows come back in the transformed space (see HadamardTransform):
// element d is (H (signs * x))_d, so that x = signs * (H y) / n.
float DecodeRow(const CacheFormat& format, const RowParams& params, RowAddress row, int64_t n,
                float* codes);

// Rows of a dense cache tensor and its dense scale tensor (null without row scales).
CacheRows DenseRows(const CacheFormat& format, const CacheShape& shape, void* data, void* scales);

// In place y = H x, H the unnormalised Sylvester-Hadamard matrix: H_1 = [1], H_2n = [[H, H], [H,
// -H]]. n is a power of two. The butterflies run in the order of growing distance, so that every
// implementation rounds alike.
void HadamardTransform(float* x, int64_t n);

}  // namespace pagefuse
