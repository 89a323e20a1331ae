#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/indexer/indexer_q_rope_quant_hwy.cc"
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/cache/group_codec-inl.h"
#include "pagefuse/ops/cache/row_codec-inl.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/indexer/indexer_q_rope_quant.h"
#include "pagefuse/ops/pagefuse/rope_row-inl.h"
#include "pagefuse/ops/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace vec = pagefuse::HWY_NAMESPACE;

void QuantiseQueries(const IndexerQCall& call, int64_t begin, int64_t end) {
  std::vector<float> x(call.size);
  std::vector<float> cos_sin(call.table.rotated);
  const size_t rotated = cos_sin.size();
  int64_t loaded = -1;  // the token whose cosines are in cos_sin
  for (int64_t row = begin; row < end; ++row) {
    LoadRow(call.type, call.source + row * call.SourceRowBytes(), x.size(), x.data());
    if (row / call.heads != loaded) {
      loaded = row / call.heads;
      LoadCosSin(call.table, IndexAt(call.positions, loaded), cos_sin.data());
    }
    RotateRowVectors(call.layout, cos_sin.data(), cos_sin.data() + call.layout.pairs, x.data());
    vec::RoundThroughVectors<Bfloat16>(x.data() + call.layout.offset, rotated);
    const int64_t code_bytes = call.format.CodeBytes(call.group);
    uint8_t* codes = call.codes + row * call.CodeRowBytes();
    float scale = 1.0f;
    for (int64_t g = 0; g < call.size / call.group; ++g, codes += code_bytes) {
      scale = vec::EncodeGroupVectors(call.format, x.data() + g * call.group,
                                      static_cast<size_t>(call.group), codes);
      if (call.folds_scale()) continue;
      StoreGroupScale(call.format.scale, scale, call.scales + row * (call.size / call.group) + g);
    }
    call.weights_out[row] = call.WeightOf(row, call.folds_scale() ? scale : 1.0f);
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
