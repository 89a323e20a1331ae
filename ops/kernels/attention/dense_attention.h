// SPDX-License-Identifier: Apache-2.0
// Attention of query rows over float32 keys and values with grouped heads: the core of Attention,
// and of com.microsoft's GroupQueryAttention and packed PagedAttention.
#pragma once

#include <cstdint>
#include <vector>

namespace pagefuse::onnx_ops {

// Where a head's rows are: element (b, h, s, d) is at b * batch + h * head + s * row + d.
struct HeadLayout {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;

  int64_t At(int64_t b, int64_t h, int64_t s) const { return b * batch + h * head + s * row; }
};

// A sequence of the batch: its query rows and its keys.
struct DenseSequence {
  int64_t queries = 0;         // query rows
  int64_t first_position = 0;  // of query row 0 among the keys; may be negative
  int64_t keys = 0;            // keys from here on are not seen
};

// The bias of query row i and key j of head h in sequence b is at
// b * strides[0] + h * strides[1] + i * strides[2] + (first_keys[b] + j) * strides[3]; -infinity
// masks.
struct DenseBias {
  const float* data = nullptr;  // null: none
  int64_t strides[4] = {0, 0, 0, 1};
  std::vector<int64_t> first_keys;  // empty: 0
};

struct DenseAttention {
  int64_t q_heads = 0, kv_heads = 0;
  int64_t qk_size = 0, v_size = 0;
  float scale = 1;
  float softcap = 0;  // 0: none
  bool causal = true;
  int64_t window = -1;        // keys that a query sees, its own included; -1: all before it
  int64_t right_window = -1;  // keys behind its own that it sees; -1: all, or none if causal
  std::vector<DenseSequence> sequences;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  float* y = nullptr;
  // Rows (b, head, row). Where sequences are packed, `batch` is 0 and the offset of sequence b is
  // q_offsets[b] rows (kv_offsets[b] rows).
  HeadLayout q_layout, k_layout, v_layout, y_layout;
  std::vector<int64_t> q_offsets, kv_offsets;
  std::vector<float> sinks;  // one a query head; empty: none
  DenseBias bias;

  int64_t q_row(int64_t b) const { return q_offsets.empty() ? 0 : q_offsets[b]; }
  int64_t kv_row(int64_t b) const { return kv_offsets.empty() ? 0 : kv_offsets[b]; }
  // Keys [first, last) that query row i of sequence b sees.
  struct Range {
    int64_t first, last;
  };
  Range KeysOf(int64_t b, int64_t i) const;
};

// By its formula, in double.
void DenseAttentionReference(const DenseAttention& call);
// Shared among the workers of the call, vector kernels. A query that sees no key gives 0.
void DenseAttentionHwy(const DenseAttention& call);

}  // namespace pagefuse::onnx_ops
