// SPDX-License-Identifier: Apache-2.0
// What is left over behind whole vectors is multiplied and added in plain C++, fused where the
// target can.
#pragma GCC optimize("fp-contract=fast")

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/attention/attention_row_hwy.cc"
#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/attention/attention_row.h"
#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::onnx_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// scores[j] = scale * (q . keys[j]). Four keys at a time, so that q is loaded once for all.
void QueryScores(const float* q, const RowBlock& keys, float scale, float* scores) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + 4 <= keys.count; j += 4) {
    const float* k0 = keys.rows + j * keys.stride;
    const float* k1 = k0 + keys.stride;
    const float* k2 = k1 + keys.stride;
    const float* k3 = k2 + keys.stride;
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = 0;
    for (; i + lanes <= keys.size; i += lanes) {
      const auto x = hn::LoadU(d, q + i);
      s0 = hn::MulAdd(x, hn::LoadU(d, k0 + i), s0);
      s1 = hn::MulAdd(x, hn::LoadU(d, k1 + i), s1);
      s2 = hn::MulAdd(x, hn::LoadU(d, k2 + i), s2);
      s3 = hn::MulAdd(x, hn::LoadU(d, k3 + i), s3);
    }
    float sums[4] = {hn::GetLane(hn::SumOfLanes(d, s0)), hn::GetLane(hn::SumOfLanes(d, s1)),
                     hn::GetLane(hn::SumOfLanes(d, s2)), hn::GetLane(hn::SumOfLanes(d, s3))};
    for (; i < keys.size; ++i) {
      sums[0] += q[i] * k0[i];
      sums[1] += q[i] * k1[i];
      sums[2] += q[i] * k2[i];
      sums[3] += q[i] * k3[i];
    }
    for (int64_t t = 0; t < 4; ++t) scores[j + t] = scale * sums[t];
  }
  for (; j < keys.count; ++j) {
    auto s = hn::Zero(d);
    const float* k = keys.rows + j * keys.stride;
    int64_t i = 0;
    for (; i + lanes <= keys.size; i += lanes)
      s = hn::MulAdd(hn::LoadU(d, q + i), hn::LoadU(d, k + i), s);
    float sum = hn::GetLane(hn::SumOfLanes(d, s));
    for (; i < keys.size; ++i) sum += q[i] * k[i];
    scores[j] = scale * sum;
  }
}

// y = sum of weights[j] * values[j]. Four vectors of y at a time stay in registers over all rows.
// Rows of weight 0 are not read.
void WeightedSum(const float* weights, const RowBlock& values, float* y) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 4 * lanes <= values.size; i += 4 * lanes) {
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t j = 0; j < values.count; ++j) {
      if (weights[j] == 0) continue;
      const auto w = hn::Set(d, weights[j]);
      const float* v = values.rows + j * values.stride + i;
      s0 = hn::MulAdd(w, hn::LoadU(d, v), s0);
      s1 = hn::MulAdd(w, hn::LoadU(d, v + lanes), s1);
      s2 = hn::MulAdd(w, hn::LoadU(d, v + 2 * lanes), s2);
      s3 = hn::MulAdd(w, hn::LoadU(d, v + 3 * lanes), s3);
    }
    hn::StoreU(s0, d, y + i);
    hn::StoreU(s1, d, y + i + lanes);
    hn::StoreU(s2, d, y + i + 2 * lanes);
    hn::StoreU(s3, d, y + i + 3 * lanes);
  }
  for (; i + lanes <= values.size; i += lanes) {
    auto s = hn::Zero(d);
    for (int64_t j = 0; j < values.count; ++j) {
      if (weights[j] == 0) continue;
      s = hn::MulAdd(hn::Set(d, weights[j]), hn::LoadU(d, values.rows + j * values.stride + i), s);
    }
    hn::StoreU(s, d, y + i);
  }
  for (; i < values.size; ++i) {
    float s = 0;
    for (int64_t j = 0; j < values.count; ++j) {
      if (weights[j] != 0) s += weights[j] * values.rows[j * values.stride + i];
    }
    y[i] = s;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::onnx_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::onnx_ops {
namespace {

HWY_EXPORT(QueryScores);
HWY_EXPORT(WeightedSum);

constexpr float kMasked = -std::numeric_limits<float>::infinity();

void CapScores(float softcap, float* scores, int64_t n) {
  if (softcap == 0) return;
  for (int64_t j = 0; j < n; ++j) scores[j] /= softcap;
  TanhRow(scores, scores, n, 0);
  for (int64_t j = 0; j < n; ++j) scores[j] *= softcap;
}

void AddBias(const AttentionRow& row) {
  if (row.bias == nullptr) return;
  for (int64_t j = 0; j < row.keys.count; ++j) {
    const float value = row.bias[j * row.bias_stride];
    row.scores[j] = value == kMasked ? kMasked : row.scores[j] + value;
  }
}

// Probabilities sum to one; a sink takes its share of them. Their largest is 1 / sum(e^(s - max)).
void LetSinkJoin(float sink, float max, float* probabilities, int64_t n) {
  const float largest = MaxOfRow(probabilities, n);
  const float factor = 1.0f / (1.0f + std::exp(sink - max) * largest);
  for (int64_t j = 0; j < n; ++j) probabilities[j] *= factor;
}

}  // namespace

void AttendRow(const AttentionRow& row) {
  const int64_t count = row.keys.count;
  HWY_DYNAMIC_DISPATCH(QueryScores)(row.q, row.keys, row.scale, row.scores);
  CapScores(row.softcap, row.scores, count);
  AddBias(row);
  const float max = MaxOfRow(row.scores, count);
  if (max == kMasked) {
    std::fill(row.y, row.y + row.values.size, 0.0f);
    return;
  }
  SoftmaxRow(row.scores, row.scores, count);
  if (row.sink != nullptr) LetSinkJoin(*row.sink, max, row.scores, count);
  HWY_DYNAMIC_DISPATCH(WeightedSum)(row.scores, row.values, row.y);
}

}  // namespace pagefuse::onnx_ops
#endif  // HWY_ONCE
