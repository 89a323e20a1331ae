#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/indexer/indexer_q_rope_quant_hwy.cc"
#include <algorithm>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/cache/grouped_row-inl.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/indexer/indexer_q_rope_quant.h"
#include "pagefuse/ops/pagefuse/rope_row-inl.h"
#include "pagefuse/ops/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace vec = pagefuse::HWY_NAMESPACE;

// Rows of one token that are quantised together.
constexpr int64_t kRowsAtOnce = 16;

// Buffers of one thread, and the token whose cosines are in them.
struct QueryScratch {
  explicit QueryScratch(const IndexerQCall& call)
      : x(kRowsAtOnce * call.size),
        cos_sin(call.table.rotated),
        scales(kRowsAtOnce * (call.size / call.group)) {}
  std::vector<float> x, cos_sin, scales;
  int64_t token = -1;
};

// Asks for a row that is read soon, if there is one.
HWY_INLINE void Prefetch(const IndexerQCall& call, int64_t row) {
  constexpr int64_t kCacheLine = 64;
  if (row >= call.rows()) return;
  const uint8_t* source = call.source + row * call.SourceRowBytes();
  for (int64_t i = 0; i < call.SourceRowBytes(); i += kCacheLine) __builtin_prefetch(source + i);
}

// Rows [begin, end) of one token, at most kRowsAtOnce.
HWY_INLINE void QuantiseRows(const IndexerQCall& call, int64_t begin, int64_t end,
                             QueryScratch& scratch) {
  const int64_t rows = end - begin;
  const int64_t groups = call.size / call.group;
  float* x = scratch.x.data();
  LoadRow(call.type, call.source + begin * call.SourceRowBytes(),
          static_cast<size_t>(rows * call.size), x);
  for (int64_t i = 0; i < rows; ++i) {
    float* row = x + i * call.size;
    Prefetch(call, end + i);
    RotateRowVectors(call.layout, scratch.cos_sin.data(),
                     scratch.cos_sin.data() + call.layout.pairs, row);
    vec::RoundArrayToBfloat16(row + call.layout.offset, scratch.cos_sin.size());
  }
  vec::EncodeGroupsVectors(call.format, x,
                           {static_cast<size_t>(rows * groups), static_cast<size_t>(call.group)},
                           call.codes + begin * call.CodeRowBytes(), scratch.scales.data());
  float weights[kRowsAtOnce];
  LoadRow(call.weights.dtype, call.weights.as<const uint8_t>() + begin * call.WeightBytes(),
          static_cast<size_t>(rows), weights);
  for (int64_t i = 0; i < rows; ++i) {
    const float* scales = scratch.scales.data() + i * groups;
    call.weights_out[begin + i] = call.ScaledWeight(weights[i], scales[groups - 1]);
    if (call.folds_scale()) continue;
    uint8_t* to = call.scales + (begin + i) * groups;
    for (int64_t g = 0; g < groups; ++g) StoreGroupScale(call.format.scale, scales[g], to + g);
  }
}

void QuantiseQueries(const IndexerQCall& call, int64_t begin, int64_t end) {
  QueryScratch scratch(call);
  for (int64_t row = begin; row < end;) {
    const int64_t token = row / call.heads;
    if (token != scratch.token) {
      scratch.token = token;
      LoadCosSin(call.table, IndexAt(call.positions, token), scratch.cos_sin.data());
    }
    const int64_t last = std::min({row + kRowsAtOnce, (token + 1) * call.heads, end});
    QuantiseRows(call, row, last, scratch);
    row = last;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(QuantiseQueries);

void IndexerQRopeQuantHwy(const IndexerQCall& call) {
  ParallelFor(call.rows(), call.SourceRowBytes() + call.CodeRowBytes(),
              [&](int64_t begin, int64_t end) {
                HWY_DYNAMIC_DISPATCH(QuantiseQueries)(call, begin, end);
              });
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
