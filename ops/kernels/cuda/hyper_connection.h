// SPDX-License-Identifier: Apache-2.0
// HyperConnectionMix on the device: how a layer reads from and writes to the streams of its residual.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

struct HyperConnectionParams {
  int64_t tokens = 0;
  int streams = 1, rounds = 1;
  float epsilon = 0, post_factor = 0;
  const float* logits = nullptr;  // [tokens, (2 + streams) * streams]: of pre, post and comb
  const float* scale = nullptr;   // [3]
  const float* base = nullptr;    // [(2 + streams) * streams]
  float* pre = nullptr;           // [tokens, streams]
  float* post = nullptr;          // [tokens, streams]
  float* comb = nullptr;          // [tokens, streams, streams]
  // Whether nothing on the stream writes scale and base: they may be read before the kernel in front has ended.
  bool constant_weights = false;
};

Error LaunchHyperConnection(const HyperConnectionParams& params, Stream stream);

}  // namespace pagefuse::cuda
