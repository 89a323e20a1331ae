// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/runtime_status.h"

#include "absl/strings/str_cat.h"

namespace pagefuse::cuda {

std::string ErrorText(const char* call, cudaError_t error) {
  return absl::StrCat(call, ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
}

absl::Status RuntimeStatus(const char* call, cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text = ErrorText(call, error);
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(text);
  return absl::InternalError(text);
}

}  // namespace pagefuse::cuda
