// SPDX-License-Identifier: Apache-2.0
// What the kernels of Attention share: sizes, layouts, and which keys a query may see.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/attention/dense_attention.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::onnx_ops {

// One call of Attention, in numbers.
struct AttentionCall {
  int64_t batch = 0, q_heads = 0, kv_heads = 0;
  int64_t q_len = 0, past_len = 0, new_len = 0;  // new_len: rows of K and V
  int64_t qk_size = 0, v_size = 0;               // head sizes
  float scale = 0;
  float softcap = 0;  // 0: none
  bool causal = false;
  int64_t left_window = -1, right_window = -1;  // -1: unbounded
  int64_t output_mode = 0;
  HeadLayout q, k, v, y;                    // of the inputs and the output, without past
  bool broadcast_mask = false;              // a mask one key wide counts for all keys
  const int64_t* nonpad_lengths = nullptr;  // valid keys of each sequence, null: all

  int64_t kv_len() const { return past_len + new_len; }
  int64_t KvHead(int64_t q_head) const { return q_head / (q_heads / kv_heads); }

  // Keys of sequence `b` that are no padding, and the place of its query `i` among them: queries
  // are the last of the valid ones.
  int64_t ValidKeys(int64_t b) const {
    return nonpad_lengths == nullptr ? kv_len() : nonpad_lengths[b];
  }
  int64_t PositionOf(int64_t b, int64_t i) const {
    return i + (nonpad_lengths == nullptr ? past_len : nonpad_lengths[b] - q_len);
  }

  // Keys [first, last) that causality, windows and padding leave to query `i` of sequence `b`.
  struct Range {
    int64_t first, last;
  };
  Range KeysOf(int64_t b, int64_t i) const;
};

// The dims, attributes and layouts of a call whose shapes were checked.
absl::StatusOr<AttentionCall> AttentionCallOf(const KernelArgs& args);

// The mask as a bias: element (b, h, i, j) at b * strides[0] + h * strides[1] + i * strides[2] + j
// * strides[3]; keys from `width` on are masked. Without a mask strides are 0 and the width is
// kv_len.
struct MaskLayout {
  int64_t strides[4] = {0, 0, 0, 0};
  int64_t width = 0;
};
MaskLayout MaskLayoutOf(const AttentionCall& call, const TensorArg& mask);

// Copies past (may be absent) and new rows into `present` [B, Hkv, P + L, D], with `layout` of the
// new ones.
void ConcatPast(const TensorArg& past, const TensorArg& current, const HeadLayout& layout,
                const TensorArg& present);

absl::Status AttentionReference(KernelArgs& args);
absl::Status AttentionHwy(KernelArgs& args);
// The float32 kernel gives no qk_matmul_output.
absl::Status SupportsAttentionHwy(const KernelQuery& query);

}  // namespace pagefuse::onnx_ops
