// Where an AMX task keeps its operands and sums, as tiles (linalg/amx_product.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/linalg/amx_product.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention_hwy.h"

namespace pagefuse {

// Scores are computed transposed, S^T = K Q^T: cache rows then are A tiles as they lie in memory,
// and a vector of S^T holds one cache row for 16 query rows, so that the softmax needs no sums
// across lanes. Cache rows are taken kAmxStepKeys at a time for the first product, or twice as many
// with one tile of query rows, and kAmxTileKeys for the second, whose sums are read and written
// once a tile. All of it stays in a second-level cache.
inline constexpr int64_t kAmxStepKeys = 32;
inline constexpr int64_t kAmxTileKeys = 256;
// Words from the tiles of 16 elements of values to those of the next. A line more than they are: a
// key's elements would fall into one set of a first-level cache else.
inline constexpr int64_t kAmxValueStep = kAmxTileKeys / kAmxDepth * kAmxWords + 32;

struct SparseMlaAmxMemory {
  int64_t head_tiles;   // of 16 query rows
  int64_t depth_tiles;  // of 32 elements of a key
  int64_t value_tiles;  // of 16 elements of a value, an even number
  int64_t query_terms;  // bfloat16 numbers whose sum is an element of q
  uint16_t* query;      // B [query_terms][head_tiles][depth_tiles]
  uint16_t* keys;       // A [2 kAmxStepKeys / 16][depth_tiles]
  uint16_t* values;     // B [value_tiles], kAmxValueStep apart, of kAmxTileKeys / 32 tiles each;
                        // columns as InterleaveRows has them
  float* scores;        // C [head_tiles][kAmxTileKeys / 16]: [kAmxTileKeys][16] for each head tile
  uint16_t* weights;    // A [head_tiles][kAmxTileKeys / 32]
  float* output;        // C [head_tiles][value_tiles]
  float* max;           // [head_tiles * 16], as the next four
  float* base;
  float* sum;
  float* alpha;
  int32_t* visible;  // how many rows of the task each query row sees
  uint16_t* rows;    // eight rows of depth_tiles * 32 words
  float* row;        // a row of the output
  int64_t bytes;

  SparseMlaAmxMemory(const SparseMlaProblem& p, int64_t num_rows, std::byte* memory) {
    head_tiles = (num_rows + kAmxRows - 1) / kAmxRows;
    depth_tiles = (p.head_size + kAmxDepth - 1) / kAmxDepth;
    value_tiles = (p.value_size + kAmxDepth - 1) / kAmxDepth * 2;
    // A float16 has 11 bits, two bfloat16 have 16.
    query_terms = p.query_type == DataType::kBfloat16 ? 1 : 2;
    bytes = 0;
    const auto take = [&](int64_t size) {
      std::byte* at = memory + bytes;
      bytes += (size + 63) / 64 * 64;
      return at;
    };
    const auto words = [&](int64_t tiles) {
      return reinterpret_cast<uint16_t*>(take(tiles * kAmxWords * 2));
    };
    const auto floats = [&](int64_t count) { return reinterpret_cast<float*>(take(count * 4)); };
    query = words(query_terms * head_tiles * depth_tiles);
    keys = words(2 * kAmxStepKeys / kAmxRows * depth_tiles);
    values = reinterpret_cast<uint16_t*>(take(value_tiles * kAmxValueStep * 2));
    scores = floats(head_tiles * kAmxTileKeys * kAmxColumns);
    weights = words(head_tiles * (kAmxTileKeys / kAmxDepth));
    output = floats(head_tiles * value_tiles * kAmxFloats);
    max = floats(head_tiles * kAmxRows);
    base = floats(head_tiles * kAmxRows);
    sum = floats(head_tiles * kAmxRows);
    alpha = floats(head_tiles * kAmxRows);
    visible = reinterpret_cast<int32_t*>(floats(head_tiles * kAmxRows));
    rows = reinterpret_cast<uint16_t*>(take(8 * depth_tiles * kAmxDepth * 2));
    row = floats(p.value_size);
  }

  int64_t row_words() const { return depth_tiles * kAmxDepth; }
  uint16_t* query_tile(int64_t term, int64_t head_tile) const {
    return query + (term * head_tiles + head_tile) * depth_tiles * kAmxWords;
  }
  uint16_t* key_tile(int64_t i) const { return keys + i * depth_tiles * kAmxWords; }
  uint16_t* value_tile(int64_t j) const { return values + j * kAmxValueStep; }
  float* score_tile(int64_t head_tile, int64_t i) const {
    return scores + head_tile * kAmxTileKeys * kAmxColumns + i * kAmxFloats;
  }
  uint16_t* weight_tile(int64_t head_tile) const {
    return weights + head_tile * (kAmxTileKeys / kAmxDepth) * kAmxWords;
  }
  float* output_tile(int64_t head_tile, int64_t j) const {
    return output + (head_tile * value_tiles + j) * kAmxFloats;
  }
};

}  // namespace pagefuse
