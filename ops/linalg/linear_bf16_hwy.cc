#include <algorithm>
#include <cstring>

#include "pagefuse/ops/linalg/linear_bf16_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/linalg/linear_bf16_hwy.cc"
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
constexpr int64_t kMaxRows = 8;

// kRows rows of x (stride apart) times one column block: out[r * 16 + c]. In the order that
// linear_bf16.h defines.
template <int kRows>
HWY_NOINLINE void ColumnBlock(const float* x, int64_t stride, const uint16_t* words,
                              int64_t k_blocks, float* out) {
  const DF df;
  const DU du;
  const auto high = hn::Set(du, 0xFFFF0000u);
  for (int64_t lane = 0; lane < kBlockColumns; lane += hn::Lanes(df)) {
    hn::Vec<DF> total[kRows];
    for (auto& t : total) t = hn::Zero(df);
    const uint32_t* pairs = reinterpret_cast<const uint32_t*>(words) + lane;
    for (int64_t b = 0; b < k_blocks; ++b) {
      hn::Vec<DF> even_sum[kRows];
      hn::Vec<DF> odd_sum[kRows];
      for (int r = 0; r < kRows; ++r) even_sum[r] = odd_sum[r] = hn::Zero(df);
      for (int64_t k = b * kBlockRows; k < (b + 1) * kBlockRows; k += 2, pairs += kBlockColumns) {
        const auto pair = hn::LoadU(du, pairs);
        const auto even = hn::BitCast(df, hn::ShiftLeft<16>(pair));
        const auto odd = hn::BitCast(df, hn::And(pair, high));
        for (int r = 0; r < kRows; ++r) {
          even_sum[r] = hn::MulAdd(even, hn::Set(df, x[r * stride + k]), even_sum[r]);
          odd_sum[r] = hn::MulAdd(odd, hn::Set(df, x[r * stride + k + 1]), odd_sum[r]);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        total[r] = hn::Add(total[r], hn::Add(even_sum[r], odd_sum[r]));
      }
    }
    for (int r = 0; r < kRows; ++r) hn::StoreU(total[r], df, out + r * kBlockColumns + lane);
  }
}

void Rows(int64_t rows, const float* x, int64_t stride, const uint16_t* words, int64_t k_blocks,
          float* out) {
  for (int64_t r = 0; r < rows;) {
    const float* row = x + r * stride;
    float* result = out + r * kBlockColumns;
    const int64_t left = rows - r;
    // Eight rows need 24 accumulators at once: only 32 registers hold them.
    if (left >= 8 && hn::Lanes(DF()) == 16) {
      ColumnBlock<8>(row, stride, words, k_blocks, result);
      r += 8;
    } else if (left >= 4) {
      ColumnBlock<4>(row, stride, words, k_blocks, result);
      r += 4;
    } else if (left >= 2) {
      ColumnBlock<2>(row, stride, words, k_blocks, result);
      r += 2;
    } else {
      ColumnBlock<1>(row, stride, words, k_blocks, result);
      r += 1;
    }
  }
}

// All rows by one group: a column block, or a gate and an up block.
void Group(const Bf16Product& product, const float* x, int64_t group) {
  const PackedBf16& w = *product.weight;
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
      GatedProduct(product.activation, out[0], out[1], rows * kBlockColumns, out[0]);
    }
    float* y = product.y.data + first * product.y.stride + group * kBlockColumns;
    for (int64_t r = 0; r < rows; ++r, y += product.y.stride) {
      std::memcpy(y, out[0] + r * kBlockColumns, columns * sizeof(float));
    }
  }
}

void Product(const Bf16Product& product, const float* x) {
  const int64_t groups = (product.weight->n() + kBlockColumns - 1) / kBlockColumns;
#pragma omp parallel for schedule(static)
  for (int64_t group = 0; group < groups; ++group) Group(product, x, group);
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
