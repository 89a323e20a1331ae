// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/onnx/attention.h"

namespace pagefuse::onnx_ops {
namespace {

struct Heads {
  int64_t count, length, size;
  HeadLayout layout;
};

// [B, H, L, D], or [B, L, H * D] with the number of heads from an attribute.
Heads HeadsOf(const std::vector<int64_t>& dims, int64_t count) {
  if (dims.size() == 4) {
    return {dims[1], dims[2], dims[3], {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3]}};
  }
  return {count, dims[1], dims[2] / count, {dims[1] * dims[2], dims[2] / count, dims[2]}};
}

}  // namespace

AttentionCall::Range AttentionCall::KeysOf(int64_t b, int64_t i) const {
  const int64_t valid = ValidKeys(b);
  const int64_t position = PositionOf(b, i);
  Range range = {0, valid};
  if (causal) range.last = std::min(range.last, position + 1);
  if (right_window >= 0 && right_window < range.last - position) {
    range.last = position + right_window + 1;
  }
  if (left_window >= 0 && left_window <= position) range.first = position - left_window;
  range.last = std::max(range.last, range.first);
  if (range.first >= valid) range.first = range.last = valid;
  return range;
}

absl::StatusOr<AttentionCall> AttentionCallOf(const KernelArgs& args) {
  const Node& node = *args.node;
  AttentionCall call;
  PF_ASSIGN_OR_RETURN(const int64_t q_heads, node.IntAttribute("q_num_heads", 0));
  PF_ASSIGN_OR_RETURN(const int64_t kv_heads, node.IntAttribute("kv_num_heads", 0));
  const Heads q = HeadsOf(args.input(0).dims, q_heads);
  const Heads k = HeadsOf(args.input(1).dims, kv_heads);
  const Heads v = HeadsOf(args.input(2).dims, kv_heads);
  call.batch = args.input(0).dims[0];
  call.q_heads = q.count;
  call.kv_heads = k.count;
  call.q_len = q.length;
  call.new_len = k.length;
  call.past_len = args.input(4).present() ? args.input(4).dims[2] : 0;
  call.qk_size = q.size;
  call.v_size = v.size;
  call.q = q.layout;
  call.k = k.layout;
  call.v = v.layout;
  const int64_t width = q.count * v.size;
  const bool packed = args.input(0).dims.size() == 3;
  call.y = packed ? HeadLayout{q.length * width, v.size, width}
                  : HeadLayout{q.length * width, q.length * v.size, v.size};
  const auto root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(q.size)));
  PF_ASSIGN_OR_RETURN(call.scale, node.FloatAttribute("scale", root));
  PF_ASSIGN_OR_RETURN(call.softcap, node.FloatAttribute("softcap", 0.0f));
  call.softcap = std::abs(call.softcap);  // c * tanh(x / c) is the same for -c
  PF_ASSIGN_OR_RETURN(const int64_t causal, node.IntAttribute("is_causal", 0));
  call.causal = causal != 0;
  PF_ASSIGN_OR_RETURN(call.left_window, node.IntAttribute("left_window_size", -1));
  PF_ASSIGN_OR_RETURN(call.right_window, node.IntAttribute("right_window_size", -1));
  PF_ASSIGN_OR_RETURN(call.output_mode, node.IntAttribute("qk_matmul_output_mode", 0));
  call.broadcast_mask = args.opset < 24;
  if (args.input(6).present()) call.nonpad_lengths = args.input(6).as<int64_t>();
  return call;
}

MaskLayout MaskLayoutOf(const AttentionCall& call, const TensorArg& mask) {
  MaskLayout layout;
  layout.width = call.kv_len();
  if (!mask.present()) return layout;
  int64_t stride = 1;
  const size_t rank = mask.dims.size();
  for (size_t i = 0; i < rank; ++i) {
    const int64_t dim = mask.dims[rank - 1 - i];
    if (i == 0 && !(dim == 1 && call.broadcast_mask)) {
      layout.width = dim;
      layout.strides[3] = 1;
    } else if (dim != 1) {
      layout.strides[3 - i] = stride;
    }
    stride *= dim;
  }
  return layout;
}

void ConcatPast(const TensorArg& past, const TensorArg& current, const HeadLayout& layout,
                const TensorArg& present) {
  const auto element = static_cast<size_t>(BitWidth(present.dtype) / 8);
  const int64_t past_len = past.present() ? past.dims[2] : 0;
  const int64_t total = present.dims[2];
  const size_t row = static_cast<size_t>(present.dims[3]) * element;
  if (present.size() == 0) return;
  auto* to = present.as<std::byte>();
  const auto* old_rows = past.as<std::byte>();
  const auto* new_rows = current.as<std::byte>();
  for (int64_t b = 0; b < present.dims[0]; ++b) {
    for (int64_t h = 0; h < present.dims[1]; ++h) {
      const size_t past_bytes = static_cast<size_t>(past_len) * row;
      if (past_bytes > 0) std::memcpy(to, old_rows, past_bytes);
      to += past_bytes;
      old_rows += past_bytes;
      for (int64_t s = 0; s < total - past_len; ++s, to += row) {
        std::memcpy(to, new_rows + static_cast<size_t>(layout.At(b, h, s)) * element, row);
      }
    }
  }
}

}  // namespace pagefuse::onnx_ops
