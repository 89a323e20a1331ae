// SPDX-License-Identifier: Apache-2.0
// SinkAttention on the device: attention under a mask that is added to the scores, with a score of each head that takes probability and has no
// value. All tensors are floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// Pointers are the device's. B batches, H heads of queries, G of keys and values, H % G = 0, S queries, K keys.
struct SinkAttention {
  int64_t batch = 0, heads = 0, groups = 1, queries = 0, keys = 0;
  int size = 0, value_size = 0;
  float scale = 1;
  const float* query = nullptr;  // [B, H, S, size]
  const float* key = nullptr;    // [B, G, K, size]
  const float* value = nullptr;  // [B, G, K, value_size]
  // Element (b, h, s, k) is at the sum of their products with the strides, 0 where it repeats.
  const float* mask = nullptr;
  int64_t mask_strides[4] = {};
  const float* sinks = nullptr;  // [H]
  float* out = nullptr;          // [B, H, S, value_size]

  constexpr int64_t rows() const { return batch * heads * queries; }
};

// The longest rows that the kernel takes.
inline constexpr int kLongestSinkRow = 1024;

// Whether a CTA of the current device has memory for tiles of such rows.
bool HasMemoryForSinkAttention(const SinkAttention& call);

// `workspace`: device memory of so many bytes.
size_t SinkAttentionWorkspace(const SinkAttention& call);
Error LaunchSinkAttention(const SinkAttention& call, void* workspace, Stream stream);

}  // namespace pagefuse::cuda
