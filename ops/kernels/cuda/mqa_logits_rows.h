// SPDX-License-Identifier: Apache-2.0
// What a row of index scores sees, and where its keys lie. Compiles for host and device.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/mqa_logits.h"

namespace pagefuse::cuda {

// Of one row: the sequence whose keys it sees, the keys [begin, end), and the columns [0, filled) of which
// those outside become -inf.
struct MqaRow {
  int64_t sequence = 0;
  int64_t begin = 0, end = 0, filled = 0;
};

constexpr int64_t Clamped(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}

// The sequence b with starts[b] <= row < starts[b + 1]. Starts ascend from 0, some are equal.
constexpr int64_t SequenceOfRow(const int32_t* starts, int64_t sequences, int64_t row) {
  int64_t low = 0,
          high = sequences;  // starts[low] <= row, and starts[high] > row or it is the last
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (starts[middle] <= row ? low : high) = middle;
  }
  return low;
}

constexpr MqaRow RowOf(const MqaLogits& call, int64_t m) {
  MqaRow row;
  if (call.block_table == nullptr) {
    row.begin = Clamped(call.begins[m], 0, call.width);
    row.end = Clamped(call.ends[m], 0, call.width);
    row.filled = call.clean ? call.width : 0;
    return row;
  }
  const bool packed = call.starts != nullptr;
  m += call.first_row;
  row.sequence = packed ? SequenceOfRow(call.starts, call.sequences, m) : m / call.queries;
  const int64_t behind = packed ? call.starts[row.sequence + 1] : (row.sequence + 1) * call.queries;
  const int64_t length = call.lengths[row.sequence];
  // The last row of a sequence is its last token.
  const int64_t tokens = length - (behind - m) + 1;
  row.end = Clamped((tokens < 0 ? 0 : tokens) / call.ratio, 0, call.width);
  row.filled = call.clean ? call.width : Clamped(length / call.ratio, 0, call.width);
  return row;
}

// The row of key n; null data where the table says no block of the cache.
constexpr RowAddress KeyOf(const MqaLogits& call, int64_t sequence, int64_t n) {
  const int64_t column = n / call.keys.block_size;
  int64_t block = column;
  if (call.block_table != nullptr) {
    if (column >= call.table_columns) return {};
    block = call.block_table[sequence * call.table_columns + column];
  }
  if (block < 0 || block >= call.keys.num_blocks) return {};
  return call.keys.At(block, n - column * call.keys.block_size, 0);
}

}  // namespace pagefuse::cuda
