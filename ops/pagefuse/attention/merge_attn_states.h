// What the kernels of MergeAttnStates share: the call in parsed form.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernel.h"

namespace pagefuse::pagefuse_ops {

// One call with checked arguments. Outputs are [T, H, D], lse [H, T].
struct MergeCall {
  TensorArg prefix;
  TensorArg suffix;
  const float* prefix_lse = nullptr;
  const float* suffix_lse = nullptr;
  TensorArg output;
  float* output_lse = nullptr;  // null: not wanted
  int64_t context_tokens = 0;   // tokens from here on take the suffix
  float inverse_scale = 1.0f;   // of a float8 output

  int64_t tokens() const { return prefix.dim(0); }
  int64_t heads() const { return prefix.dim(1); }
  int64_t head_size() const { return prefix.dim(2); }
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
