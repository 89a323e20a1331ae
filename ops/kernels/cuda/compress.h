// SPDX-License-Identifier: Apache-2.0
// CompressorStateInsert and CompressCacheInsert on the device: keys and scores kept as compressor state, and windows of state rows summed
// into one row of a paged cache each.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/launch.h"
#include "pagefuse/ops/kernels/cuda/row_rotation.h"
#include "pagefuse/ops/kernels/cuda/warp_slot.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse::cuda {

// Row `slot` becomes kv[token] | score[token] + ape[position mod ratio]: `width` columns from 0 and from `half`.
struct StateInsert {
  DataType type = DataType::kFloat;  // of kv and score: float, bfloat16
  int64_t width = 0;
  int64_t half = 0;
  const void* kv = nullptr;     // [at least the slots' tokens, width]
  const void* score = nullptr;  // the same
  const float* ape = nullptr;   // [ratio, width]
  int64_t ratio = 1;
  DeviceIndices positions;  // [tokens]; a negative one of a token that is written is told
  int positions_input = 0;
  CacheRows rows;  // of 2 * half floats
  CheckedSlots slots;
};
Error LaunchStateInsert(const StateInsert& call, Stream stream);

// Input numbers of the node, for what is told.
struct CompressInputs {
  int token_to_req = 0, positions = 0, block_table = 0, kv_slots = 0;
};

// The token at a position p with (p + 1) mod ratio = 0 ends a window of (1 + overlap) * ratio tokens. It is written where its slots of state
// and of compressed rows are not negative.
struct CompressInsert {
  int64_t tokens = 0;
  int64_t ratio = 1;
  int overlap = 0;
  int size = 0;         // D
  CacheRows state;      // kv | score, each (1 + overlap) * D floats
  DeviceIndices slots;  // [tokens], of the state: only the sign matters
  DeviceIndices positions;
  const int32_t* token_to_req = nullptr;
  const int32_t* block_table = nullptr;  // [requests, table_columns]
  int64_t requests = 0;
  int64_t table_columns = 0;

  DataType weight_type = DataType::kFloat;  // float, bfloat16
  const void* weight = nullptr;             // [D]
  float epsilon = 0;
  RowRotation rotation;
  bool table_row_of_token =
      false;  // of the rotation's table; else that of the window's first position

  // Rows of numbers of this type; kUndefined: of codes, rounded to bfloat16 before.
  DataType plain_type = DataType::kUndefined;
  GroupedRowFormat format;
  bool hadamard = false;  // rows of codes are transformed and rounded once more
  CacheRows rows;
  SlotMapping kv_slots;

  CompressInputs inputs;
  IndexErrors errors;

  constexpr int64_t WindowRows() const { return (1 + overlap) * ratio; }
};
Error LaunchCompressInsert(const CompressInsert& call, Stream stream);

}  // namespace pagefuse::cuda
