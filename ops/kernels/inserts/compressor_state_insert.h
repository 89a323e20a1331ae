// SPDX-License-Identifier: Apache-2.0
// Keys and scores written as compressor state.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/kernels/inserts/slot_writes.h"
#include "pagefuse/ops/kernels/numeric/index_array.h"

namespace pagefuse::pagefuse_ops {

// Row `slot` becomes kv[token] | score[token] + ape[position mod ratio]: `width` columns from 0 and
// from `half`.
struct StateInsert {
  DataType type = DataType::kFloat;  // of kv and score
  int64_t width = 0;
  int64_t half = 0;
  const uint8_t* kv = nullptr;
  const uint8_t* score = nullptr;
  const float* ape = nullptr;  // [ratio, width]
  int64_t ratio = 1;
  IndexArray positions;  // of tokens
  CacheRows rows;        // of floats
  std::vector<SlotWrite> writes;

  const float* Ape(int64_t token) const { return ape + positions[token] % ratio * width; }
};

// The plain way; and the same bytes, vectorised, parallel over tokens.
void InsertState(const StateInsert& insert);
void InsertStateHwy(const StateInsert& insert);

}  // namespace pagefuse::pagefuse_ops
