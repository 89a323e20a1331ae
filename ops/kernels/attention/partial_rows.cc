// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/attention/partial_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pagefuse {

PartialRow JoinPartialRows(const PartialRows& rows, float* values) {
  PartialRow row{-std::numeric_limits<float>::infinity(), 0, values};
  for (int64_t s = 0; s < rows.count; ++s) {
    row.max = std::max(row.max, rows.first[s * rows.stride]);
  }
  std::fill_n(values, rows.size, 0.0f);
  const float base = std::isinf(row.max) && row.max < 0 ? 0 : row.max;
  for (int64_t s = 0; s < rows.count; ++s) {
    const float* from = rows.first + s * rows.stride;
    const float weight = std::exp(from[0] - base);
    row.sum += from[1] * weight;
    for (int64_t d = 0; d < rows.size; ++d) values[d] += from[2 + d] * weight;
  }
  return row;
}

void AddPartialRow(const float* more, int64_t size, PartialRow& row) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  if (more[0] == kLowest && more[1] == 0) return;
  const float max = std::max(row.max, more[0]);
  const float base = max == kLowest ? 0 : max;
  const float kept = std::exp(row.max - base), weight = std::exp(more[0] - base);
  row.max = max;
  row.sum = row.sum * kept + more[1] * weight;
  for (int64_t d = 0; d < size; ++d) row.values[d] = row.values[d] * kept + more[2 + d] * weight;
}

}  // namespace pagefuse
