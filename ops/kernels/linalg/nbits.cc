// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/nbits.h"

#include <algorithm>
#include <atomic>

#include "hwy/aligned_allocator.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/kernels/linalg/nbits_hwy.h"
#include "pagefuse/ops/kernels/linalg/onednn.h"
#include "pagefuse/ops/kernels/linalg/packed_bf16.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/numeric/packed_elements.h"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"

namespace pagefuse {
namespace {

constexpr int64_t kFewRows = 16;            // more rows of x pay for decoding whole tiles
constexpr int64_t kTileFloats = 512 << 10;  // of decoded weights: they stay in L2
constexpr int64_t kBf16Columns = 512;       // decoded at a time for AMX
constexpr int64_t kUnitBytes = 32 << 10;    // of codes in one unit of work

uint8_t CodeAt(const uint8_t* codes, int bits, int64_t i) {
  return bits == 8 ? codes[i] : GetPacked(codes, i, bits);
}

// Rows of W in one unit of work.
int64_t UnitRows(const NBitsWeight& w) {
  return std::max<int64_t>(kUnitBytes / std::max<int64_t>(w.row_bytes, 1), 1);
}

int64_t PaddedK(const NBitsWeight& w) { return w.blocks() * w.block; }

void Stream(const RowsView& x, const NBitsWeight& w, float* scratch, const OutputView& y) {
  const int64_t padded = PaddedK(w);
  float* rows = scratch;
  float* sums = rows + x.m * padded;
  const NBitsRows laid{rows, sums, x.m};
  const int64_t unit = UnitRows(w);
  ParallelFor(x.m, 3 * padded * static_cast<int64_t>(sizeof(float)), [&](int64_t r, int64_t end) {
    for (; r < end; ++r) {
      LayOutNBitsRow(w, x.data + r * x.stride, rows + r * padded, sums + r * w.blocks());
    }
  });
  PerWorker<std::vector<float>> weights;
  ParallelTasks((w.n + unit - 1) / unit, [&](int64_t task, int worker) {
    std::vector<float>& own = weights[worker];
    own.resize(static_cast<size_t>(w.blocks()));
    StreamNBits(laid, w, task * unit, std::min((task + 1) * unit, w.n), own.data(), y);
  });
}

// Blocks that the kernels do not take: a row of W at a time as floats.
void StreamDecoded(const RowsView& x, const NBitsWeight& w, const OutputView& y) {
  const int64_t bytes = w.k * static_cast<int64_t>(sizeof(float)) * (1 + x.m);
  ParallelFor(w.n, bytes, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(w.k));
    for (int64_t n = begin; n < end; ++n) {
      DecodeNBitsRow(w, n, row.data());
      for (int64_t r = 0; r < x.m; ++r) {
        y.data[r * y.stride + n] = onnx_ops::DotRow(x.data + r * x.stride, row.data(), w.k);
      }
    }
  });
}

// A tile of W's rows at a time as floats, each worker its own.
absl::Status TiledSgemm(const RowsView& x, const NBitsWeight& w, const OutputView& y) {
  const int64_t tile = std::clamp<int64_t>(kTileFloats / w.k, 16, 256);
  PerWorker<std::vector<float>> rows;
  std::atomic<bool> ok = true;
  ParallelTasks((w.n + tile - 1) / tile, [&](int64_t task, int worker) {
    const int64_t n = task * tile;
    const int64_t columns = std::min(tile, w.n - n);
    std::vector<float>& own = rows[worker];
    own.resize(static_cast<size_t>(std::min(tile, w.n) * w.k));
    for (int64_t i = 0; i < columns; ++i) DecodeNBitsRow(w, n + i, own.data() + i * w.k);
    const Sgemm product{.trans_b = true,
                        .m = x.m,
                        .n = columns,
                        .k = w.k,
                        .a = x.data,
                        .lda = x.stride,
                        .b = own.data(),
                        .ldb = w.k,
                        .c = y.data + n,
                        .ldc = y.stride};
    if (!RunSgemm(product)) ok = false;
  });
  return ok ? absl::OkStatus() : absl::InternalError("oneDNN sgemm failed");
}

absl::Status TiledBf16(const RowsView& x, const NBitsWeight& w, void* scratch,
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
  const bool may_stream = m <= NBitsStreamedRows();
  const auto row_bytes = static_cast<size_t>(PaddedK(w) + w.blocks()) * sizeof(float);
  return std::max(may_stream ? static_cast<size_t>(m) * row_bytes : 0,
                  m > kFewRows ? LinearBf16ScratchBytes(m, w.k) : 0);
}

absl::Status LinearNBits(const RowsView& x, const NBitsWeight& w, NBitsPrecision precision,
                         void* scratch, const OutputView& y) {
  if (x.m == 0 || w.n == 0) return absl::OkStatus();
  if (w.k == 0) {
    for (int64_t r = 0; r < x.m; ++r) std::fill_n(y.data + r * y.stride, w.n, 0.0f);
    return absl::OkStatus();
  }
  const bool tiles = precision == NBitsPrecision::kBfloat16 && HasBf16Tiles();
  const bool streams = NBitsStreams(w);
  if (x.m > (tiles || !streams ? kFewRows : NBitsStreamedRows())) {
    return tiles ? TiledBf16(x, w, scratch, y) : TiledSgemm(x, w, y);
  }
  if (streams) {
    Stream(x, w, static_cast<float*>(scratch), y);
  } else {
    StreamDecoded(x, w, y);
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
