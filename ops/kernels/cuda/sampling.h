// SPDX-License-Identifier: Apache-2.0
// SampleTokens on the device: a cluster of blocks a row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// Values in memory of the device.
struct SampleTokens {
  const float* logits = nullptr;  // [rows, columns]
  int64_t rows = 0, columns = 0;
  const double* settings = nullptr;  // [rows, 7]: columns of ops/pagefuse/sampling/sample_tokens.h
  const int64_t* random = nullptr;   // [rows]
  const int32_t* edit_starts = nullptr;  // [rows + 1]
  const int32_t* edit_tokens = nullptr;  // [edits], as the next ones
  const double* edit_bias = nullptr;
  const int32_t* edit_counts = nullptr;
  int64_t edits = 0;
  // workspace of SampleWorkspace, aligned to 16 bytes; null where that is 0
  float* edited = nullptr;
  int64_t* tokens = nullptr;  // [rows]
};

// Bytes of `edited`: copies of rows that shared memory does not hold and that may have edits.
size_t SampleWorkspace(const SampleTokens& call);

Error LaunchSampleTokens(const SampleTokens& call, Stream stream);

}  // namespace pagefuse::cuda
