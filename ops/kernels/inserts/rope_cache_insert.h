// SPDX-License-Identifier: Apache-2.0
// Query and key normed and rotated, key and value written to their slots of a paged cache.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/inserts/cache_insert.h"
#include "pagefuse/ops/kernels/numeric/index_array.h"
#include "pagefuse/ops/kernels/rows/rope_row.h"

namespace pagefuse::pagefuse_ops {

// One call with checked arguments.
struct RopeCall {
  RopeLayout layout;
  float epsilon = 0;
  DataType type = DataType::kFloat;  // of query and query_out
  int64_t tokens = 0;
  int64_t heads = 0;  // of the query
  int64_t size = 0;
  const uint8_t* query = nullptr;  // [tokens, heads, size]
  uint8_t* query_out = nullptr;
  IndexArray positions;                    // none: row t of the tables belongs to token t
  DataType table_type = DataType::kFloat;  // of cos and sin
  const uint8_t* cos = nullptr;            // [P, R/2] or [T, R/2]
  const uint8_t* sin = nullptr;
  std::vector<float> q_norm;  // [D], empty: no norm
  std::vector<float> k_norm;
  CacheSides sides;
  std::vector<int64_t> slots;  // of each token; -1: not written

  int64_t QueryRowBytes() const { return size * BitWidth(type) / 8; }
  // Where the token's row of the tables begins, in bytes.
  int64_t TableOffset(int64_t token) const {
    const int64_t row = positions.present() ? positions[token] : token;
    return row * layout.pairs * BitWidth(table_type) / 8;
  }
};

// Computes the call: plain loops, and vectorised over tokens in parallel. The same bytes, as long
// as the sums of norms, in double but in another order, round alike.
void RopeCacheInsertPlain(const RopeCall& call);
void RopeCacheInsertHwy(const RopeCall& call);

}  // namespace pagefuse::pagefuse_ops
