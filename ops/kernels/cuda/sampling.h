// SPDX-License-Identifier: Apache-2.0
// SampleTokens on the device: a block of threads a row.
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
  float* edited = nullptr;    // workspace [rows, columns]; null where there are no edits
  int64_t* tokens = nullptr;  // [rows]
};

// Bytes of `edited`.
size_t SampleWorkspace(const SampleTokens& call);

Error LaunchSampleTokens(const SampleTokens& call, Stream stream);

}  // namespace pagefuse::cuda
