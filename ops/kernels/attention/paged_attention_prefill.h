// SPDX-License-Identifier: Apache-2.0
// Where a prefill task keeps its intermediates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/attention/paged_attention_hwy.h"
#include "pagefuse/ops/kernels/scratch_pieces.h"

namespace pagefuse {

struct PrefillScratch {
  int64_t row_floats;    // floats of a query or output row, padded for the widest panels
  float* query;          // [rows][row_floats]
  float* output;         // [rows][row_floats], not divided by the sum of weights
  float* scores;         // [rows][kPaTileKeys], then weights
  float* alpha;          // [rows]
  float* keys;           // packed: [kPaTileKeys / width][row_floats][width]
  float* values;         // packed: [row_floats / width][kPaTileKeys][width]
  float* key_scales;     // [kPaTileKeys]
  float* value_scales;   // [kPaTileKeys]
  int32_t* key_offsets;  // [kPaTileKeys]: 0, 1, 2, ...
  int64_t bytes;

  PrefillScratch(const PagedAttentionProblem& p, int64_t num_queries, std::byte* base) {
    constexpr int64_t kWidestPanel = 32;  // two vectors of 16
    constexpr int64_t kMostRows = 12;     // of a micro-kernel
    row_floats = RoundUp(p.head_size, kWidestPanel);
    const int64_t rows = RoundUp(num_queries * p.group(), kMostRows);
    ScratchPieces pieces(base);
    query = pieces.Take<float>(rows * row_floats);
    output = pieces.Take<float>(rows * row_floats);
    scores = pieces.Take<float>(rows * kPaTileKeys);
    alpha = pieces.Take<float>(rows);
    keys = pieces.Take<float>(kPaTileKeys * row_floats);
    values = pieces.Take<float>(kPaTileKeys * row_floats);
    key_scales = pieces.Take<float>(kPaTileKeys);
    value_scales = pieces.Take<float>(kPaTileKeys);
    key_offsets = pieces.Take<int32_t>(kPaTileKeys);
    bytes = pieces.bytes();
  }

 private:
  static int64_t RoundUp(int64_t x, int64_t step) { return (x + step - 1) / step * step; }
};

}  // namespace pagefuse
