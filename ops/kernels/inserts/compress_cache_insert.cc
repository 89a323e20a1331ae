// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/inserts/compress_cache_insert.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pagefuse/ops/kernels/formats/hadamard.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse::pagefuse_ops {
namespace {

// Softmax-weighted sum of one column over the rows of a window.
float CompressColumn(const CompressCall& call, int64_t write, int64_t d) {
  const std::span<const float* const> window = call.Window(write);
  const auto column = [&](size_t j) {
    return call.Column(call.absent[write] + static_cast<int64_t>(j)) + d;
  };
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t j = 0; j < window.size(); ++j) {
    largest = std::max(largest, window[j][call.half + column(j)]);
  }
  float weights = 0;
  float sum = 0;
  for (size_t j = 0; j < window.size(); ++j) {
    const float weight = std::exp(window[j][call.half + column(j)] - largest);
    weights += weight;
    sum += weight * window[j][column(j)];
  }
  return sum / weights;
}

}  // namespace

void CompressCacheInsertPlain(const CompressCall& call) {
  std::vector<float> y(call.size);
  std::vector<uint8_t> rounded(2 * call.size);
  for (size_t i = 0; i < call.writes.size(); ++i) {
    for (int64_t d = 0; d < call.size; ++d) {
      y[d] = CompressColumn(call, static_cast<int64_t>(i), d);
    }
    NormRow(call.weight.data(), call.epsilon, call.size, y.data());
    RotateByTable(call.layout, call.table, call.table_rows[i], y.data());
    const RowAddress row = call.rows.AtSlot(call.writes[i].slot, 0);
    // Of float types: never an error.
    if (call.plain_type != DataType::kUndefined) {
      EncodeFromFloat(call.plain_type, y.data(), call.size, row.data).IgnoreError();
      continue;
    }
    RoundThrough(DataType::kBfloat16, y.data(), call.size).IgnoreError();
    if (call.hadamard) {
      HadamardRotate(y.data(), call.size);
      RoundThrough(DataType::kBfloat16, y.data(), call.size).IgnoreError();
    }
    EncodeFromFloat(DataType::kBfloat16, y.data(), call.size, rounded.data()).IgnoreError();
    EncodeGroupedRow(call.format, y.data(), rounded.data() + 2 * call.format.coded, row);
  }
}

}  // namespace pagefuse::pagefuse_ops
