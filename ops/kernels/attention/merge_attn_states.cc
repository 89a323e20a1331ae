// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/attention/merge_attn_states.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse::pagefuse_ops {

MergeWeights WeightsOf(const MergeCall& call, int64_t token, int64_t head) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const int64_t at = head * call.tokens + token;
  if (token >= call.context_tokens) return {0, 1, call.suffix_lse[at]};
  // FlashAttention 2 writes +inf for a part without keys.
  const float p = call.prefix_lse[at] == kInfinity ? -kInfinity : call.prefix_lse[at];
  const float s = call.suffix_lse[at] == kInfinity ? -kInfinity : call.suffix_lse[at];
  const float m = std::max(p, s);
  if (p == -kInfinity && s == -kInfinity) return {1, 0, -kInfinity};
  const float wp = std::exp(p - m);
  const float ws = std::exp(s - m);
  const float w = wp + ws;
  return {wp / w, ws / w, std::log(w) + m};
}

void MergeAttnStatesPlain(const MergeCall& call) {
  const int64_t size = call.head_size;
  const int64_t row_bytes = size * BitWidth(call.type) / 8;
  const int64_t out_bytes = size * BitWidth(call.output_type) / 8;
  std::vector<float> prefix(size);
  std::vector<float> suffix(size);
  for (int64_t t = 0; t < call.tokens; ++t) {
    for (int64_t head = 0; head < call.heads; ++head) {
      const int64_t row = t * call.heads + head;
      const MergeWeights weights = WeightsOf(call, t, head);
      // Float types: never an error.
      DecodeToFloat(call.type, call.prefix + row * row_bytes, size, prefix.data()).IgnoreError();
      DecodeToFloat(call.type, call.suffix + row * row_bytes, size, suffix.data()).IgnoreError();
      for (int64_t d = 0; d < size; ++d) {
        // A part without weight may hold anything, NaN included. -0 changes no sum.
        const float p = weights.prefix == 0 ? -0.0f : prefix[d] * weights.prefix;
        const float s = weights.suffix == 0 ? -0.0f : suffix[d] * weights.suffix;
        prefix[d] = (p + s) * call.inverse_scale;
      }
      EncodeFromFloat(call.output_type, prefix.data(), size, call.output + row * out_bytes)
          .IgnoreError();
      if (call.output_lse != nullptr) call.output_lse[head * call.tokens + t] = weights.lse;
    }
  }
}

}  // namespace pagefuse::pagefuse_ops
