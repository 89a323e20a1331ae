// SPDX-License-Identifier: Apache-2.0
// The vector loops of nbits.cc for float activations. One order of summation for every number of rows.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/ops/kernels/linalg/matrix.h"
#include "pagefuse/ops/kernels/linalg/nbits.h"

namespace pagefuse {

// How k is cut: blocks of W into runs of kMostRun elements, the last of a block maybe shorter, since
// long sums lose digits; and runs into spans, as many whole ones as have kMostRun elements together,
// so that what is taken of W and x at a time stays in a first-level cache.
class NBitsCut {
 public:
  static constexpr int64_t kMostRun = 256;

  struct Run {
    int64_t begin, count, block;
  };
  struct Span {
    const Run* runs;
    int64_t first_run, num_runs;
    int64_t begin, count;  // elements
  };

  explicit NBitsCut(const NBitsWeight& w);
  NBitsCut(const NBitsCut&) = delete;

  int64_t num_runs() const { return static_cast<int64_t>(runs_.size()); }
  const std::vector<Span>& spans() const { return spans_; }
  static int64_t MostRunsInSpan(const NBitsWeight& w) {
    return w.block < kMostRun ? kMostRun / w.block : 1;
  }
  static int64_t NumRuns(const NBitsWeight& w);

 private:
  std::vector<Run> runs_;
  std::vector<Span> spans_;
};

// Rows of x laid out for the kernels, with `starts` for what zero points take from each run's sum:
//   data[m * span.begin + r * span.count + i]  element i of the span of row r, divided by what codes
//                                              are multiplied with as they lie in words of 32 bits
//   starts[run * m + r]                        minus the run's sum, times the centre of codes where
//                                              that is every zero point
struct NBitsRows {
  float* data = nullptr;
  float* starts = nullptr;
  int64_t m = 0;
};

// Lays out row `row` of x [k].
void LayOutNBitsRow(const NBitsWeight& w, const NBitsCut& cut, const float* x, int64_t row,
                    const NBitsRows& to);

// A part of a product: rows of x and rows of W.
struct NBitsPart {
  int64_t row_begin, row_end;
  int64_t n_begin, n_end;
};

// Floats of memory that MultiplyNBits needs.
int64_t NBitsPartFloats(const NBitsWeight& w);

// y[r, c] for the part's rows and columns, y at the part's corner: a sum over blocks, one by one, of
// scale * (a sum over the block, one by one; of its runs one after the other). `memory` is the
// caller's, aligned to 64. k is not 0.
void MultiplyNBits(const NBitsRows& x, const NBitsWeight& w, const NBitsCut& cut,
                   const NBitsPart& part, float* memory, const OutputView& y);

}  // namespace pagefuse
