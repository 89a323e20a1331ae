// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/indexer/indexer_q_rope_quant_hwy.cc"
#include <algorithm>
#include <cstring>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/grouped_row-inl.h"
#include "pagefuse/ops/kernels/indexer/indexer_q_rope_quant.h"
#include "pagefuse/ops/kernels/inserts/slot_writes.h"
#include "pagefuse/ops/kernels/numeric/hadamard-inl.h"
#include "pagefuse/ops/kernels/numeric/round_through-inl.h"
#include "pagefuse/ops/kernels/rows/rope_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

// Rows of one token that are quantised together.
constexpr int64_t kRowsAtOnce = 16;

// Buffers of one thread, and the token whose cosines are in them. Rows are kept as Element: of
// bfloat16 they are bfloat16 again once their rotated channels are rounded, of others floats.
template <typename Element>
struct QueryScratch {
  explicit QueryScratch(const IndexerQCall& call)
      : x(kRowsAtOnce * call.size),
        cos_sin(call.table.rotated),
        scales(kRowsAtOnce * (call.size / call.group)) {}
  const float* cos() const { return cos_sin.data(); }
  const float* sin() const { return cos_sin.data() + cos_sin.size() / 2; }

  std::vector<Element> x;
  std::vector<float> cos_sin, scales;
  int64_t token = -1;
};

// Asks for rows that are read soon, as far as there are such.
HWY_INLINE void Prefetch(const IndexerQCall& call, int64_t row, int64_t rows) {
  constexpr int64_t kCacheLine = 64;
  const int64_t bytes = std::min(rows, call.rows() - row) * call.RowBytes();
  for (int64_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(call.Row(row) + i);
}

// The rotated channels of a row as a row of their own.
template <typename Element>
HWY_INLINE RopeRow RotatedPart(const IndexerQCall& call, const QueryScratch<Element>& scratch) {
  const RopeLayout layout = {call.layout.pairs, 0, call.layout.interleaved};
  return {layout, scratch.cos_sin.size(), scratch.cos(), scratch.sin(), RowNorm::kNone, nullptr};
}

// Rows from `source` rotated and rounded.
HWY_INLINE void RotateRows(const IndexerQCall& call, const uint8_t* source, int64_t rows,
                           QueryScratch<Bfloat16>& scratch) {
  const RopeRow part = RotatedPart(call, scratch);
  std::memcpy(static_cast<void*>(scratch.x.data()), source, rows * call.RowBytes());
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t begin = i * call.size + call.layout.offset;
    NormRotateVectors<RowNorm::kNone>(part, 1.0f, reinterpret_cast<const Bfloat16*>(source) + begin,
                                      scratch.x.data() + begin);
  }
}

HWY_INLINE void RotateRows(const IndexerQCall& call, const uint8_t* source, int64_t rows,
                           QueryScratch<float>& scratch) {
  LoadRow(call.type, source, static_cast<size_t>(rows * call.size), scratch.x.data());
  for (int64_t i = 0; i < rows; ++i) {
    float* row = scratch.x.data() + i * call.size;
    RotateRowVectors(call.layout, scratch.cos(), scratch.sin(), row);
    if (!call.is_plain) {
      vec::RoundThroughVectors<Bfloat16>(row + call.layout.offset, scratch.cos_sin.size());
    }
    if (!call.hadamard) continue;
    const auto size = static_cast<size_t>(call.size);
    vec::HadamardRotateVectors(row, size);
    if (!call.is_plain) vec::RoundThroughVectors<Bfloat16>(row, size);
  }
}

// Rows as numbers of their type; their scales are 1.
template <typename Element>
HWY_INLINE void StoreRows(const IndexerQCall& call, int64_t begin, int64_t rows,
                          QueryScratch<Element>& scratch) {
  WithRowType(call.type, [&]<typename To>() HWY_ATTR {
    vec::ConvertArray(scratch.x.data(), static_cast<size_t>(rows * call.size),
                      reinterpret_cast<To*>(call.codes + begin * call.CodeRowBytes()));
  });
  std::fill_n(scratch.scales.begin(), rows, 1.0f);
}

// Rows [begin, end) of one token, at most kRowsAtOnce.
template <typename Element>
HWY_INLINE void QuantiseRows(const IndexerQCall& call, int64_t begin, int64_t end,
                             QueryScratch<Element>& scratch) {
  const int64_t rows = end - begin;
  const int64_t groups = call.size / call.group;
  Prefetch(call, end, rows);
  RotateRows(call, call.Row(begin), rows, scratch);
  if (call.is_plain) {
    StoreRows(call, begin, rows, scratch);
  } else {
    vec::EncodeGroupsVectors(call.format, scratch.x.data(),
                             {static_cast<size_t>(rows * groups), static_cast<size_t>(call.group)},
                             call.codes + begin * call.CodeRowBytes(), scratch.scales.data());
  }
  float weights[kRowsAtOnce];
  LoadRow(call.weight_type, call.weights + begin * call.WeightBytes(), static_cast<size_t>(rows),
          weights);
  for (int64_t i = 0; i < rows; ++i) {
    const float* scales = scratch.scales.data() + i * groups;
    call.weights_out[begin + i] = call.ScaledWeight(weights[i], scales[groups - 1]);
    if (call.folds_scale()) continue;
    uint8_t* to = call.scales + (begin + i) * groups;
    for (int64_t g = 0; g < groups; ++g) StoreGroupScale(call.format.scale, scales[g], to + g);
  }
}

template <typename Element>
HWY_INLINE void QuantiseQueriesAs(const IndexerQCall& call, int64_t begin, int64_t end) {
  QueryScratch<Element> scratch(call);
  for (int64_t row = begin; row < end;) {
    const int64_t token = row / call.heads;
    if (token != scratch.token) {
      scratch.token = token;
      LoadCosSin(call.table, call.positions[token], scratch.cos_sin.data());
    }
    const int64_t last = std::min({row + kRowsAtOnce, (token + 1) * call.heads, end});
    QuantiseRows(call, row, last, scratch);
    row = last;
  }
}

void QuantiseQueries(const IndexerQCall& call, int64_t begin, int64_t end) {
  const bool whole_vectors = call.layout.pairs % hn::Lanes(hn::ScalableTag<float>()) == 0;
  if (call.type == DataType::kBfloat16 && whole_vectors && !call.hadamard) {
    return QuantiseQueriesAs<Bfloat16>(call, begin, end);
  }
  QuantiseQueriesAs<float>(call, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(QuantiseQueries);

void IndexerQRopeQuantHwy(const IndexerQCall& call) {
  ForEachRow(call, call.rows(), call.RowBytes() + call.CodeRowBytes(),
             HWY_DYNAMIC_DISPATCH(QuantiseQueries));
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
