// SPDX-License-Identifier: Apache-2.0
// WindowCompress on the device.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// Row w of the result is the sum of the rows of window w, each column weighted by the softmax of gate + bias. A window is `ratio` rows; with
// overlap also the `ratio` rows before it, which count in the first half of the columns, its own in the second.
struct WindowCompress {
  const float* kv = nullptr;    // [batch, length, (1 + overlap) * size]
  const float* gate = nullptr;  // the same
  const float* bias = nullptr;  // [ratio, (1 + overlap) * size]
  float* rows = nullptr;        // [batch, windows, size]
  int64_t batch = 0;
  int64_t length = 0;
  int64_t windows = 0;
  int64_t size = 0;
  int64_t ratio = 1;
  int overlap = 0;

  constexpr int64_t Width() const { return (1 + overlap) * size; }
};

Error LaunchWindowCompress(const WindowCompress& call, Stream stream);

}  // namespace pagefuse::cuda
