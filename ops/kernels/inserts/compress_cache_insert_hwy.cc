// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/inserts/compress_cache_insert_hwy.cc"
#include <algorithm>
#include <limits>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/formats/grouped_row-inl.h"
#include "pagefuse/ops/kernels/inserts/compress_cache_insert.h"
#include "pagefuse/ops/kernels/numeric/hadamard-inl.h"
#include "pagefuse/ops/kernels/rows/math-inl.h"
#include "pagefuse/ops/kernels/rows/rope_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

// Columns of a window's weighted sum: `vectors` times the lanes of them, the first ones of
// kv_at(row), by load(p, v): vector v of what is at p. Two passes over the rows; the scores stay in
// the cache between them.
template <size_t vectors, class KvAt, class Load>
HWY_INLINE void SumColumns(size_t rows, int64_t half, const KvAt& kv_at, const Load& load,
                           hn::Vec<hn::ScalableTag<float>> (&sums)[vectors]) {
  const hn::ScalableTag<float> df;
  hn::Vec<decltype(df)> largest[vectors], weights[vectors];
  for (size_t v = 0; v < vectors; ++v) {
    largest[v] = hn::Set(df, -std::numeric_limits<float>::infinity());
    weights[v] = sums[v] = hn::Zero(df);
  }
  for (size_t j = 0; j < rows; ++j) {
    const float* scores = kv_at(j) + half;
    for (size_t v = 0; v < vectors; ++v) largest[v] = hn::Max(largest[v], load(scores, v));
  }
  for (size_t j = 0; j < rows; ++j) {
    const float* kv = kv_at(j);
    for (size_t v = 0; v < vectors; ++v) {
      const auto score = hn::Sub(load(kv + half, v), largest[v]);
      const auto weight = onnx_ops::HWY_NAMESPACE::FullExp(df, score);
      weights[v] = hn::Add(weights[v], weight);
      sums[v] = hn::MulAdd(weight, load(kv, v), sums[v]);
    }
  }
  for (size_t v = 0; v < vectors; ++v) sums[v] = hn::Div(sums[v], weights[v]);
}

// Columns [begin, end) of a window's weighted sum to out[begin, end).
void CompressColumns(const CompressCall& call, int64_t write, int64_t begin, int64_t end,
                     float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  constexpr size_t kVectors = 4;
  const std::span<const float* const> window = call.Window(write);
  const int64_t absent = call.absent[static_cast<size_t>(write)];
  const auto columns = static_cast<size_t>(end);
  auto i = static_cast<size_t>(begin);
  const auto kv_at = [&](size_t j) {
    return window[j] + call.Column(absent + static_cast<int64_t>(j)) + i;
  };
  const auto load = [&](const float* p, size_t v) HWY_ATTR { return hn::LoadU(df, p + v * lanes); };
  for (; i + kVectors * lanes <= columns; i += kVectors * lanes) {
    hn::Vec<decltype(df)> sums[kVectors];
    SumColumns(window.size(), call.half, kv_at, load, sums);
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], df, out + i + v * lanes);
  }
  for (; i < columns; i += lanes) {
    const size_t count = std::min(lanes, columns - i);
    const auto load_some = [&](const float* p, size_t)
                               HWY_ATTR { return vec::LoadToFloatN(df, p, count); };
    hn::Vec<decltype(df)> sums[1];
    SumColumns(window.size(), call.half, kv_at, load_some, sums);
    vec::StoreFromFloatN(sums[0], df, out + i, count);
  }
}

// Norm, rotation and encoding of rows of y [writes, size], in place. Keeps memory for a few.
class RowFinisher {
 public:
  static constexpr int64_t kRows = static_cast<int64_t>(vec::kGroupsAtOnce);

  // For `rows` rows at a time, at most kRows.
  RowFinisher(const CompressCall& call, int64_t rows)
      : call_(call), cos_sin_(call.table.rotated), rounded_(rows * call.size) {}

  // Rows [begin, end), no more than that, each step for all of them: those of one would wait for
  // one another.
  HWY_INLINE void Finish(int64_t begin, int64_t end, float* HWY_RESTRICT y) {
    const auto n = static_cast<size_t>(call_.size);
    const auto count = static_cast<size_t>(end - begin);
    const auto address_at = [&](size_t r) {
      return call_.rows.AtSlot(call_.writes[begin + static_cast<int64_t>(r)].slot, 0);
    };
    if (call_.plain_type != DataType::kUndefined) {
      return WithRowType(call_.plain_type, [&]<typename To>() HWY_ATTR {
        const auto row_at = [&](size_t r) { return reinterpret_cast<To*>(address_at(r).data); };
        NormRotate(begin, count, y, row_at);
      });
    }
    const auto source_at = [&](size_t r) { return rounded_.data() + r * n; };
    NormRotate(begin, count, y, source_at);
    if (call_.hadamard) Transform(count, y + begin * call_.size);
    if (vec::EncodeRowsOfOneGroup(call_.format, count, source_at, address_at)) return;
    for (size_t r = 0; r < count; ++r) {
      vec::EncodeGroupedRowVectors(call_.format, source_at(r), source_at(r) + call_.format.coded,
                                   address_at(r));
    }
  }

 private:
  // The rounded rows, by way of the memory of y.
  HWY_INLINE void Transform(size_t count, float* HWY_RESTRICT y) {
    const auto n = static_cast<size_t>(call_.size);
    vec::ConvertArray(rounded_.data(), count * n, y);
    for (size_t r = 0; r < count; ++r) vec::HadamardRotateVectors(y + r * n, n);
    vec::ConvertArray(y, count * n, rounded_.data());
  }

  // Rows of y from `begin` on, row r rounded to what target_at(r) points to.
  template <class TargetAt>
  HWY_INLINE void NormRotate(int64_t begin, size_t count, float* HWY_RESTRICT y,
                             const TargetAt& target_at) {
    const auto n = static_cast<size_t>(call_.size);
    const RopeRow rope = {call_.layout,       n,
                          cos_sin_.data(),    cos_sin_.data() + call_.layout.pairs,
                          RowNorm::kWeighted, call_.weight.data()};
    float* rows = y + begin * call_.size;
    float factors[kRows];
    NormFactors(rows, n, count, call_.epsilon, factors);
    for (size_t r = 0; r < count; ++r) {
      LoadCosSin(call_.table, call_.table_rows[begin + static_cast<int64_t>(r)], cos_sin_.data());
      NormRotateRow(rope, factors[r], rows + r * n, target_at(r), rows + r * n);
    }
  }

  const CompressCall& call_;
  std::vector<float> cos_sin_;
  std::vector<Bfloat16> rounded_;
};

void FinishRows(const CompressCall& call, int64_t begin, int64_t end, float* y) {
  RowFinisher finisher(call, std::min(RowFinisher::kRows, end - begin));
  for (int64_t i = begin; i < end; i += RowFinisher::kRows) {
    finisher.Finish(i, std::min(i + RowFinisher::kRows, end), y);
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
  const int64_t chunk_bytes = call.window.rows() * kCompressColumns * 2 * 4;
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
