// SPDX-License-Identifier: Apache-2.0
// MergeAttnStates on the device: two attention results over disjoint keys, joined by their log-sum-exps.
#pragma once

#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// Outputs are [tokens, heads, head_size], log-sum-exps [heads, tokens].
struct MergeAttnStates {
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_size = 0;
  DataType type = DataType::kFloat;  // of prefix and suffix: float, float16, bfloat16
  const void* prefix = nullptr;
  const void* suffix = nullptr;
  const float* prefix_lse = nullptr;
  const float* suffix_lse = nullptr;
  void* output = nullptr;               // of `type`; float8e4m3fn with output_scale
  float* output_lse = nullptr;          // null: not wanted
  int64_t context_tokens = 0;           // tokens from here on take the suffix
  const float* output_scale = nullptr;  // one number; null: none
};

Error LaunchMergeAttnStates(const MergeAttnStates& merge, Stream stream);

}  // namespace pagefuse::cuda
