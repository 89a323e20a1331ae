// SPDX-License-Identifier: Apache-2.0
// Windows of state rows summed into one row each, which is written to a paged cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/kernels/inserts/slot_writes.h"
#include "pagefuse/ops/kernels/rows/rope_row.h"

namespace pagefuse::pagefuse_ops {

struct CompressWindow {
  int64_t ratio = 1;    // tokens that become one row
  int64_t overlap = 0;  // 1: a window reaches back over the one before it

  int64_t rows() const { return (1 + overlap) * ratio; }
};

// One call with checked arguments. A state row is kv[0, half) | score[0, half).
struct CompressCall {
  CompressWindow window;
  float epsilon = 0;
  GroupedRowFormat format;  // of rows of codes
  // Of rows of numbers: each is rounded to it once, and nothing before. kUndefined: rows of codes.
  DataType plain_type = DataType::kUndefined;
  bool hadamard = false;  // rows of codes are rotated by HadamardRotate and rounded once more
  int64_t size = 0;       // D
  int64_t half = 0;       // W
  std::vector<SlotWrite> writes;
  std::vector<int64_t> absent;  // [writes]: rows of the window before position 0
  // The state rows of each write's window, those that are present, one write after the other.
  std::vector<const float*> state_rows;
  std::vector<size_t> first_row;    // [writes]: where they start
  std::vector<int64_t> table_rows;  // [writes]: row of the cosine table
  std::vector<float> weight;        // [D]
  RopeLayout layout;
  CosSinTable table;
  CacheRows rows;

  // The present rows of a window: row absent[write] + j of it is Window(write)[j].
  std::span<const float* const> Window(int64_t write) const {
    const size_t count = static_cast<size_t>(window.rows() - absent[static_cast<size_t>(write)]);
    return {state_rows.data() + first_row[static_cast<size_t>(write)], count};
  }
  // First column of window row i: with overlap the newer half of a window has columns of its own.
  int64_t Column(int64_t i) const { return window.overlap == 1 && i >= window.ratio ? size : 0; }
};

// Columns that a thread sums at a time.
inline constexpr int64_t kCompressColumns = 64;

// The plain way; and the same, vectorised and parallel, but for the order of sums and the last
// digit of e^x.
void CompressCacheInsertPlain(const CompressCall& call);
void CompressCacheInsertHwy(const CompressCall& call);

}  // namespace pagefuse::pagefuse_ops
