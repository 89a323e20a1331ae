// Where a decode task keeps its intermediates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/attention/paged_attention_hwy.h"

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
    bytes = 0;
    const auto take = [&](int64_t floats) {
      auto* at = reinterpret_cast<float*>(base + bytes);
      bytes += (floats * 4 + 63) / 64 * 64;
      return at;
    };
    query = take(p.num_heads * row_floats);
    output = take(p.num_heads * row_floats);
    scores = take(p.num_heads * kPaTileKeys);
    key_scales = take(p.num_kv_heads * kPaTileKeys);
    key_squares = take(p.num_kv_heads * kPaTileKeys);
    value_scales = take(p.num_kv_heads * kPaTileKeys);
    value_offsets = take(p.num_kv_heads * kPaTileKeys);
    offsets = take(p.num_heads);
    score_units = take(p.num_heads);
    weight_units = take(p.num_heads);
    sums = reinterpret_cast<int32_t*>(take(p.num_heads * row_floats));
    key_offsets = reinterpret_cast<int32_t*>(take(kPaTileKeys));
  }
};

}  // namespace pagefuse
