// SPDX-License-Identifier: Apache-2.0
// Errors of CUDA's runtime as statuses.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "absl/status/status.h"

namespace pagefuse::cuda {

// "cudaMemcpyAsync: cudaErrorIllegalAddress (an illegal memory access was encountered)"
std::string ErrorText(const char* call, cudaError_t error);

// OK, ResourceExhausted where memory ran out, or Internal with ErrorText.
absl::Status RuntimeStatus(const char* call, cudaError_t error);

}  // namespace pagefuse::cuda

// Calls a function of the runtime; returns from the enclosing function what RuntimeStatus makes of its error.
#define PF_CUDA_CALL(function, ...)                                                    \
  do {                                                                                 \
    if (const cudaError_t pf_error = function(__VA_ARGS__); pf_error != cudaSuccess) { \
      return ::pagefuse::cuda::RuntimeStatus(#function, pf_error);                     \
    }                                                                                  \
  } while (false)
