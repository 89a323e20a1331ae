// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/tile_f32_hwy.h"

#include <algorithm>

#include "pagefuse/ops/kernels/linalg/ask_ahead.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/tile_f32_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/linalg/register_tile-inl.h"
#include "pagefuse/ops/kernels/linalg/transposed_f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

static_assert(kTileColumns % kColumns == 0 && kTileRows % kMaxRows == 0);
// Rows of x up to which a transposed W goes to the sums as it is read: packing it takes longer.
constexpr int kMaxDirectRows = 8;

// Floats of a cache line.
constexpr int64_t kLine = 16;

// A part of W: its element (k, n) is at[k * k_step + n * n_step], and one of the steps is 1.
struct Block {
  const float* at;
  int64_t rows;     // along k
  int64_t columns;  // along n
  int64_t k_step;
  int64_t n_step;

  bool transposed() const { return k_step == 1; }
};

// What of W comes next, in memory still. It is asked for while sums are made.
class Asking {
 public:
  // `calls`: of Some(), until all of the block has been asked for. No rows: nothing is.
  Asking(const Block& next, int64_t calls)
      : stride_(next.transposed() ? next.n_step : next.k_step),
        length_(next.transposed() ? next.rows : next.columns),
        row_(next.at),
        rows_(next.transposed() ? next.columns : next.rows) {
    const int64_t lines = rows_ * ((length_ + kLine - 1) / kLine);
    some_ = (lines + calls - 1) / calls;
  }

  HWY_INLINE void Some() {
    for (int64_t i = 0; i < some_ && rows_ > 0; ++i) {
      AskAhead(row_ + at_);
      at_ += kLine;
      if (at_ < length_) continue;
      at_ = 0;
      row_ += stride_;
      --rows_;
    }
  }

 private:
  int64_t stride_, length_;
  const float* row_;
  int64_t rows_;  // that are left
  int64_t at_ = 0;
  int64_t some_;
};

// Where sums come from and go to. A chunk that is cut into several blocks leaves them in `sums`
// between two of these.
struct Output {
  OutputView y, sums;
  bool begins, ends;  // a chunk
  bool adds;          // to y, which has the chunks before

  Output At(int64_t row, int64_t column) const {
    Output at = *this;
    at.y.data += row * y.stride + column;
    if (sums.data != nullptr) at.sums.data += row * sums.stride + column;
    return at;
  }
};

template <int kRows, int kVecs>
HWY_INLINE void Begin(const Output& out, V (&sums)[kRows][kVecs]) {
  const D d;
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      sums[r][v] =
          out.begins ? hn::Zero(d) : hn::LoadU(d, out.sums.data + r * out.sums.stride + v * kLanes);
    }
  }
}

template <int kRows, int kVecs>
HWY_INLINE void End(const V (&sums)[kRows][kVecs], const Output& out) {
  const D d;
  const OutputView& view = out.ends ? out.y : out.sums;
  const bool adds = out.ends && out.adds;
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      float* to = view.data + r * view.stride + v * kLanes;
      hn::StoreU(adds ? hn::Add(hn::LoadU(d, to), sums[r][v]) : sums[r][v], d, to);
    }
  }
}

// kRows rows of x by `rows` rows of a packed panel.
template <int kRows>
HWY_INLINE void PackedTile(const RowsView& x, const float* panel, int64_t rows, const Output& out) {
  V sums[kRows][kVectors];
  Begin(out, sums);
  AddPanel(x, panel, rows, sums);
  End(sums, out);
}

// A range of k within a chunk.
struct Span {
  int64_t begin, end;
  bool begins, ends;  // the chunk

  int64_t count() const { return end - begin; }
};

// kLanes columns of a transposed W, whole: element (k, n) is at[n * k_all + k].
struct DirectColumns {
  const float* at;
  int64_t k_all;

  // Asks for what is read some lines after `k`: of these columns, or of those that follow.
  HWY_INLINE void Ask(int64_t k) const {
    constexpr int64_t kAhead = 8 * kLine;
    const float* ahead =
        k + kAhead < k_all ? at + k + kAhead : at + (kLanes - 1) * k_all + k + kAhead;
    for (int64_t c = 0; c < kLanes; ++c) AskAhead(ahead + c * k_all);
  }
};

// kRows rows of x by a span of such columns.
template <int kRows>
HWY_INLINE void DirectTile(const RowsView& x, const DirectColumns& w, const Span& span,
                           const Output& out) {
  V sums[kRows][1];
  Begin(out, sums);
  int64_t k = span.begin;
  for (; k + 4 <= span.end; k += 4) {
    if (k % kLine == 0) w.Ask(k);
    V weights[4];
    LoadTransposed(D(), w.at + k, w.k_all, weights);
    for (int i = 0; i < 4; ++i) {
      const V one[1] = {weights[i]};
      AddProducts(x, k + i, one, sums);
    }
  }
  for (; k < span.end; ++k) {
    const V weights[1] = {LoadEach(D(), w.at + k, w.k_all)};
    AddProducts(x, k, weights, sums);
  }
  End(sums, out);
}

template <int kRows = kMaxRows>
HWY_INLINE void PackedRows(const RowsView& x, const float* panel, int64_t rows, const Output& out) {
  if constexpr (kRows > 1) {
    if (x.m < kRows) return PackedRows<kRows - 1>(x, panel, rows, out);
  }
  PackedTile<kRows>(x, panel, rows, out);
}

template <int kRows = kMaxDirectRows>
HWY_INLINE void DirectRows(const RowsView& x, const DirectColumns& w, const Span& span,
                           const Output& out) {
  if constexpr (kRows > 1) {
    if (x.m < kRows) return DirectRows<kRows - 1>(x, w, span, out);
  }
  DirectTile<kRows>(x, w, span, out);
}

// A tile of fewer columns than a panel has. Its sums have all of them, y does not.
HWY_INLINE void EdgeRows(const RowsView& x, const float* panel, int64_t rows, int64_t columns,
                         const Output& out) {
  HWY_ALIGN float sums[kMaxRows * kColumns];
  Output edge = out;
  if (out.ends) edge.y = {sums, kColumns};
  edge.adds = false;
  PackedRows(x, panel, rows, edge);
  for (int64_t r = 0; out.ends && r < x.m; ++r) {
    float* to = out.y.data + r * out.y.stride;
    const float* row = sums + r * kColumns;
    for (int64_t c = 0; c < columns; ++c) to[c] = out.adds ? to[c] + row[c] : row[c];
  }
}

// ---- panels: [panel][k][kColumns] ----

// Columns [n, n + columns) of a block, fewer than a panel has; zeros beside them.
void PackEdge(const Block& block, int64_t n, int64_t columns, float* to) {
  std::fill_n(to, block.rows * kColumns, 0.0f);
  for (int64_t k = 0; k < block.rows; ++k) {
    for (int64_t c = 0; c < columns; ++c) {
      to[k * kColumns + c] = block.at[k * block.k_step + (n + c) * block.n_step];
    }
  }
}

// The first `panels` panels of a W [k, n], row by row of it, as its memory likes it.
void PackRows(const Block& block, int64_t panels, float* to) {
  const D d;
  for (int64_t k = 0; k < block.rows; ++k) {
    const float* row = block.at + k * block.k_step;
    for (int64_t p = 0; p < panels; ++p) {
      float* panel = to + (p * block.rows + k) * kColumns;
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(hn::LoadU(d, row + p * kColumns + v * kLanes), d, panel + v * kLanes);
      }
    }
  }
}

// A panel of a transposed W, from its column `n` on. A cache line of as few rows at a time as can
// be: all of them may want the same place in a cache.
void PackTransposed(const Block& block, int64_t n, float* to) {
  const D d;
  const int64_t stride = block.n_step;
  const int64_t fours = block.rows / 4 * 4;
  for (int64_t begin = 0; begin < block.rows; begin += kLine) {
    const int64_t end = std::min(begin + kLine, block.rows);
    for (int v = 0; v < kVectors; ++v) {
      const float* from = block.at + (n + v * kLanes) * stride;
      float* panel = to + v * kLanes;
      int64_t k = begin;
      for (; k < std::min(end, fours); k += 4) {
        V weights[4];
        LoadTransposed(d, from + k, stride, weights);
        for (int i = 0; i < 4; ++i) hn::StoreU(weights[i], d, panel + (k + i) * kColumns);
      }
      for (; k < end; ++k) hn::StoreU(LoadEach(d, from + k, stride), d, panel + k * kColumns);
    }
  }
}

void Pack(const Block& block, float* to) {
  const int64_t panels = block.columns / kColumns;
  if (block.transposed()) {
    for (int64_t p = 0; p < panels; ++p) {
      PackTransposed(block, p * kColumns, to + p * block.rows * kColumns);
    }
  } else {
    PackRows(block, panels, to);
  }
  if (const int64_t rest = block.columns - panels * kColumns; rest > 0) {
    PackEdge(block, panels * kColumns, rest, to + panels * block.rows * kColumns);
  }
}

// ---- products ----

// All rows of x by `columns` columns of a packed panel.
HWY_INLINE void MultiplyPanel(const RowsView& x, const float* panel, int64_t k_rows,
                              int64_t columns, Asking& asking, const Output& out) {
  ForRowTiles(x.m, [&](int64_t r, int64_t count) HWY_ATTR {
    const RowsView rows{x.data + r * x.stride, count, x.stride};
    asking.Some();
    if (columns == kColumns) {
      PackedRows(rows, panel, k_rows, out.At(r, 0));
    } else {
      EdgeRows(rows, panel, k_rows, columns, out.At(r, 0));
    }
  });
}

// All rows of x by a block, with what comes after it in mind.
HWY_INLINE void MultiplyPacked(const RowsView& x, const Block& block, const Block& next,
                               float* panels, const Output& out) {
  Pack(block, panels);
  Asking asking(next, RowTiles(x.m) * ((block.columns + kColumns - 1) / kColumns));
  for (int64_t n = 0; n < block.columns; n += kColumns) {
    MultiplyPanel(x, panels + n * block.rows, block.rows, std::min(kColumns, block.columns - n),
                  asking, out.At(0, n));
  }
}

// What a call has in its memory.
struct Memory {
  float* panels;  // of a block of W
  float* sums;    // of a chunk that is cut

  static int64_t SumStride(int64_t columns) {
    return (columns + kColumns - 1) / kColumns * kColumns;
  }
  static int64_t Floats(int64_t rows, const TileCut& cut) {
    return SumStride(cut.columns()) * (cut.block_rows() + rows);
  }
  Memory(const TileCut& cut, float* memory) : panels(memory), sums(memory + Floats(0, cut)) {}
};

HWY_INLINE Span SpanFrom(int64_t k, int64_t all, const TileCut& cut, int64_t most) {
  const int64_t in_chunk = k % cut.chunk_rows;
  const int64_t chunk_end = std::min(k - in_chunk + cut.chunk_rows, all);
  const int64_t end = std::min(k + most, chunk_end);
  return {k, end, in_chunk == 0, end == chunk_end};
}

// Few rows by a transposed W: its rows go by one after the other, front to back.
void MultiplyDirect(const RowsView& x, const WeightView& w, const TileCut& cut, const Memory& at,
                    const OutputView& y) {
  for (int64_t n = cut.begin; n < cut.end; n += kLanes) {
    const int64_t columns = std::min(kLanes, cut.end - n);
    const int64_t most = columns == kLanes ? cut.chunk_rows : cut.block_rows();
    for (int64_t k = 0; k < w.k;) {
      const Span span = SpanFrom(k, w.k, cut, most);
      const float* from = w.data + n * w.k;
      const Output out{{y.data + (n - cut.begin), y.stride},
                       {at.sums, kColumns},
                       span.begins,
                       span.ends,
                       k >= cut.chunk_rows};
      if (columns == kLanes) {
        DirectRows(x, {from, w.k}, span, out);
      } else {
        PackEdge({from + k, span.count(), columns, 1, w.k}, 0, columns, at.panels);
        Asking nothing({}, 1);
        MultiplyPanel({x.data + k, x.m, x.stride}, at.panels, span.count(), columns, nothing, out);
      }
      k = span.end;
    }
  }
}

HWY_INLINE RowsView RowsOf(const TileRows& x, const Span& span) {
  if (x.laid == nullptr) return {x.x.data + span.begin, x.x.m, x.x.stride};
  return {x.laid + x.all * span.begin + x.first * span.count(), x.x.m, span.count()};
}

void Multiply(const TileRows& x, const WeightView& w, const TileCut& cut, float* memory,
              const OutputView& y) {
  const Memory at(cut, memory);
  if (w.transposed && x.x.m <= kMaxDirectRows) return MultiplyDirect(x.x, w, cut, at, y);
  const int64_t k_step = w.transposed ? 1 : w.n, n_step = w.transposed ? w.k : 1;
  const auto span_at = [&](int64_t k) { return SpanFrom(k, w.k, cut, cut.block_rows()); };
  const auto block_at = [&](const Span& span) {
    return Block{w.data + span.begin * k_step + cut.begin * n_step, span.count(), cut.columns(),
                 k_step, n_step};
  };
  for (Span span = span_at(0); span.begin < w.k;) {
    const Span next = span_at(span.end);
    const Output out{.y = y,
                     .sums = {at.sums, Memory::SumStride(cut.columns())},
                     .begins = span.begins,
                     .ends = span.ends,
                     .adds = span.begin >= cut.chunk_rows};
    MultiplyPacked(RowsOf(x, span), block_at(span), block_at(next), at.panels, out);
    span = next;
  }
}

int64_t MemoryFloats(int64_t rows, const TileCut& cut) { return Memory::Floats(rows, cut); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(Multiply);
HWY_EXPORT(MemoryFloats);

namespace {

constexpr int64_t kMaxBlockRows = 256;

}  // namespace

int64_t TileCut::block_rows() const {
  const int64_t blocks = (chunk_rows + kMaxBlockRows - 1) / kMaxBlockRows;
  return ((chunk_rows + blocks - 1) / blocks + 3) / 4 * 4;
}

bool WantLayOut(const RowsView& x) {
  constexpr int64_t kFewRows = 12;
  return x.m > kFewRows && x.stride > kMaxBlockRows;
}

void LayOutRows(const RowsView& x, int64_t k, int64_t chunk_rows, int64_t begin, int64_t end,
                float* laid) {
  const int64_t block_rows = TileCut{0, 0, chunk_rows}.block_rows();
  for (int64_t chunk = 0; chunk < k; chunk += chunk_rows) {
    const int64_t chunk_end = std::min(chunk + chunk_rows, k);
    for (int64_t at = chunk; at < chunk_end; at += block_rows) {
      const int64_t count = std::min(block_rows, chunk_end - at);
      for (int64_t r = begin; r < end; ++r) {
        std::copy_n(x.data + r * x.stride + at, count, laid + x.m * at + r * count);
      }
    }
  }
}

int64_t TileFloats(int64_t rows, const TileCut& cut) {
  return HWY_DYNAMIC_DISPATCH(MemoryFloats)(rows, cut);
}

void MultiplyColumns(const TileRows& x, const WeightView& w, const TileCut& cut, float* memory,
                     const OutputView& y) {
  HWY_DYNAMIC_DISPATCH(Multiply)(x, w, cut, memory, y);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
