// SPDX-License-Identifier: Apache-2.0
// Two attention results over disjoint keys, joined by their log-sum-exps.
#pragma once

#include <cstdint>

#include "pagefuse/base/data_type.h"

namespace pagefuse::pagefuse_ops {

// One call with checked arguments. Outputs are [T, H, D], lse [H, T].
struct MergeCall {
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_size = 0;
  DataType type = DataType::kFloat;  // of prefix and suffix
  const uint8_t* prefix = nullptr;
  const uint8_t* suffix = nullptr;
  const float* prefix_lse = nullptr;
  const float* suffix_lse = nullptr;
  DataType output_type = DataType::kFloat;
  uint8_t* output = nullptr;
  float* output_lse = nullptr;  // null: not wanted
  int64_t context_tokens = 0;   // tokens from here on take the suffix
  float inverse_scale = 1.0f;   // of a float8 output
};

// How the two parts of one (token, head) add up: out = prefix * prefix_weight + suffix *
// suffix_weight.
struct MergeWeights {
  float prefix = 0;
  float suffix = 0;
  float lse = 0;
};
MergeWeights WeightsOf(const MergeCall& call, int64_t token, int64_t head);

// The same bytes, plain and vectorised over rows in parallel.
void MergeAttnStatesPlain(const MergeCall& call);
void MergeAttnStatesHwy(const MergeCall& call);

}  // namespace pagefuse::pagefuse_ops
