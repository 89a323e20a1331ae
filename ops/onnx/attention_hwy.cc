// The float32 kernels of Attention: blocks of query rows, or one at a time where keys are not a
// range up to the query.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/numeric/convert.h"
#include "pagefuse/ops/onnx/attention.h"
#include "pagefuse/ops/onnx/attention_row.h"
#include "pagefuse/ops/onnx/dense_attention.h"
#include "pagefuse/ops/parallel.h"

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

// Query i of head h: scores of the keys it sees in `scores`, then its row of y.
void Attend(const AttentionCall& call, const Operands& x, const int64_t (&index)[3],
            std::vector<float>& scores) {
  const auto [b, h, i] = index;
  AttentionCall::Range keys = call.KeysOf(b, i);
  keys.last = std::min(keys.last, x.mask.width);
  const int64_t count = std::max<int64_t>(keys.last - keys.first, 0);
  const int64_t kv_head = call.KvHead(h);
  const float* k = x.k.rows + x.k.layout.At(b, kv_head, keys.first);
  const float* v = x.v.rows + x.v.layout.At(b, kv_head, keys.first);
  AttentionRow row;
  row.q = x.q + call.q.At(b, h, i);
  row.keys = {k, x.k.layout.row, count, call.qk_size};
  row.values = {v, x.v.layout.row, count, call.v_size};
  row.scale = call.scale;
  row.softcap = call.softcap;
  if (x.bias != nullptr) {
    const int64_t* stride = x.mask.strides;
    row.bias = x.bias + b * stride[0] + h * stride[1] + i * stride[2] + keys.first * stride[3];
    row.bias_stride = stride[3];
  }
  row.scores = scores.data();
  row.y = x.y + call.y.At(b, h, i);
  AttendRow(row);
}

// False if DenseAttention has no such keys or bias.
bool IsDense(const AttentionCall& call, const Operands& x) {
  return call.right_window < 0 && (x.bias == nullptr || x.mask.strides[3] == 1);
}

DenseAttention DenseOf(const AttentionCall& call, const Operands& x) {
  DenseAttention dense;
  dense.q_heads = call.q_heads;
  dense.kv_heads = call.kv_heads;
  dense.qk_size = call.qk_size;
  dense.v_size = call.v_size;
  dense.scale = call.scale;
  dense.softcap = call.softcap;
  dense.causal = call.causal;
  if (call.left_window >= 0 && call.left_window < call.kv_len())
    dense.window = call.left_window + 1;
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
  std::copy_n(x.mask.strides, 3, dense.bias.strides);
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
  if (IsDense(call, x)) {
    DenseAttentionHwy(DenseOf(call, x));
    return absl::OkStatus();
  }
  const int64_t rows = call.batch * call.q_heads * call.q_len;
  const int64_t work = call.kv_len() * (call.qk_size + call.v_size) + 1;
  ParallelFor(rows, work, [&](int64_t begin, int64_t end) {
    std::vector<float> scores(static_cast<size_t>(call.kv_len()));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t head = row / call.q_len;
      Attend(call, x, {head / call.q_heads, head % call.q_heads, row % call.q_len}, scores);
    }
  });
  return absl::OkStatus();
}

}  // namespace pagefuse::onnx_ops
