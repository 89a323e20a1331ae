#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/onnx/attention_hwy.cc"
#include <cstdint>
#include <limits>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/numeric/convert.h"
#include "pagefuse/ops/onnx/attention.h"
#include "pagefuse/ops/onnx/elementwise_hwy.h"
#include "pagefuse/ops/onnx/parallel.h"
#include "pagefuse/ops/onnx/rows_hwy.h"

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

// K or V of all steps: where their rows are.
struct Cache {
  const float* rows;
  HeadLayout layout;
};

// With a past, rows are gathered in the present output, or in `spare` where that is not asked for.
Cache CacheOf(const KernelArgs& args, const AttentionCall& call, int index,
              std::vector<float>& spare) {
  const TensorArg& current = args.input(1 + index);
  const TensorArg& past = args.input(4 + index);
  const HeadLayout& layout = index == 0 ? call.k : call.v;
  TensorArg present = args.output(1 + index);
  const bool asked = present.present();
  if (asked) ConcatPast(past, current, layout, present);
  if (!past.present()) return {current.as<float>(), layout};
  const int64_t size = index == 0 ? call.qk_size : call.v_size;
  if (!asked) {
    spare.resize(static_cast<size_t>(call.batch * call.kv_heads * call.kv_len() * size));
    present = {current.dtype, {call.batch, call.kv_heads, call.kv_len(), size}, spare.data()};
    ConcatPast(past, current, layout, present);
  }
  const int64_t head = call.kv_len() * size;
  return {present.as<float>(), {call.kv_heads * head, head, size}};
}

// The mask as a float bias, null without one. Float masks are read in place.
absl::StatusOr<const float*> BiasOf(const TensorArg& mask, std::vector<float>& spare) {
  if (!mask.present()) return nullptr;
  if (mask.dtype == DataType::kFloat) return mask.as<float>();
  spare.resize(static_cast<size_t>(mask.size()));
  PF_RETURN_IF_ERROR(DecodeToFloat(mask.dtype, mask.data, mask.size(), spare.data()));
  if (mask.dtype != DataType::kBool) return spare.data();
  for (float& value : spare) value = value != 0 ? 0.0f : kMasked;
  return spare.data();
}

struct Operands {
  const float* q;
  Cache k, v;
  const float* bias;
  MaskLayout mask;
  float* y;
};

// Query i of head h: scores of the keys it sees in `scores`, then its row of y.
void Attend(const AttentionCall& call, const Operands& x, const int64_t (&index)[3],
            std::vector<float>& scores) {
  const auto [b, h, i] = index;
  AttentionCall::Range keys = call.KeysOf(b, i);
  keys.last = std::min(keys.last, x.mask.width);
  const int64_t count = std::max<int64_t>(keys.last - keys.first, 0);
  float* y = x.y + call.y.At(b, h, i);
  const int64_t kv_head = call.KvHead(h);
  const float* k = x.k.rows + x.k.layout.At(b, kv_head, keys.first);
  const float* v = x.v.rows + x.v.layout.At(b, kv_head, keys.first);
  HWY_DYNAMIC_DISPATCH(QueryScores)
  (x.q + call.q.At(b, h, i), {k, x.k.layout.row, count, call.qk_size}, call.scale, scores.data());
  if (call.softcap != 0) {
    for (int64_t j = 0; j < count; ++j) scores[j] /= call.softcap;
    TanhRow(scores.data(), scores.data(), count, 0);
    for (int64_t j = 0; j < count; ++j) scores[j] *= call.softcap;
  }
  if (x.bias != nullptr) {
    const int64_t* stride = x.mask.strides;
    const float* bias =
        x.bias + b * stride[0] + h * stride[1] + i * stride[2] + keys.first * stride[3];
    for (int64_t j = 0; j < count; ++j) {
      const float value = bias[j * stride[3]];
      scores[j] = value == kMasked ? kMasked : scores[j] + value;
    }
  }
  if (MaxOfRow(scores.data(), count) == kMasked) {
    std::fill(y, y + call.v_size, 0.0f);
    return;
  }
  SoftmaxRow(scores.data(), scores.data(), count);
  HWY_DYNAMIC_DISPATCH(WeightedSum)
  (scores.data(), {v, x.v.layout.row, count, call.v_size}, y);
}

}  // namespace

absl::Status SupportsAttentionHwy(const KernelQuery& query) {
  if (query.node->output(3) != nullptr)
    return absl::UnimplementedError("qk_matmul_output is asked for");
  const Value* v = query.node->input(2);
  if (v != nullptr && v->dtype() != DataType::kFloat && v->dtype() != DataType::kUndefined) {
    return absl::UnimplementedError("V is not float");
  }
  return absl::OkStatus();
}

absl::Status AttentionHwy(KernelArgs& args) {
  if (args.input(2).dtype != DataType::kFloat) return AttentionReference(args);
  PF_ASSIGN_OR_RETURN(const AttentionCall call, AttentionCallOf(args));
  std::vector<float> spare_k, spare_v, spare_bias;
  Operands x;
  x.q = args.input(0).as<float>();
  x.k = CacheOf(args, call, 0, spare_k);
  x.v = CacheOf(args, call, 1, spare_v);
  PF_ASSIGN_OR_RETURN(x.bias, BiasOf(args.input(3), spare_bias));
  x.mask = MaskLayoutOf(call, args.input(3));
  x.y = args.output(0).as<float>();
  const int64_t rows = call.batch * call.q_heads * call.q_len;
  const int64_t work = call.kv_len() * (call.qk_size + call.v_size) + 1;
  ParallelFor(rows, kElementGrain / work + 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scores(static_cast<size_t>(call.kv_len()));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t head = row / call.q_len;
      Attend(call, x, {head / call.q_heads, head % call.q_heads, row % call.q_len}, scores);
    }
  });
  return absl::OkStatus();
}

}  // namespace pagefuse::onnx_ops
#endif  // HWY_ONCE
