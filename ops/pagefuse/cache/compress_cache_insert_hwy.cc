#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/cache/compress_cache_insert_hwy.cc"
#include <algorithm>
#include <limits>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/cache/grouped_row-inl.h"
#include "pagefuse/ops/onnx/math-inl.h"
#include "pagefuse/ops/pagefuse/cache/compress_cache_insert.h"
#include "pagefuse/ops/pagefuse/rope_row-inl.h"
#include "pagefuse/ops/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

// Calls f(i, load) for the vectors of a run of n columns; load(p) is p[i, i + lanes), zeros behind
// the run.
template <class F>
HWY_INLINE void ForColumns(size_t n, const F& f) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    f(i, [&](const float* p) HWY_ATTR { return hn::LoadU(df, p + i); });
  }
  if (i == n) return;
  f(i, [&](const float* p) HWY_ATTR { return vec::LoadToFloatN(df, p + i, n - i); });
}

// Columns [begin, end) of a window's weighted sum, at most kCompressColumns, to out[begin, end).
// Two passes over the rows, each in the order of memory; the scores stay in the cache between them.
void CompressColumns(const CompressCall& call, int64_t write, int64_t begin, int64_t end,
                     float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> df;
  constexpr size_t kMax = kCompressColumns;
  static_assert(kMax % hn::MaxLanes(df) == 0);
  alignas(64) float largest[kMax];
  alignas(64) float weights[kMax] = {};
  alignas(64) float sums[kMax] = {};
  const size_t n = static_cast<size_t>(end - begin);
  std::fill_n(largest, kMax, -std::numeric_limits<float>::infinity());
  const std::span<const float* const> window = call.Window(write);
  const int64_t absent = call.absent[static_cast<size_t>(write)];
  for (size_t j = 0; j < window.size(); ++j) {
    const float* kv = window[j] + call.Column(absent + static_cast<int64_t>(j)) + begin;
    ForColumns(n, [&](size_t i, const auto& load) HWY_ATTR {
      hn::Store(hn::Max(hn::Load(df, largest + i), load(kv + call.half)), df, largest + i);
    });
  }
  for (size_t j = 0; j < window.size(); ++j) {
    const float* kv = window[j] + call.Column(absent + static_cast<int64_t>(j)) + begin;
    ForColumns(n, [&](size_t i, const auto& load) HWY_ATTR {
      const auto score = hn::Sub(load(kv + call.half), hn::Load(df, largest + i));
      const auto weight = onnx_ops::HWY_NAMESPACE::FullExp(df, score);
      hn::Store(hn::Add(hn::Load(df, weights + i), weight), df, weights + i);
      hn::Store(hn::MulAdd(weight, load(kv), hn::Load(df, sums + i)), df, sums + i);
    });
  }
  for (size_t i = 0; i < n; ++i) out[begin + static_cast<int64_t>(i)] = sums[i] / weights[i];
}

// Norm, rotation and encoding of the rows [begin, end) of y [writes, size], in place.
void FinishRows(const CompressCall& call, int64_t begin, int64_t end, float* y) {
  const size_t n = static_cast<size_t>(call.size);
  std::vector<float> cos_sin(call.table.rotated);
  std::vector<Bfloat16> rounded(n);
  const RopeRow rope = {call.layout,        n,
                        cos_sin.data(),     cos_sin.data() + call.layout.pairs,
                        RowNorm::kWeighted, call.weight.data()};
  for (int64_t i = begin; i < end; ++i) {
    LoadCosSin(call.table, call.table_rows[i], cos_sin.data());
    float* row = y + i * call.size;
    float factor = 0;
    NormFactors(row, n, 1, call.attributes.eps, &factor);
    NormRotateRow(rope, factor, row, rounded.data(), row);
    vec::EncodeGroupedRowVectors(call.format, rounded.data(), rounded.data() + call.format.coded,
                                 call.rows.AtSlot(call.writes[i].slot, 0));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(CompressColumns);
HWY_EXPORT(FinishRows);

void CompressCacheInsertHwy(const CompressCall& call) {
  // A decode step has few windows, but a window has many columns: both are split.
  const int64_t count = static_cast<int64_t>(call.writes.size());
  const int64_t chunks = (call.size + kCompressColumns - 1) / kCompressColumns;
  const int64_t chunk_bytes = call.attributes.WindowRows() * kCompressColumns * 2 * 4;
  std::vector<float> y(count * call.size);
  ParallelFor(count * chunks, chunk_bytes, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t i = item / chunks;
      const int64_t first = item % chunks * kCompressColumns;
      HWY_DYNAMIC_DISPATCH(CompressColumns)
      (call, i, first, std::min(first + kCompressColumns, call.size), y.data() + i * call.size);
    }
  });
  ParallelFor(count, call.size * 8, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(FinishRows)(call, begin, end, y.data());
  });
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
