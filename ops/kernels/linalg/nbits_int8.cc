// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"

#include <algorithm>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8_hwy.h"

namespace pagefuse {
namespace {

constexpr int64_t kLanes = NBitsLanes::kLanes;
constexpr int64_t kFewRows = 8;     // take about as long as reading the codes
constexpr int64_t kPartRows = 528;  // of x at a time: a chunk of them stays in L2
constexpr int64_t kStepGroups = 2;  // of W: what vectors take at a time, or a multiple

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t PaddedBlocks(const NBitsLanes& w) {
  constexpr int64_t kMultiple = Int8Rows::kChunk * kInt8Block;
  return CeilDiv(w.blocks() * w.block, kMultiple) * Int8Rows::kChunk;
}

Int8Rows RoundRows(const RowsView& x, const NBitsLanes& w, void* scratch) {
  Int8Rows rows{.m = x.m, .blocks = PaddedBlocks(w)};
  const int64_t blocks = x.m * rows.blocks;
  rows.codes = static_cast<int8_t*>(scratch);
  rows.units = reinterpret_cast<float*>(rows.codes + blocks * kInt8Block);
  rows.unit_sums = rows.units + blocks;
  rows.starts = reinterpret_cast<int32_t*>(rows.unit_sums + blocks);
  ParallelFor(x.m, w.k * 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      RoundToInt8(x.data + r * x.stride, w.k, w.bits, r, rows);
    }
  });
  return rows;
}

// Calls body(part, worker) for parts that make up m rows of x by all rows of W.
template <class Body>
void ForParts(int64_t m, const NBitsLanes& w, const Body& body) {
  const int64_t step_bytes =
      kStepGroups * w.words() * kLanes * static_cast<int64_t>(sizeof(uint32_t));
  ParallelFor(
      CeilDiv(w.groups(), kStepGroups), step_bytes * CeilDiv(m, kFewRows),
      [&](int64_t begin, int64_t end, int worker) {
        const int64_t last = std::min(end * kStepGroups, w.groups());
        for (int64_t row = 0; row < m; row += kPartRows) {
          body(Int8Part{row, std::min(row + kPartRows, m), begin * kStepGroups, last}, worker);
        }
      });
}

OutputView CornerOf(const Int8Part& part, const OutputView& y) {
  return {y.data + part.row_begin * y.stride + part.group_begin * kLanes, y.stride};
}

}  // namespace

size_t NBitsInt8ScratchBytes(int64_t m, const NBitsLanes& w) {
  return static_cast<size_t>(m * PaddedBlocks(w)) *
         (kInt8Block + 2 * sizeof(float) + sizeof(int32_t));
}

void LinearNBitsInt8(const RowsView& x, const NBitsLanes& w, void* scratch, const OutputView& y) {
  if (x.m == 0) return;
  const Int8Rows rows = RoundRows(x, w, scratch);
  ForParts(x.m, w,
           [&](const Int8Part& part, int) { MultiplyInt8(rows, w, part, CornerOf(part, y)); });
}

void GatedLinearNBitsInt8(const RowsView& x, const GatedNBits& w, void* scratch,
                          const OutputView& y) {
  if (x.m == 0) return;
  const Int8Rows rows = RoundRows(x, w.gate, scratch);
  PerWorker<std::vector<float>> ups;
  ForParts(x.m, w.gate, [&](const Int8Part& part, int worker) {
    const int64_t end = std::min(part.group_end * kLanes, w.gate.n);
    const int64_t columns = end - part.group_begin * kLanes;
    const OutputView to = CornerOf(part, y);
    std::vector<float>& up = ups[worker];
    up.resize(static_cast<size_t>(part.rows() * columns));
    MultiplyInt8(rows, w.gate, part, to);
    MultiplyInt8(rows, w.up, part, {up.data(), columns});
    for (int64_t r = 0; r < part.rows(); ++r) {
      float* out = to.data + r * to.stride;
      GatedProduct(w.by, out, up.data() + r * columns, columns, out);
    }
  });
}

}  // namespace pagefuse
