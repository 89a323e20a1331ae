#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/compress_cache_insert_hwy.cc"
#include <algorithm>
#include <limits>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/cache/grouped_row-inl.h"
#include "pagefuse/ops/onnx/math-inl.h"
#include "pagefuse/ops/pagefuse/compress_cache_insert.h"
#include "pagefuse/ops/pagefuse/rope_row-inl.h"
#include "pagefuse/ops/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

// Columns [d, d + count) of the weighted sum, count at most the lanes. Two passes over the rows of
// a window: their scores stay in the cache between them.
HWY_INLINE void CompressLanes(const CompressCall& call, int64_t write, int64_t d, size_t count,
                              float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> df;
  const bool whole = count == hn::Lanes(df);
  const auto load = [&](const float* p) HWY_ATTR {
    return whole ? hn::LoadU(df, p) : vec::LoadToFloatN(df, p, count);
  };
  const std::span<const float* const> window = call.Window(write);
  const int64_t absent = call.absent[static_cast<size_t>(write)];
  auto largest = hn::Set(df, -std::numeric_limits<float>::infinity());
  for (size_t j = 0; j < window.size(); ++j) {
    const float* kv = window[j] + call.Column(absent + static_cast<int64_t>(j)) + d;
    largest = hn::Max(largest, load(kv + call.half));
  }
  auto weights = hn::Zero(df);
  auto sum = hn::Zero(df);
  for (size_t j = 0; j < window.size(); ++j) {
    const float* kv = window[j] + call.Column(absent + static_cast<int64_t>(j)) + d;
    const auto score = hn::Sub(load(kv + call.half), largest);
    const auto weight = onnx_ops::HWY_NAMESPACE::FullExp(df, score);
    weights = hn::Add(weights, weight);
    sum = hn::MulAdd(weight, load(kv), sum);
  }
  const auto mean = hn::Div(sum, weights);
  if (whole) {
    hn::StoreU(mean, df, out);
  } else {
    vec::StoreFromFloatN(mean, df, out, count);
  }
}

// Columns [begin, end) of a window's weighted sum.
void CompressColumns(const CompressCall& call, int64_t write, int64_t begin, int64_t end,
                     float* HWY_RESTRICT out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  for (int64_t d = begin; d < end; d += lanes) {
    CompressLanes(call, write, d, static_cast<size_t>(std::min(lanes, end - d)), out + d);
  }
}

// Norm, rotation and encoding of the rows [begin, end) of y [writes, size], in place.
void FinishRows(const CompressCall& call, int64_t begin, int64_t end, float* y) {
  const size_t n = static_cast<size_t>(call.size);
  std::vector<float> cos_sin(call.table.rotated);
  std::vector<uint8_t> rounded(2 * n);
  for (int64_t i = begin; i < end; ++i) {
    float* row = y + i * call.size;
    NormRowVectors(call.weight.data(), call.attributes.eps, n, row);
    LoadCosSin(call.table, call.table_rows[i], cos_sin.data());
    RotateRowVectors(call.layout, cos_sin.data(), cos_sin.data() + call.layout.pairs, row);
    StoreRow(DataType::kBfloat16, row, n, rounded.data());
    LoadRow(DataType::kBfloat16, rounded.data(), n, row);
    vec::EncodeGroupedRowVectors(call.format, row, rounded.data() + 2 * call.format.coded,
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
  constexpr int64_t kColumns = 64;
  const int64_t count = static_cast<int64_t>(call.writes.size());
  const int64_t chunks = (call.size + kColumns - 1) / kColumns;
  const int64_t chunk_bytes = call.attributes.WindowRows() * kColumns * 2 * 4;
  std::vector<float> y(count * call.size);
  ParallelFor(count * chunks, chunk_bytes, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t i = item / chunks;
      const int64_t first = item % chunks * kColumns;
      HWY_DYNAMIC_DISPATCH(CompressColumns)
      (call, i, first, std::min(first + kColumns, call.size), y.data() + i * call.size);
    }
  });
  ParallelFor(count, call.size * 8, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(FinishRows)(call, begin, end, y.data());
  });
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
