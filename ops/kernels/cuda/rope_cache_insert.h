// SPDX-License-Identifier: Apache-2.0
// RopeCacheInsert on the device: query and key normed and rotated, key and value written to their slots of a paged cache.
#pragma once

#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/cache_insert.h"

namespace pagefuse::cuda {

struct RopeCacheInsert {
  DataType type = DataType::kFloat;  // of query, key and value: float, float16, bfloat16
  int64_t tokens = 0;
  int heads = 0;  // of the query
  int size = 0;
  const void* query = nullptr;  // [tokens, heads, size]
  void* query_out = nullptr;    // may be the same memory

  const void* positions = nullptr;  // [tokens]; null: row t of the tables belongs to token t
  bool positions_int64 = true;
  int64_t table_rows = 0;
  DataType table_type = DataType::kFloat;  // of cos and sin: float, float16, bfloat16
  const void* cos = nullptr;               // [table_rows, pairs]
  const void* sin = nullptr;
  int pairs = 0;
  int offset = 0;            // first rotated channel
  bool interleaved = false;  // pair i is (2i, 2i + 1), else (i, i + pairs)

  float epsilon = 0;
  DataType weight_type = DataType::kFloat;
  const void* q_norm = nullptr;  // [size]; null: no norm
  const void* k_norm = nullptr;
  // Whether nothing on the stream writes these weights: they may be read before the kernel in front has ended.
  bool constant_weights = false;

  InsertSide key, value;
  SlotMapping slots;
};

Error LaunchRopeCacheInsert(const RopeCacheInsert& insert, Stream stream);

}  // namespace pagefuse::cuda
