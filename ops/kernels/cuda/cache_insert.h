// SPDX-License-Identifier: Apache-2.0
// PagedCacheInsert on the device: rows of keys and values written to their slots of a paged cache.
#pragma once

#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/launch.h"
#include "pagefuse/ops/kernels/formats/cache_rows.h"
#include "pagefuse/ops/kernels/formats/row_format.h"

namespace pagefuse::cuda {

// The keys or the values of one insert.
struct InsertSide {
  KvQuantMode mode = KvQuantMode::kNone;
  DataType element = DataType::kFloat;  // of the cache, logical
  Int8Rounding int8_rounding = Int8Rounding::kHalfEven;
  DataType source_type = DataType::kFloat;  // float, float16, bfloat16, float8e4m3fn
  const uint8_t* source = nullptr;          // [at least tokens, heads, head_size]
  int heads = 0;
  int head_size = 0;
  CacheRows rows;
  const float* tensor_scales = nullptr;  // fp8_per_tensor: one for all heads, or one a head
  int64_t tensor_scale_count = 1;
  const float* rht_signs = nullptr;  // int4: [head_size], +-1

  // The row's bytes are stored unchanged.
  constexpr bool CopiesBytes() const {
    const bool row_scales = mode != KvQuantMode::kNone && mode != KvQuantMode::kFp8PerTensor;
    return source_type == element && !row_scales;
  }
};

// The slot of each token; tokens whose slot is negative, or none of the cache, are not written.
struct SlotMapping {
  const void* slots = nullptr;  // [tokens], int32 or int64
  bool is_int64 = true;
  int64_t tokens = 0;
  // No two tokens have the same slot. Else the kernel looks for later tokens with a token's slot, which win.
  bool unique = false;

  constexpr int64_t operator[](int64_t token) const {
    return is_int64 ? static_cast<const int64_t*>(slots)[token]
                    : static_cast<const int32_t*>(slots)[token];
  }
};

struct CacheInsert {
  InsertSide key, value;
  SlotMapping slots;
};

// The longest row that inserts take.
inline constexpr int kLongestInsertRow = 8192;

Error LaunchCacheInsert(const CacheInsert& insert, Stream stream);

}  // namespace pagefuse::cuda
