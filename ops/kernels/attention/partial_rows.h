// SPDX-License-Identifier: Apache-2.0
// Attention of one query row in parts: what a part leaves, and how parts are joined by their
// log-sum-exp (Flash-Decoding; FlashInfer, arXiv 2501.01005, section 2.2).
#pragma once

#include <cstdint>

namespace pagefuse {

// Unnormalised result of some keys for one query row: with weights e_j = exp(S_j - max), sum is
// their sum and values their sum of e_j V_j. No visible key: max = -inf, the others 0.
struct PartialRow {
  float max;
  float sum;
  float* values;
};

// A partial row in memory: max, sum, then `size` values.
inline int64_t PartialRowFloats(int64_t size) { return size + 2; }

// Joins `count` rows of `size` values, `stride` floats apart, in their order; the joined values go
// to `values`.
struct PartialRows {
  const float* first;
  int64_t count;
  int64_t stride;
  int64_t size;
};
PartialRow JoinPartialRows(const PartialRows& rows, float* values);

// Joins one more row in memory, of `size` values, to `row`, whose values change. A row of no visible
// key changes no bit.
void AddPartialRow(const float* more, int64_t size, PartialRow& row);

}  // namespace pagefuse
