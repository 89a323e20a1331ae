// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/inserts/rope_cache_insert.h"

#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse::pagefuse_ops {
namespace {

// x[0, n) of one head: norm (unless the weight is empty), then rotation, in place.
void NormAndRotate(const RopeCall& call, int64_t token, const std::vector<float>& weight,
                   std::vector<float>& x) {
  if (!weight.empty()) {
    NormRow(weight.data(), call.epsilon, static_cast<int64_t>(x.size()), x.data());
  }
  const int64_t pairs = call.layout.pairs;
  std::vector<float> cos(pairs);
  std::vector<float> sin(pairs);
  const int64_t at = call.TableOffset(token);
  // The tables are of a float type: never an error.
  DecodeToFloat(call.table_type, call.cos + at, pairs, cos.data()).IgnoreError();
  DecodeToFloat(call.table_type, call.sin + at, pairs, sin.data()).IgnoreError();
  RotateRow(call.layout, cos.data(), sin.data(), x.data());
}

}  // namespace

void RopeCacheInsertPlain(const RopeCall& call) {
  const int64_t size = call.size;
  std::vector<float> x(size);
  for (int64_t t = 0; t < call.tokens; ++t) {
    for (int64_t head = 0; head < call.heads; ++head) {
      const int64_t at = (t * call.heads + head) * call.QueryRowBytes();
      DecodeToFloat(call.type, call.query + at, size, x.data()).IgnoreError();
      NormAndRotate(call, t, call.q_norm, x);
      EncodeFromFloat(call.type, x.data(), size, call.query_out + at).IgnoreError();
    }
    if (call.slots[t] < 0) continue;
    const CacheSide& key = call.sides.key;
    for (int64_t head = 0; head < key.heads; ++head) {
      DecodeToFloat(key.source_type, key.SourceRow(t, head), size, x.data()).IgnoreError();
      NormAndRotate(call, t, call.k_norm, x);
      EncodeRow(key.format, key.Params(head), x.data(), size, key.rows.AtSlot(call.slots[t], head));
    }
  }
  InsertRows({&call.sides.value}, call.sides.writes);
}

}  // namespace pagefuse::pagefuse_ops
