// SPDX-License-Identifier: Apache-2.0
// Where a task on tiles keeps its operands and sums, as tiles (linalg/bf16_tiles.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/latent/sparse_mla_attention_hwy.h"
#include "pagefuse/ops/kernels/linalg/bf16_rows.h"
#include "pagefuse/ops/kernels/linalg/bf16_tiles.h"
#include "pagefuse/ops/kernels/scratch_pieces.h"

namespace pagefuse {

// Scores are computed transposed, S^T = K Q^T: cache rows then are A tiles as they lie in memory,
// and a vector of S^T holds one cache row for 16 query rows, so that the softmax needs no sums
// across lanes. Cache rows are taken kTileStepKeys at a time for the first product, or twice as
// many with one tile of query rows, and kPartKeys for the second, whose sums are read and written
// once a tile. All of it stays in a second-level cache. A product that takes rows in place needs
// neither tiles of keys nor of values, but room for kPartKeys rows that it decodes.
inline constexpr int64_t kTileStepKeys = 32;
inline constexpr int64_t kPartKeys = 256;
// Words from the tiles of 16 elements of values to those of the next. A line more than they are: a
// key's elements would fall into one set of a first-level cache else.
inline constexpr int64_t kValueStep = kPartKeys / kTileDepth * kTileWords + 32;

// Query rows up to which products take cache rows in place: of more, packing is a small part.
inline constexpr int64_t kInPlaceRows = 64;

struct SparseMlaTilesMemory {
  int64_t head_tiles;   // of 16 query rows
  int64_t depth_tiles;  // of 32 elements of a key
  int64_t value_tiles;  // of 16 elements of a value, an even number
  int64_t query_terms;  // bfloat16 numbers whose sum is an element of q
  uint16_t* query;    // B, in place Q (linalg/bf16_rows.h): [query_terms][head_tiles][depth_tiles]
  uint16_t* keys;     // A [2 kTileStepKeys / 16][depth_tiles]
  uint16_t* values;   // B [value_tiles], kValueStep apart, of kPartKeys / 32 tiles each;
                      // columns interleaved (linalg/bf16_rows.h)
  float* scores;      // C [head_tiles][kPartKeys / 16]: [kPartKeys][16] for each head tile
  uint16_t* weights;  // A [head_tiles][kPartKeys / 32]
  float* output;      // C [head_tiles][value_tiles]
  float* max;         // [head_tiles * 16], as the next four
  float* base;
  float* sum;
  float* alpha;
  int32_t* visible;  // how many rows of the task each query row sees
  uint16_t* rows;    // of row_words() each: eight, or kPartKeys and one
  float* row;        // a row of the output
  int64_t bytes;

  SparseMlaTilesMemory(const SparseMlaProblem& p, int64_t num_rows, bool in_place,
                       std::byte* memory) {
    head_tiles = (num_rows + kTileRows - 1) / kTileRows;
    depth_tiles = (p.head_size + kTileDepth - 1) / kTileDepth;
    value_tiles = (p.value_size + kTileDepth - 1) / kTileDepth * 2;
    // A float16 has 11 bits, two bfloat16 have 16.
    query_terms = p.query_type == DataType::kBfloat16 ? 1 : 2;
    ScratchPieces pieces(memory);
    const auto tiles = [&](int64_t count) { return pieces.Take<uint16_t>(count * kTileWords); };
    query = tiles(query_terms * head_tiles * depth_tiles);
    keys = tiles(in_place ? 0 : 2 * kTileStepKeys / kTileRows * depth_tiles);
    values = pieces.Take<uint16_t>(in_place ? 0 : value_tiles * kValueStep);
    scores = pieces.Take<float>(head_tiles * kPartKeys * kTileColumns);
    weights = tiles(head_tiles * (kPartKeys / kTileDepth));
    output = pieces.Take<float>(head_tiles * value_tiles * kTileFloats);
    max = pieces.Take<float>(head_tiles * kTileRows);
    base = pieces.Take<float>(head_tiles * kTileRows);
    sum = pieces.Take<float>(head_tiles * kTileRows);
    alpha = pieces.Take<float>(head_tiles * kTileRows);
    visible = pieces.Take<int32_t>(head_tiles * kTileRows);
    rows = pieces.Take<uint16_t>((in_place ? kPartKeys + 1 : 8) * row_words());
    row = pieces.Take<float>(p.value_size);
    bytes = pieces.bytes();
  }

  // Whether products take cache rows in place (linalg/bf16_rows.h). It does not follow from how many
  // tokens share a group, so that they do not show in results.
  static bool TakesRowsInPlace(const SparseMlaTask& task) {
    return task.lone_tokens && task.problem->num_heads <= kInPlaceRows && HasBf16Rows();
  }

  int64_t row_words() const { return depth_tiles * kTileDepth; }
  uint16_t* row_word(int64_t i) const { return rows + i * row_words(); }
  uint16_t* query_tile(int64_t term, int64_t head_tile) const {
    return query + (term * head_tiles + head_tile) * depth_tiles * kTileWords;
  }
  uint16_t* key_tile(int64_t i) const { return keys + i * depth_tiles * kTileWords; }
  uint16_t* value_tile(int64_t j) const { return values + j * kValueStep; }
  float* score_tile(int64_t head_tile, int64_t i) const {
    return scores + head_tile * kPartKeys * kTileColumns + i * kTileFloats;
  }
  uint16_t* weight_tile(int64_t head_tile) const {
    return weights + head_tile * (kPartKeys / kTileDepth) * kTileWords;
  }
  float* output_tile(int64_t head_tile, int64_t j) const {
    return output + (head_tile * value_tiles + j) * kTileFloats;
  }
};

}  // namespace pagefuse
