// SPDX-License-Identifier: Apache-2.0
// Where a decode task keeps its intermediates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/attention/paged_attention_hwy.h"
#include "pagefuse/ops/kernels/scratch_pieces.h"

namespace pagefuse {

struct DecodeScratch {
  int64_t row_floats;    // floats of a query or output row, padded for whole vectors
  float* query;          // [Hq][row_floats]
  float* output;         // [Hq][row_floats]
  float* scores;         // [Hq][kPaTileKeys]
  float* key_scales;     // [Hk][kPaTileKeys]
  float* key_squares;    // [Hk][kPaTileKeys], see DivideByLengths
  float* value_scales;   // [Hk][kPaTileKeys]
  float* value_offsets;  // [Hk][kPaTileKeys]
  float* offsets;        // [Hq], as in SoftmaxState
  // Of codecs of words (paged_attention_words-inl.h):
  float* score_units;    // [Hq], of the dot products
  float* weight_units;   // [Hq], of the tile's weights
  int32_t* sums;         // [Hq][row_floats], of a tile's values
  int32_t* key_offsets;  // [kPaTileKeys]
  int64_t bytes;

  DecodeScratch(const PagedAttentionProblem& p, std::byte* base) {
    constexpr int64_t kPadding = 16;  // the longest vectors
    row_floats = (p.head_size + kPadding - 1) / kPadding * kPadding;
    ScratchPieces pieces(base);
    query = pieces.Take<float>(p.num_heads * row_floats);
    output = pieces.Take<float>(p.num_heads * row_floats);
    scores = pieces.Take<float>(p.num_heads * kPaTileKeys);
    key_scales = pieces.Take<float>(p.num_kv_heads * kPaTileKeys);
    key_squares = pieces.Take<float>(p.num_kv_heads * kPaTileKeys);
    value_scales = pieces.Take<float>(p.num_kv_heads * kPaTileKeys);
    value_offsets = pieces.Take<float>(p.num_kv_heads * kPaTileKeys);
    offsets = pieces.Take<float>(p.num_heads);
    score_units = pieces.Take<float>(p.num_heads);
    weight_units = pieces.Take<float>(p.num_heads);
    sums = pieces.Take<int32_t>(p.num_heads * row_floats);
    key_offsets = pieces.Take<int32_t>(kPaTileKeys);
    bytes = pieces.bytes();
  }
};

}  // namespace pagefuse
