// SPDX-License-Identifier: Apache-2.0
// Index scores of queries over keys.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/kernels/scratch.h"

namespace pagefuse::pagefuse_ops {

// Positions [begin, end); empty where end <= begin.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// One call with checked arguments:
//
//   logits[m, p] = sum over h of weights[m, h] * max(0, (q[m, h] . key(m, p)) * scale(m, p))
//
// for the positions p of row m's range, -inf for the others of filled[m]. Keys are head_size
// elements, dense or in a paged cache: the key of position p is in block p / block_size of the
// row's sequence, at offset p % block_size. Dense keys are one block. e4m3fn codes have a float
// scale each; keys of another type have none (1), nor have those whose groups have scales.
struct MqaLogitsProblem {
  DataType query_type = DataType::kFloat8E4M3FN;  // or float, float16, bfloat16
  DataType key_type = DataType::kFloat8E4M3FN;    // likewise
  // Keys are rows of this format, which is decoded to floats; key_type says nothing then.
  std::optional<GroupedRowFormat> key_groups = std::nullopt;
  const uint8_t* q = nullptr;      // [rows, heads, head_size]
  const float* weights = nullptr;  // [rows, heads]
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t head_size = 0;

  CacheRows keys;
  std::vector<int32_t> sequences;        // [rows]: whose keys a row sees; never falls
  const int32_t* block_table = nullptr;  // [sequences, table_columns]
  int64_t table_columns = 0;

  float* logits = nullptr;  // [rows, width]
  int64_t width = 0;
  std::vector<KeyRange> ranges;  // [rows], within the width and the block table
  // [rows]: columns [0, filled) outside the range become -inf; columns behind them are not written.
  std::vector<int64_t> filled;

  int64_t QueryRowBytes() const { return head_size * BitWidth(query_type) / 8; }
  RowAddress Key(int64_t sequence, int64_t position) const {
    const int64_t column = position / keys.block_size;
    return keys.At(block_table[sequence * table_columns + column], position % keys.block_size, 0);
  }
};

// Writes -inf to the columns of a row that are outside its range.
void FillOutside(const MqaLogitsProblem& problem, int64_t row);

// Three ways to compute the same numbers but for rounding: plain loops in double; vectors of float;
// tiles of bfloat16 (linalg/bf16_tiles.h), which hold e4m3fn exactly: of queries and keys of that
// type. All but the first are parallel.
void MqaLogitsReference(const MqaLogitsProblem& problem);
void MqaLogitsHwy(const MqaLogitsProblem& problem, Scratch* scratch);
void MqaLogitsTiles(const MqaLogitsProblem& problem, Scratch* scratch);

// OK if this machine can run MqaLogitsTiles, else why not.
absl::Status MqaLogitsTilesSupported();

}  // namespace pagefuse::pagefuse_ops
