// SPDX-License-Identifier: Apache-2.0
// The TurboQuant kernels besides attention: calls in parsed form, plain and vectorised.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/ops/kernels/attention/paged_attention_problem.h"
#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"
#include "pagefuse/ops/kernels/inserts/slot_writes.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {

// One TurboQuantInsert with checked arguments.
struct TurboQuantInsertCall {
  TurboQuantFormat format;
  TurboQuantTables tables;
  DataType source_type = DataType::kFloat;
  const uint8_t* key = nullptr;  // [tokens, heads, head_size]
  const uint8_t* value = nullptr;
  int64_t heads = 0;
  CacheRows slots;
  std::vector<pagefuse_ops::SlotWrite> writes;
};
void InsertTurboQuant(const TurboQuantInsertCall& call);
// The same bytes but for rotation by a given matrix, parallel over tokens and heads.
void InsertTurboQuantHwy(const TurboQuantInsertCall& call);

// One TurboQuantDequant with checked arguments.
struct TurboQuantDequantCall {
  TurboQuantCache cache;
  CacheRows slots;
  const int32_t* block_table = nullptr;  // [B, table_columns]
  const int32_t* seq_lens = nullptr;
  int64_t num_sequences = 0, num_heads = 0, table_columns = 0;
  int64_t num_positions = 0;  // N
  bool inverse_rotate = false;
  Float16* key = nullptr;  // [B, Hk, N, D]
  Float16* value = nullptr;

  const uint8_t* Slot(int64_t b, int64_t head, int64_t j) const {
    const int64_t block = block_table[b * table_columns + j / slots.block_size];
    return slots.At(block, j % slots.block_size, head).data;
  }
};
void DequantTurboQuant(const TurboQuantDequantCall& call);
void DequantTurboQuantHwy(const TurboQuantDequantCall& call);

}  // namespace pagefuse
