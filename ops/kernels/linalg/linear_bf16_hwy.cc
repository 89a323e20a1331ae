// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/linear_bf16_hwy.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::CappedTag<float, 16>;
using DU = hn::RebindToUnsigned<DF>;

constexpr int64_t kBlockRows = PackedBf16::kBlockRows;
constexpr int64_t kBlockColumns = PackedBf16::kBlockColumns;
// Rows that one group computes before it stores them: whole multiples of all that ColumnBlock
// takes.
constexpr int64_t kMaxRows = 24;

constexpr int64_t kLanes = HWY_MIN(HWY_LANES(float), kBlockColumns);
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3;
// A row has two sums a vector, of even and of odd rows of W: those of eight rows in 32 registers,
// of six in 16. One or two rows take two vectors at a time, so that W is read once.
constexpr int kMostRows = kManyRegisters ? 8 : 6;
constexpr int64_t kFewRowsVectors = HWY_MIN(kBlockColumns / kLanes, 2);

// kRows rows of x (stride apart) times one column block: out[r * 16 + c]. In the order that
// linear_bf16.h defines.
template <int kRows, int64_t kVectors>
HWY_NOINLINE void ColumnBlock(const float* x, int64_t stride, const uint16_t* words,
                              int64_t k_blocks, float* out) {
  const DF df;
  const DU du;
  const auto high = hn::Set(du, 0xFFFF0000u);
  for (int64_t column = 0; column < kBlockColumns; column += kVectors * kLanes) {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(hn::Zero(df), df, out + r * kBlockColumns + column + v * kLanes);
      }
    }
    const uint32_t* pairs = reinterpret_cast<const uint32_t*>(words) + column;
    for (int64_t b = 0; b < k_blocks; ++b) {
      hn::Vec<DF> even_sum[kRows][kVectors];
      hn::Vec<DF> odd_sum[kRows][kVectors];
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) even_sum[r][v] = odd_sum[r][v] = hn::Zero(df);
      }
      for (int64_t k = b * kBlockRows; k < (b + 1) * kBlockRows; k += 2, pairs += kBlockColumns) {
        hn::Vec<DF> even[kVectors], odd[kVectors];
        for (int v = 0; v < kVectors; ++v) {
          const auto pair = hn::LoadU(du, pairs + v * kLanes);
          even[v] = hn::BitCast(df, hn::ShiftLeft<16>(pair));
          odd[v] = hn::BitCast(df, hn::And(pair, high));
        }
        for (int r = 0; r < kRows; ++r) {
          const auto x_even = hn::Set(df, x[r * stride + k]);
          const auto x_odd = hn::Set(df, x[r * stride + k + 1]);
          for (int v = 0; v < kVectors; ++v) {
            even_sum[r][v] = hn::MulAdd(even[v], x_even, even_sum[r][v]);
            odd_sum[r][v] = hn::MulAdd(odd[v], x_odd, odd_sum[r][v]);
          }
        }
      }
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) {
          float* total = out + r * kBlockColumns + column + v * kLanes;
          const auto sum = hn::Add(even_sum[r][v], odd_sum[r][v]);
          hn::StoreU(hn::Add(hn::LoadU(df, total), sum), df, total);
        }
      }
    }
  }
}

void Rows(int64_t rows, const float* x, int64_t stride, const uint16_t* words, int64_t k_blocks,
          float* out) {
  int64_t r = 0;
  const auto take = [&](int count, const auto& column_block) HWY_ATTR {
    for (; r + count <= rows; r += count) {
      column_block(x + r * stride, stride, words, k_blocks, out + r * kBlockColumns);
    }
  };
  take(kMostRows, ColumnBlock<kMostRows, 1>);
  take(4, ColumnBlock<4, 1>);
  take(2, ColumnBlock<2, kFewRowsVectors>);
  take(1, ColumnBlock<1, kFewRowsVectors>);
}

// All rows by one group: a column block, or a gate and an up block.
void Group(const Bf16Product& product, const float* x, int64_t group) {
  const Bf16Source& w = *product.weight;
  const int64_t stride = w.k_blocks() * kBlockRows;
  const int64_t matrices = w.gated() ? 2 : 1;
  const int64_t columns = std::min(kBlockColumns, w.n() - group * kBlockColumns);
  HWY_ALIGN float out[2][kMaxRows * kBlockColumns];
  for (int64_t first = 0; first < product.m; first += kMaxRows) {
    const int64_t rows = std::min(kMaxRows, product.m - first);
    for (int64_t i = 0; i < matrices; ++i) {
      Rows(rows, x + first * stride, stride, w.column_block(group * matrices + i), w.k_blocks(),
           out[i]);
    }
    if (w.gated()) {
      GatedProduct(product.gate, out[0], out[1], rows * kBlockColumns, out[0]);
    }
    float* y = product.y.data + first * product.y.stride + group * kBlockColumns;
    for (int64_t r = 0; r < rows; ++r, y += product.y.stride) {
      std::memcpy(y, out[0] + r * kBlockColumns, columns * sizeof(float));
    }
  }
}

void Product(const Bf16Product& product, const float* x) {
  const Bf16Source& w = *product.weight;
  const int64_t groups = (w.n() + kBlockColumns - 1) / kBlockColumns;
  constexpr int64_t kBlockBytes = PackedBf16::kBlockWords * sizeof(uint16_t);
  const int64_t bytes =
      w.k_blocks() * (w.gated() ? 2 : 1) * kBlockBytes * (1 + product.m / kMaxRows);
  ParallelFor(groups, bytes, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) Group(product, x, group);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(Product);

void Bf16ProductHwy(const Bf16Product& product, const float* rows) {
  HWY_DYNAMIC_DISPATCH(Product)(product, rows);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
