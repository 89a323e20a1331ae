// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/stream_f32_hwy.h"

#include <algorithm>

#include "pagefuse/ops/kernels/linalg/ask_ahead.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/stream_f32_hwy.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using DFull = hn::ScalableTag<float>;
using DOne = hn::CappedTag<float, 1>;

constexpr int kStreams = 4;  // rows of W read at a time; more do not raise the bandwidth
constexpr int kMaxRows = 4;  // rows of x in registers

// Columns [begin, end) of y[r] (+)= x[r, 0..kCount) * w[0..kCount), as whole vectors of `d`;
// returns where it stopped.
template <class D, int kRows, int kCount, bool kAdd>
HWY_INLINE int64_t AddColumns(D d, const RowsView& x, const float* w, int64_t w_stride,
                              int64_t begin, int64_t end, const OutputView& y) {
  hn::Vec<D> factors[kRows][kCount];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kCount; ++i) factors[r][i] = hn::Set(d, x.data[r * x.stride + i]);
  }
  const int64_t lanes = hn::Lanes(d);
  int64_t n = begin;
  for (; n + lanes <= end; n += lanes) {
    hn::Vec<D> row[kCount];
    for (int i = 0; i < kCount; ++i) {
      row[i] = hn::LoadU(d, w + i * w_stride + n);
      AskAhead(w + (kCount + i) * w_stride + n);  // of the rows that are read next
    }
    for (int r = 0; r < kRows; ++r) {
      float* out = y.data + r * y.stride + n;
      auto sum = kAdd ? hn::LoadU(d, out) : hn::Zero(d);
      for (int i = 0; i < kCount; ++i) sum = hn::MulAdd(row[i], factors[r][i], sum);
      hn::StoreU(sum, d, out);
    }
  }
  return n;
}

template <int kRows, int kCount, bool kAdd>
HWY_INLINE void AddRows(const RowsView& x, const float* w, int64_t w_stride, int64_t n,
                        const OutputView& y) {
  const int64_t done = AddColumns<DFull, kRows, kCount, kAdd>(DFull(), x, w, w_stride, 0, n, y);
  AddColumns<DOne, kRows, kCount, kAdd>(DOne(), x, w, w_stride, done, n, y);
}

// One group of kCount rows of W for all rows of x.
template <int kCount, bool kAdd>
HWY_INLINE void AddGroup(const RowsView& x, const float* w, int64_t w_stride, int64_t n,
                         const OutputView& y) {
  for (int64_t r = 0; r < x.m; r += kMaxRows) {
    const RowsView rows{x.data + r * x.stride, std::min<int64_t>(kMaxRows, x.m - r), x.stride};
    const OutputView out{y.data + r * y.stride, y.stride};
    switch (rows.m) {
      case 4:
        AddRows<4, kCount, kAdd>(rows, w, w_stride, n, out);
        break;
      case 3:
        AddRows<3, kCount, kAdd>(rows, w, w_stride, n, out);
        break;
      case 2:
        AddRows<2, kCount, kAdd>(rows, w, w_stride, n, out);
        break;
      default:
        AddRows<1, kCount, kAdd>(rows, w, w_stride, n, out);
    }
  }
}

void RowMajor(const RowsView& x, const WeightView& w, const WeightPart& part,
              const OutputView& out) {
  const int64_t n = part.n_end - part.n_begin;
  const OutputView y{out.data + part.n_begin, out.stride};
  bool add = false;
  int64_t k = part.k_begin;
  const auto row = [&](int64_t index) { return w.data + index * w.n + part.n_begin; };
  for (; k + kStreams <= part.k_end; k += kStreams) {
    const RowsView rows{x.data + k, x.m, x.stride};
    if (add) {
      AddGroup<kStreams, true>(rows, row(k), w.n, n, y);
    } else {
      AddGroup<kStreams, false>(rows, row(k), w.n, n, y);
    }
    add = true;
  }
  for (; k < part.k_end; ++k) {
    const RowsView rows{x.data + k, x.m, x.stride};
    if (add) {
      AddGroup<1, true>(rows, row(k), w.n, n, y);
    } else {
      AddGroup<1, false>(rows, row(k), w.n, n, y);
    }
    add = true;
  }
}

template <class D>
HWY_INLINE int64_t SumColumns(D d, const float* partial, int64_t stride, int64_t count,
                              int64_t begin, int64_t n, float* out) {
  const int64_t lanes = hn::Lanes(d);
  int64_t i = begin;
  for (; i + lanes <= n; i += lanes) {
    auto sum = hn::LoadU(d, partial + i);
    for (int64_t c = 1; c < count; ++c) sum = hn::Add(sum, hn::LoadU(d, partial + c * stride + i));
    hn::StoreU(sum, d, out + i);
  }
  return i;
}

void Sum(const float* partial, int64_t stride, int64_t count, int64_t n, float* out) {
  const int64_t done = SumColumns(DFull(), partial, stride, count, 0, n, out);
  SumColumns(DOne(), partial, stride, count, done, n, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(RowMajor);
HWY_EXPORT(Sum);

void StreamRowMajor(const RowsView& x, const WeightView& w, const WeightPart& part,
                    const OutputView& out) {
  HWY_DYNAMIC_DISPATCH(RowMajor)(x, w, part, out);
}

void SumPartials(const float* partial, int64_t stride, int64_t count, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(Sum)(partial, stride, count, n, out);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
