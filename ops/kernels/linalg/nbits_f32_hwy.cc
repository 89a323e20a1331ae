// SPDX-License-Identifier: Apache-2.0
// Products of codes: a few rows of x take them as they are read, more take panels of W.
#include "pagefuse/ops/kernels/linalg/nbits_f32_hwy.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/nbits_f32_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/linalg/nbits_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

// Rows of x up to which codes go to the sums as they are read, so many runs at a time that sums do not
// wait for themselves.
constexpr int64_t kMaxDirectRows = 2;
constexpr int kDirectRuns = 2;

// ---- factors ----

// Scales and zero points of a span's runs by rows of W: [run][row].
struct Factors {
  float* scales;
  float* zeros;  // null: all are the centre of codes
};

template <int kVecs>
HWY_INLINE void FillFactors(const NBitsWeight& w, const WeightRows<kVecs>& rows, int64_t n_end,
                            const NBitsCut::Span& span, const Factors& to) {
  constexpr int64_t kCount = WeightRows<kVecs>::kCount;
  const int64_t block = span.runs[0].block;
  int64_t i = 0;
  for (; i + 4 <= span.num_runs; i += 4) {  // blocks are runs where a span has several
    const auto load = [&](auto d4, int64_t c)
                          HWY_ATTR { return hn::LoadU(d4, rows.scales[c] + block + i); };
    for (int v = 0; v < kVecs; ++v) {
      V fours[4];
      for (int64_t j = 0; j < 4; ++j) fours[j] = LoadFoursOf(D(), load, v * kLanes + j);
      TransposePieces(D(), fours);
      for (int64_t j = 0; j < 4; ++j) {
        hn::StoreU(fours[j], D(), to.scales + (i + j) * kCount + v * kLanes);
      }
    }
  }
  for (; i < span.num_runs; ++i) {
    for (int64_t c = 0; c < kCount; ++c) to.scales[i * kCount + c] = rows.scales[c][block + i];
  }
  for (i = 0; to.zeros != nullptr && i < span.num_runs; ++i) {
    for (int64_t c = 0; c < kCount; ++c) {
      to.zeros[i * kCount + c] = w.Zero(rows.Row(c, n_end), block + i);
    }
  }
}

// Rows of x in a span and what its runs start from, `all` rows of x apart.
struct SpanRows {
  RowsView x;
  const float* starts;
  int64_t all;

  SpanRows From(int64_t row, int64_t count) const {
    return {{x.data + row * x.stride, count, x.stride}, starts + row, all};
  }
};

HWY_INLINE SpanRows RowsOf(const NBitsRows& x, const NBitsCut::Span& span, int64_t begin,
                           int64_t end) {
  return {{x.data + x.m * span.begin + begin * span.count, end - begin, span.count},
          x.starts + span.first_run * x.m + begin,
          x.m};
}

// What run i of a span is added to before its products: what zero points take.
template <int kRows, int kVecs>
HWY_INLINE void Begin(const SpanRows& x, const Factors& factors, int64_t i,
                      V (&sums)[kRows][kVecs]) {
  for (int r = 0; r < kRows; ++r) {
    const V start = hn::Set(D(), x.starts[i * x.all + r]);
    for (int v = 0; v < kVecs; ++v) {
      sums[r][v] = start;
      if (factors.zeros == nullptr) continue;
      const float* zeros = factors.zeros + (i * kVecs + v) * kLanes;
      sums[r][v] = hn::Mul(hn::LoadU(D(), zeros), start);
    }
  }
}

// totals += run i's sums, scaled.
template <int kRows, int kVecs>
HWY_INLINE void End(const Factors& factors, int64_t i, const V (&sums)[kRows][kVecs],
                    V (&totals)[kRows][kVecs]) {
  const float* scales = factors.scales + i * kVecs * kLanes;
  for (int v = 0; v < kVecs; ++v) {
    const V scale = hn::LoadU(D(), scales + v * kLanes);
    for (int r = 0; r < kRows; ++r) totals[r][v] = hn::MulAdd(scale, sums[r][v], totals[r][v]);
  }
}

// ---- products ----

// y, `columns` of the vectors' lanes.
template <int kRows, int kVecs>
HWY_INLINE void Store(const V (&totals)[kRows][kVecs], int64_t columns, const OutputView& y) {
  for (int r = 0; r < kRows; ++r) {
    HWY_ALIGN float row[kVecs * kLanes];
    for (int v = 0; v < kVecs; ++v) hn::Store(totals[r][v], D(), row + v * kLanes);
    std::copy_n(row, std::min(columns, kVecs * kLanes), y.data + r * y.stride);
  }
}

// totals += kRows rows of x by kRuns runs, the first of them the i-th of the span.
template <int kBits, int kRuns, int kRows, int kVecs>
HWY_INLINE void AddRuns(const SpanRows& x, const WeightRows<kVecs>& rows, const Factors& factors,
                        int64_t span_begin, int64_t i, const NBitsCut::Run& run,
                        V (&totals)[kRows][kVecs]) {
  V sums[kRuns][kRows][kVecs];
  for (int q = 0; q < kRuns; ++q) Begin(x, factors, i + q, sums[q]);
  const float* data = x.x.data + run.begin - span_begin;
  ForCodes<kBits, kRuns>(rows, run, [&](int64_t k, const V(&codes)[kRuns][kVecs]) HWY_ATTR {
    for (int q = 0; q < kRuns; ++q) {
      AddProducts({data + q * run.count, kRows, x.x.stride}, k, codes[q], sums[q]);
    }
  });
  for (int q = 0; q < kRuns; ++q) End(factors, i + q, sums[q], totals);
}

// kRows rows of x by kVecs vectors of rows of W from n on, y at the first of both.
template <int kBits, int kRows, int kVecs>
HWY_INLINE void DirectGroup(const NBitsRows& x, const NBitsWeight& w, const NBitsCut& cut,
                            int64_t row, int64_t n, int64_t n_end, const Factors& factors,
                            const OutputView& y) {
  constexpr int kRuns = kDirectRuns;
  const WeightRows<kVecs> rows(w, n, n_end);
  V totals[kRows][kVecs];
  for (auto& line : totals) {
    for (auto& total : line) total = hn::Zero(D());
  }
  for (const NBitsCut::Span& span : cut.spans()) {
    const SpanRows of_x = RowsOf(x, span, row, row + kRows);
    FillFactors(w, rows, n_end, span, factors);
    for (int64_t i = 0; i < span.num_runs;) {
      const NBitsCut::Run& run = span.runs[i];
      const bool several = i + kRuns <= span.num_runs && IsWhole<kBits>(run.count) &&
                           span.runs[i + kRuns - 1].count == run.count;
      if (several) {
        AddRuns<kBits, kRuns>(of_x, rows, factors, span.begin, i, run, totals);
      } else {
        AddRuns<kBits, 1>(of_x, rows, factors, span.begin, i, run, totals);
      }
      i += several ? kRuns : 1;
    }
  }
  Store(totals, n_end - n, y);
}

template <int kBits, int kRows>
HWY_INLINE void Direct(const NBitsRows& x, const NBitsWeight& w, const NBitsCut& cut,
                       const NBitsPart& part, const Factors& factors, const OutputView& y) {
  for (int64_t n = part.n_begin; n < part.n_end; n += kColumns) {
    DirectGroup<kBits, kRows, kVectors>(x, w, cut, part.row_begin, n, part.n_end, factors,
                                        {y.data + (n - part.n_begin), y.stride});
  }
}

// The codes of a span as a panel.
template <int kBits>
HWY_INLINE void Pack(const WeightRows<kVectors>& rows, const NBitsCut::Span& span, float* panel) {
  for (int64_t i = 0; i < span.num_runs; ++i) {
    const NBitsCut::Run& run = span.runs[i];
    float* to = panel + (run.begin - span.begin) * kColumns;
    ForCodes<kBits, 1>(rows, run, [&](int64_t k, const V(&codes)[1][kVectors]) HWY_ATTR {
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(codes[0][v], D(), to + k * kColumns + v * kLanes);
      }
    });
  }
}

// A panel of a span with what its runs have.
struct Panel {
  const float* codes;
  Factors factors;
  NBitsCut::Span span;
};

// y, whole vectors of it, (+)= kRows rows of x by a panel.
template <int kRows>
HWY_INLINE void PanelTile(const SpanRows& x, const Panel& panel, const OutputView& y) {
  V totals[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      totals[r][v] = panel.span.begin == 0 ? hn::Zero(D())
                                           : hn::LoadU(D(), y.data + r * y.stride + v * kLanes);
    }
  }
  for (int64_t i = 0; i < panel.span.num_runs; ++i) {
    const NBitsCut::Run& run = panel.span.runs[i];
    const int64_t at = run.begin - panel.span.begin;
    V sums[kRows][kVectors];
    Begin(x, panel.factors, i, sums);
    AddPanel({x.x.data + at, kRows, x.x.stride}, panel.codes + at * kColumns, run.count, sums);
    End(panel.factors, i, sums, totals);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(totals[r][v], D(), y.data + r * y.stride + v * kLanes);
    }
  }
}

template <int kRows = kMaxRows>
HWY_INLINE void PanelRows(const SpanRows& x, const Panel& panel, const OutputView& y) {
  if constexpr (kRows > 1) {
    if (x.x.m < kRows) return PanelRows<kRows - 1>(x, panel, y);
  }
  PanelTile<kRows>(x, panel, y);
}

// All rows of a span by a panel, of which `columns` are of y.
HWY_INLINE void MultiplyPanel(const SpanRows& x, const Panel& panel, int64_t columns,
                              const OutputView& y) {
  ForRowTiles(x.x.m, [&](int64_t first, int64_t count) HWY_ATTR {
    const SpanRows rows = x.From(first, count);
    float* to = y.data + first * y.stride;
    if (columns >= kColumns) return PanelRows(rows, panel, {to, y.stride});
    HWY_ALIGN float edge[kMaxRows * kColumns] = {};
    for (int64_t r = 0; panel.span.begin > 0 && r < count; ++r) {
      std::copy_n(to + r * y.stride, columns, edge + r * kColumns);
    }
    PanelRows(rows, panel, {edge, kColumns});
    for (int64_t r = 0; r < count; ++r) {
      std::copy_n(edge + r * kColumns, columns, to + r * y.stride);
    }
  });
}

// Columns [n, n_end) of W, a panel at a time, for all rows of the part: span after span, so that these
// rows' part of it stays in a second-level cache.
template <int kBits>
HWY_INLINE void Packed(const NBitsRows& x, const NBitsWeight& w, const NBitsCut& cut,
                       const NBitsPart& part, int64_t n, int64_t n_end, float* panel,
                       const Factors& factors, const OutputView& y) {
  for (const NBitsCut::Span& span : cut.spans()) {
    const SpanRows of_x = RowsOf(x, span, part.row_begin, part.row_end);
    for (int64_t c = n; c < n_end; c += kColumns) {
      const WeightRows<kVectors> rows(w, c, part.n_end);
      FillFactors(w, rows, part.n_end, span, factors);
      Pack<kBits>(rows, span, panel);
      MultiplyPanel(of_x, {panel, factors, span}, n_end - c,
                    {y.data + (c - part.n_begin), y.stride});
    }
  }
}

template <int kBits>
void Multiply(const NBitsRows& x, const NBitsWeight& w, const NBitsCut& cut, const NBitsPart& part,
              float* memory, const OutputView& y) {
  const int64_t floats = NBitsCut::MostRunsInSpan(w) * kColumns;
  const bool centred = w.zeros == nullptr && w.zero_codes == nullptr;
  const Factors factors{memory, centred ? nullptr : memory + floats};
  const int64_t rows = part.row_end - part.row_begin;
  if (rows == 1) return Direct<kBits, 1>(x, w, cut, part, factors, y);
  if (rows <= kMaxDirectRows) return Direct<kBits, kMaxDirectRows>(x, w, cut, part, factors, y);
  // Few rows: all of them stay in a cache, and W goes by front to back.
  constexpr int64_t kFewRows = 16;
  const int64_t columns = rows <= kFewRows ? kColumns : part.n_end - part.n_begin;
  for (int64_t n = part.n_begin; n < part.n_end; n += columns) {
    Packed<kBits>(x, w, cut, part, n, std::min(n + columns, part.n_end), memory + 2 * floats,
                  factors, y);
  }
}

void MultiplyAny(const NBitsRows& x, const NBitsWeight& w, const NBitsCut& cut,
                 const NBitsPart& part, float* memory, const OutputView& y) {
  (w.bits == 2 ? Multiply<2> : w.bits == 4 ? Multiply<4> : Multiply<8>)(x, w, cut, part, memory, y);
}

int64_t PartFloats(const NBitsWeight& w) {
  return 2 * NBitsCut::MostRunsInSpan(w) * kColumns + NBitsCut::kMostRun * kColumns;
}

// ---- rows of x ----

// What elements of a run are multiplied with, from any of the first kPer on.
template <int kBits>
struct Powers {
  static constexpr int64_t kPer = kPerWord<kBits>;
  HWY_ALIGN float at[kPer + kLanes];

  HWY_INLINE Powers() {
    for (int64_t i = 0; i < kPer + kLanes; ++i) {
      const int64_t code = i % kPer;
      at[i] = code == kPer - 1 ? 1.0f : 1.0f / static_cast<float>(int64_t{1} << (kBits * code));
    }
  }
};

template <int kBits>
void LayOut(const NBitsWeight& w, const NBitsCut& cut, const float* x, int64_t row,
            const NBitsRows& to) {
  const D d;
  const Powers<kBits> powers;
  const bool centred = w.zeros == nullptr && w.zero_codes == nullptr;
  const float factor = centred ? -static_cast<float>(1 << (kBits - 1)) : -1.0f;
  for (const NBitsCut::Span& span : cut.spans()) {
    for (int64_t j = 0; j < span.num_runs; ++j) {
      const NBitsCut::Run& run = span.runs[j];
      const float* from = x + run.begin;
      float* out = to.data + to.m * span.begin + row * span.count + (run.begin - span.begin);
      V sums = hn::Zero(d);
      int64_t i = 0;
      for (; i + kLanes <= run.count; i += kLanes) {
        const V values = hn::LoadU(d, from + i);
        sums = hn::Add(sums, values);
        hn::StoreU(hn::Mul(values, hn::LoadU(d, powers.at + i % powers.kPer)), d, out + i);
      }
      float sum = hn::GetLane(hn::SumOfLanes(d, sums));
      for (; i < run.count; ++i) {
        sum += from[i];
        out[i] = from[i] * powers.at[i % powers.kPer];
      }
      to.starts[(span.first_run + j) * to.m + row] = factor * sum;
    }
  }
}

void LayOutAny(const NBitsWeight& w, const NBitsCut& cut, const float* x, int64_t row,
               const NBitsRows& to) {
  (w.bits == 2 ? LayOut<2> : w.bits == 4 ? LayOut<4> : LayOut<8>)(w, cut, x, row, to);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(MultiplyAny);
HWY_EXPORT(PartFloats);
HWY_EXPORT(LayOutAny);

int64_t NBitsCut::NumRuns(const NBitsWeight& w) {
  const int64_t whole = w.blocks() - 1, in_block = (w.block + kMostRun - 1) / kMostRun;
  return whole * in_block + (w.k - whole * w.block + kMostRun - 1) / kMostRun;
}

NBitsCut::NBitsCut(const NBitsWeight& w) {
  runs_.reserve(static_cast<size_t>(NumRuns(w)));
  for (int64_t b = 0; b < w.blocks(); ++b) {
    const int64_t end = std::min((b + 1) * w.block, w.k);
    for (int64_t at = b * w.block; at < end; at += kMostRun) {
      runs_.push_back({at, std::min(kMostRun, end - at), b});
    }
  }
  const int64_t most = MostRunsInSpan(w);
  for (int64_t i = 0; i < num_runs(); i += most) {
    const int64_t count = std::min(most, num_runs() - i);
    const Run &first = runs_[i], &last = runs_[i + count - 1];
    spans_.push_back({&first, i, count, first.begin, last.begin + last.count - first.begin});
  }
}

void LayOutNBitsRow(const NBitsWeight& w, const NBitsCut& cut, const float* x, int64_t row,
                    const NBitsRows& to) {
  HWY_DYNAMIC_DISPATCH(LayOutAny)(w, cut, x, row, to);
}

int64_t NBitsPartFloats(const NBitsWeight& w) { return HWY_DYNAMIC_DISPATCH(PartFloats)(w); }

void MultiplyNBits(const NBitsRows& x, const NBitsWeight& w, const NBitsCut& cut,
                   const NBitsPart& part, float* memory, const OutputView& y) {
  HWY_DYNAMIC_DISPATCH(MultiplyAny)(x, w, cut, part, memory, y);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
