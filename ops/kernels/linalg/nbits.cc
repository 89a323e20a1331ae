// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/nbits.h"

#include <algorithm>

#include "hwy/aligned_allocator.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/kernels/linalg/nbits_f32_hwy.h"
#include "pagefuse/ops/kernels/linalg/packed_bf16.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/numeric/packed_elements.h"

namespace pagefuse {
namespace {

constexpr int64_t kFewRows = 16;          // so many are bound by reading the codes
constexpr int64_t kTileRows = 264;        // of x in one unit of work: a span of them stays in L2
constexpr int64_t kBf16Columns = 512;     // decoded at a time for a unit for bfloat16
constexpr int64_t kUnitBytes = 32 << 10;  // of codes in one unit of work
constexpr int64_t kUnitColumns = 64;      // rows of W that kernels take at a time, or a multiple

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t WholeLines(int64_t floats) { return CeilDiv(floats, 16) * 16; }

uint8_t CodeAt(const uint8_t* codes, int bits, int64_t i) {
  return bits == 8 ? codes[i] : GetPacked(codes, i, bits);
}

// How a product is cut into parts, each of which one worker computes. It decides who computes what
// when, not how.
class Parts {
 public:
  Parts(int64_t m, const NBitsWeight& w) : m_(m), n_(w.n) {
    row_tiles_ = CeilDiv(m, kTileRows);
    rows_ = CeilDiv(m, row_tiles_);
    const int64_t fitting = kUnitBytes / std::max<int64_t>(w.row_bytes, 1) / kUnitColumns;
    columns_ = (m > kFewRows ? 1 : std::max<int64_t>(fitting, 1)) * kUnitColumns;
  }
  int64_t count() const { return row_tiles_ * CeilDiv(n_, columns_); }
  // Parts of the same rows of W follow each other.
  NBitsPart At(int64_t i) const {
    const int64_t row = i % row_tiles_ * rows_, column = i / row_tiles_ * columns_;
    return {row, std::min(row + rows_, m_), column, std::min(column + columns_, n_)};
  }
  int64_t workers() const { return std::min<int64_t>(MaxWorkers(), count()); }

 private:
  int64_t m_, n_;
  int64_t row_tiles_, rows_, columns_;
};

void MultiplyFloats(const RowsView& x, const NBitsWeight& w, float* scratch, const OutputView& y) {
  const NBitsCut cut(w);
  const NBitsRows rows{scratch, scratch + WholeLines(x.m * w.k), x.m};
  float* memory = rows.starts + WholeLines(x.m * cut.num_runs());
  ParallelFor(x.m, 3 * w.k * static_cast<int64_t>(sizeof(float)), [&](int64_t r, int64_t end) {
    for (; r < end; ++r) LayOutNBitsRow(w, cut, x.data + r * x.stride, r, rows);
  });
  const Parts parts(x.m, w);
  const int64_t floats = WholeLines(NBitsPartFloats(w));
  ParallelTasks(parts.count(), [&](int64_t i, int worker) {
    const NBitsPart part = parts.At(i);
    MultiplyNBits(rows, w, cut, part, memory + worker * floats,
                  {y.data + part.row_begin * y.stride + part.n_begin, y.stride});
  });
}

size_t FloatsBytes(int64_t m, const NBitsWeight& w) {
  const int64_t rows = WholeLines(m * w.k) + WholeLines(m * NBitsCut::NumRuns(w));
  const int64_t memory = Parts(m, w).workers() * WholeLines(NBitsPartFloats(w));
  return static_cast<size_t>(rows + memory) * sizeof(float);
}

bool IsEmpty(int64_t m, const NBitsWeight& w) { return m == 0 || w.n == 0 || w.k == 0; }

// Decoded to bfloat16, some rows of W at a time, for a unit for it.
absl::Status MultiplyBf16(const RowsView& x, const NBitsWeight& w, void* scratch,
                          const OutputView& y) {
  const int64_t most = std::min(kBf16Columns, w.n);
  std::vector<uint16_t> rows(static_cast<size_t>(most * w.k));
  const auto words = hwy::AllocateAligned<uint16_t>(PackedBf16::Words(w.k, most));
  if (words == nullptr) return absl::ResourceExhaustedError("no memory for decoded weights");
  for (int64_t n = 0; n < w.n; n += kBf16Columns) {
    const int64_t columns = std::min(kBf16Columns, w.n - n);
    ParallelFor(columns, w.k * 8, [&](int64_t begin, int64_t end) {
      std::vector<float> row(static_cast<size_t>(w.k));
      for (int64_t i = begin; i < end; ++i) {
        DecodeNBitsRow(w, n + i, row.data());
        EncodeFromFloat(DataType::kBfloat16, row.data(), w.k, rows.data() + i * w.k).IgnoreError();
      }
    });
    PackedBf16::Pack({.words = rows.data(), .n = columns, .k = w.k}, words.get());
    LinearBf16(x, {words.get(), w.k, columns}, scratch, {y.data + n, y.stride});
  }
  return absl::OkStatus();
}

}  // namespace

uint8_t NBitsWeight::Code(int64_t row, int64_t column) const {
  return CodeAt(codes + row * row_bytes, bits, column);
}

float NBitsWeight::Zero(int64_t row, int64_t index) const {
  if (zeros != nullptr) return zeros[row * blocks() + index];
  if (zero_codes != nullptr) return CodeAt(zero_codes + row * zero_row_bytes, bits, index);
  return static_cast<float>(1 << (bits - 1));
}

std::vector<Float16> HalfScales(const float* scales, int64_t count) {
  constexpr int64_t kPart = 4096;
  std::vector<Float16> halves(static_cast<size_t>(count));
  float back[kPart];
  for (int64_t i = 0; i < count; i += kPart) {
    const int64_t part = std::min(kPart, count - i);
    const bool done =
        EncodeFromFloat(DataType::kFloat16, scales + i, part, halves.data() + i).ok() &&
        DecodeToFloat(DataType::kFloat16, halves.data() + i, part, back).ok();
    if (!done || !std::equal(back, back + part, scales + i)) return {};
  }
  return halves;
}

size_t NBitsScratchBytes(int64_t m, const NBitsWeight& w) {
  if (IsEmpty(m, w)) return 0;
  return std::max(FloatsBytes(m, w), HasBf16Tiles() ? LinearBf16ScratchBytes(m, w.k) : 0);
}

absl::Status LinearNBits(const RowsView& x, const NBitsWeight& w, NBitsPrecision precision,
                         void* scratch, const OutputView& y) {
  if (IsEmpty(x.m, w)) {
    for (int64_t r = 0; r < x.m; ++r) std::fill_n(y.data + r * y.stride, w.n, 0.0f);
    return absl::OkStatus();
  }
  if (precision == NBitsPrecision::kBfloat16 && HasBf16Tiles()) {
    return MultiplyBf16(x, w, scratch, y);
  }
  MultiplyFloats(x, w, static_cast<float*>(scratch), y);
  return absl::OkStatus();
}

}  // namespace pagefuse
