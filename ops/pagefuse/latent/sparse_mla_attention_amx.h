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
// across lanes. Cache rows are taken kAmxStepKeys at a time for the first product, and kAmxTileKeys
// for the second, whose sums are read and written once a tile.
inline constexpr int64_t kAmxStepKeys = 64;
inline constexpr int64_t kAmxTileKeys = 256;

struct SparseMlaAmxMemory {
  int64_t head_tiles;   // of 16 query rows
  int64_t depth_tiles;  // of 32 elements of a key
  int64_t value_tiles;  // of 16 elements of a value
  int64_t query_terms;  // bfloat16 numbers whose sum is an element of q
  uint16_t* query;      // B [query_terms][head_tiles][depth_tiles]
  uint16_t* keys;       // A [kAmxStepKeys / 16][depth_tiles]
  uint16_t* values;     // B [value_tiles][kAmxTileKeys / 32]
  float* scores;        // C [head_tiles][kAmxTileKeys / 16]: [kAmxTileKeys][16] for each head tile
  uint16_t* weights;    // A [head_tiles][kAmxTileKeys / 32]
  float* output;        // C [head_tiles][value_tiles]
  float* max;           // [head_tiles * 16], as the next three
  float* sum;
  float* alpha;
  int32_t* visible;  // how many rows of the task each query row sees
  uint16_t* rows;    // eight rows of depth_tiles * 32 words
  int64_t bytes;

  SparseMlaAmxMemory(const SparseMlaProblem& p, int64_t num_rows, std::byte* base) {
    head_tiles = (num_rows + kAmxRows - 1) / kAmxRows;
    depth_tiles = (p.head_size + kAmxDepth - 1) / kAmxDepth;
    value_tiles = (p.value_size + kAmxColumns - 1) / kAmxColumns;
    // A float16 has 11 bits, two bfloat16 have 16.
    query_terms = p.query_type == DataType::kBfloat16 ? 1 : 2;
    bytes = 0;
    const auto take = [&](int64_t size) {
      std::byte* at = base + bytes;
      bytes += (size + 63) / 64 * 64;
      return at;
    };
    const auto words = [&](int64_t tiles) {
      return reinterpret_cast<uint16_t*>(take(tiles * kAmxWords * 2));
    };
    const auto floats = [&](int64_t count) { return reinterpret_cast<float*>(take(count * 4)); };
    query = words(query_terms * head_tiles * depth_tiles);
    keys = words(kAmxStepKeys / kAmxRows * depth_tiles);
    values = words(value_tiles * (kAmxTileKeys / kAmxDepth));
    scores = floats(head_tiles * kAmxTileKeys * kAmxColumns);
    weights = words(head_tiles * (kAmxTileKeys / kAmxDepth));
    output = floats(head_tiles * value_tiles * kAmxFloats);
    max = floats(head_tiles * kAmxRows);
    sum = floats(head_tiles * kAmxRows);
    alpha = floats(head_tiles * kAmxRows);
    visible = reinterpret_cast<int32_t*>(floats(head_tiles * kAmxRows));
    rows = reinterpret_cast<uint16_t*>(take(8 * depth_tiles * kAmxDepth * 2));
  }

  int64_t row_words() const { return depth_tiles * kAmxDepth; }
  uint16_t* query_tile(int64_t term, int64_t head_tile) const {
    return query + (term * head_tiles + head_tile) * depth_tiles * kAmxWords;
  }
  uint16_t* key_tile(int64_t i) const { return keys + i * depth_tiles * kAmxWords; }
  uint16_t* value_tile(int64_t j) const {
    return values + j * (kAmxTileKeys / kAmxDepth) * kAmxWords;
  }
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
