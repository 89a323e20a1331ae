// SPDX-License-Identifier: Apache-2.0
// What a format of cache rows is: one RowFormat each, in the file of its name, with its vectors in
// the -inl.h file beside it. docs/adding_a_cache_format.md walks through one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pagefuse/base/data_type.h"

namespace pagefuse {

struct CacheFormat;
struct RowAddress;
struct RowParams;

// The values of the attribute `kv_quant_mode`, in the order in which messages list them.
enum class KvQuantMode {
  kNone,
  kFp8PerTensor,
  kInt8PerTokenHead,
  kFp8PerTokenHead,
  kInt4PerTokenHead,
};

// The values of the attribute `int8_rounding`.
enum class Int8Rounding { kHalfEven, kTowardZero };

// How many scales there are: one for the tensor (or a head), or one a row in a tensor beside it.
enum class ScaleKind { kNone, kTensor, kRow };

// What PagedAttention multiplies by queries and weights.
enum class RowOperand {
  kNumber,       // the number that is stored, rounded to the type of the queries
  kCode,         // the code, which every type holds; the row's scale multiplies score and weight
  kTransformed,  // the number as float in the space of the Hadamard transform, where queries and
                 // outputs are rounded to the type of the queries
};

// A name that --kv-cache takes, and the type of the cache tensor that it makes; kUndefined: the type
// of keys and values.
struct CacheName {
  std::string_view name;
  DataType stored;
};

// What decides the nodes that encode rows.
struct EncodeText {
  DataType source_type = DataType::kFloat;  // of the rows, before they were cast to float
  Int8Rounding int8_rounding = Int8Rounding::kHalfEven;
  bool scale_per_head = false;  // ScaleKind::kTensor: one a head
  int64_t head_size = 0;        // 0 where it is not known; kTransformed needs it
};

struct RowFormat {
  KvQuantMode mode = KvQuantMode::kNone;
  std::string_view name;  // in `kv_quant_mode`
  std::vector<CacheName> cache_names;
  std::vector<DataType> types;  // of cache tensors
  // What their elements are: uint8 may stand for float8. kUndefined: of the type that they have.
  DataType element = DataType::kUndefined;
  int code_bits = 8;  // 4: two codes an element
  ScaleKind scales = ScaleKind::kNone;
  RowOperand operand = RowOperand::kNumber;
  bool has_rounding = false;  // `int8_rounding` says how

  // EncodeRow and DecodeRow. No `decode`: elements are the codes.
  void (*encode)(const CacheFormat& format, const RowParams& params, const float* x, int64_t n,
                 RowAddress row) = nullptr;
  float (*decode)(RowAddress row, int64_t n, float* codes) = nullptr;

  // Nodes in standard ONNX ops; names begin with $p. From `$x`, float rows [T, H, D], and $scale:
  // $p_codes of float8 or $p_stored of what the cache stores, and with row scales $p_row_scale
  // [T, H, 1] and its axis $p_axis. None: rows are cast.
  std::string (*encode_text)(const EncodeText& options) = nullptr;
  // From `$x`, a cache of elements, with $scale or $scales: $p_numbers, float [NB, BS, H, D]. Empty:
  // elements are the codes.
  std::string_view decode_text = {};
};

// The definitions; cache_format.cc has them in a table.
RowFormat NoneFormat();
RowFormat Fp8PerTensorFormat();
RowFormat Int8PerTokenHeadFormat();
RowFormat Fp8PerTokenHeadFormat();
RowFormat Int4PerTokenHeadFormat();

// In the order of the enum.
std::span<const RowFormat> RowFormats();
const RowFormat& RowFormatOf(KvQuantMode mode);

}  // namespace pagefuse
