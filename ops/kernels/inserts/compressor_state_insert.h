// Keys and scores written as compressor state.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse::pagefuse_ops {

struct StateWrite {
  int64_t token;
  int64_t slot;
  int64_t phase;  // row of ape: position mod ratio
};

// Row `slot` becomes kv[token] | score[token] + ape[phase]: `width` columns from 0 and from `half`.
struct StateInsert {
  DataType type = DataType::kFloat;  // of kv and score
  int64_t width = 0;
  int64_t half = 0;
  const uint8_t* kv = nullptr;
  const uint8_t* score = nullptr;
  const float* ape = nullptr;
  CacheRows rows;  // of floats
  std::vector<StateWrite> writes;
};

// The plain way; and the same bytes, vectorised, parallel over tokens.
void InsertState(const StateInsert& insert);
void InsertStateHwy(const StateInsert& insert);

}  // namespace pagefuse::pagefuse_ops
