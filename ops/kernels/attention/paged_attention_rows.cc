// SPDX-License-Identifier: Apache-2.0
// What decode and prefill share outside of inner loops: query rows in, output rows out.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "pagefuse/ops/kernels/attention/paged_attention_hwy.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

// Types were checked before any kernel runs, so the conversions cannot fail.
void Decode(DataType type, const void* from, int64_t index, int64_t count, float* to) {
  const auto* bytes = static_cast<const std::byte*>(from) + index * BitWidth(type) / 8;
  if (type == DataType::kFloat) {
    std::memcpy(to, bytes, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  DecodeToFloat(type, bytes, count, to).IgnoreError();
}

void RoundToComputeType(const PagedAttentionProblem& p, float* x) {
  if (p.compute_type == DataType::kFloat16 || p.compute_type == DataType::kBfloat16) {
    RoundThrough(p.compute_type, x, p.head_size).IgnoreError();
  }
}

void UndoHadamard(const PagedAttentionProblem& p, float* o) {
  RoundToComputeType(p, o);
  HadamardTransformHwy(o, p.head_size);
  const float inverse = 1.0f / static_cast<float>(p.head_size);  // exact: a power of two
  for (int64_t d = 0; d < p.head_size; ++d) o[d] *= p.rht_signs[d] * inverse;
  RoundToComputeType(p, o);
}

}  // namespace

float ScoreFactor(const PagedAttentionProblem& p) {
  if (p.format.has_tensor_scale()) return p.scale * p.q_scale * p.k_scale;
  if (p.format.needs_signs()) return p.scale / static_cast<float>(p.head_size);
  return p.scale;
}

void LoadQueryRow(const PagedAttentionProblem& p, int64_t token, int64_t head, float* q) {
  Decode(p.compute_type, p.query, (token * p.num_heads + head) * p.head_size, p.head_size, q);
  if (p.turboquant && p.turboquant->format.has_centroids()) {
    const std::vector<float> row(q, q + p.head_size);
    RotateTurboQuantHwy(p.turboquant->tables.rotation, row.data(), p.head_size, q);
  }
  if (!p.format.needs_signs()) return;
  for (int64_t d = 0; d < p.head_size; ++d) q[d] *= p.rht_signs[d];
  HadamardTransformHwy(q, p.head_size);
  RoundToComputeType(p, q);
}

void FinishRow(const PagedAttentionProblem& p, int64_t token, int64_t head, PartialRow row) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float sink = -kInfinity;
  if (p.head_sink != nullptr) Decode(p.sink_type, p.head_sink, head, 1, &sink);
  float factor = 0;
  float lse = -kInfinity;
  const float max = std::max(sink, row.max);
  if (max > -kInfinity || row.sum != 0) {
    const float weight = std::exp(row.max - max);
    const float sum = row.sum * weight + std::exp(sink - max);
    factor = weight / sum;
    lse = max + std::log(sum);
  }
  if (p.format.has_tensor_scale()) factor *= p.v_scale;
  if (row.max == -kInfinity && row.sum == 0) factor = 0;

  if (p.lse != nullptr) p.lse[head * p.num_tokens + token] = lse;
  const DataType type = p.output_type == DataType::kUint8 ? DataType::kFloat8E4M3FN : p.output_type;
  const int64_t index = (token * p.num_heads + head) * p.head_size;
  auto* to = static_cast<std::byte*>(p.output) + index * BitWidth(type) / 8;
  float* o = row.values;
  for (int64_t d = 0; d < p.head_size; ++d) o[d] *= factor;
  if (p.format.needs_signs()) UndoHadamard(p, o);
  if (p.output_scale != nullptr) {
    const float inverse = 1.0f / *p.output_scale;
    for (int64_t d = 0; d < p.head_size; ++d) o[d] *= inverse;
  }
  if (p.rules.replaces_nan) {
    for (int64_t d = 0; d < p.head_size; ++d) o[d] = p.rules.ResultOf(o[d]);
  }
  if (type == DataType::kFloat) {
    std::memcpy(to, o, static_cast<size_t>(p.head_size) * sizeof(float));
    return;
  }
  EncodeFromFloat(type, o, p.head_size, to).IgnoreError();
}

}  // namespace pagefuse
