// SPDX-License-Identifier: Apache-2.0
// The float32 kernel of Attention.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/attention/dense_attention.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/onnx/attention.h"

namespace pagefuse::onnx_ops {
namespace {

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

DenseAttention DenseOf(const AttentionCall& call, const Operands& x) {
  DenseAttention dense;
  dense.q_heads = call.q_heads;
  dense.kv_heads = call.kv_heads;
  dense.qk_size = call.qk_size;
  dense.v_size = call.v_size;
  dense.scale = call.scale;
  dense.softcap = call.softcap;
  dense.causal = call.causal;
  // No query is farther from a key than that: a larger window is none.
  const int64_t farthest = call.kv_len() + call.q_len;
  if (call.left_window >= 0 && call.left_window < farthest) dense.window = call.left_window + 1;
  if (call.right_window < farthest) dense.right_window = call.right_window;
  for (int64_t b = 0; b < call.batch; ++b) {
    const int64_t valid = call.ValidKeys(b);
    dense.sequences.push_back({.queries = call.q_len,
                               .first_position = call.PositionOf(b, 0),
                               .keys = std::min(valid, x.mask.width)});
  }
  dense.q = x.q;
  dense.k = x.k.rows;
  dense.v = x.v.rows;
  dense.y = x.y;
  dense.q_layout = call.q;
  dense.k_layout = x.k.layout;
  dense.v_layout = x.v.layout;
  dense.y_layout = call.y;
  dense.bias.data = x.bias;
  std::copy_n(x.mask.strides, 4, dense.bias.strides);
  return dense;
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
  DenseAttentionHwy(DenseOf(call, x));
  return absl::OkStatus();
}

}  // namespace pagefuse::onnx_ops
