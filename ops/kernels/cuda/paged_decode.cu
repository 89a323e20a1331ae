// SPDX-License-Identifier: Apache-2.0
// The launch of a decode: pages, the join.
#include <cuda_runtime.h>

#include "pagefuse/ops/kernels/cuda/paged_decode.h"
#include "pagefuse/ops/kernels/cuda/shared_memory.h"

namespace pagefuse::cuda {
namespace {

static_assert(kNoDecode == cudaErrorNotSupported);

Error LaunchPages(const PagedAttention& p, const DecodePlan& plan, int32_t* starts, Stream stream) {
  switch (plan.format) {
    case DecodeFormat::kBfloat16:
      return LaunchDecodeBfloat16(p, plan, starts, stream);
    case DecodeFormat::kFloat16:
      return LaunchDecodeFloat16(p, plan, starts, stream);
    case DecodeFormat::kFloat:
      return LaunchDecodeFloat(p, plan, starts, stream);
    case DecodeFormat::kInt8:
      return LaunchDecodeInt8(p, plan, starts, stream);
    case DecodeFormat::kE4M3:
      return LaunchDecodeE4M3(p, plan, starts, stream);
    case DecodeFormat::kTurboQuant:
      return LaunchDecodeTurboQuant(p, plan, starts, stream);
    default:
      return cudaErrorNotSupported;
  }
}

}  // namespace

DecodeDevice CurrentDecodeDevice() {
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return {};
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return {10 * major + minor, Multiprocessors(), MostShared()};
}

Error LaunchPagedDecode(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                        Stream stream) {
  if (p.batch.num_tokens == 0 || p.batch.num_heads == 0) return 0;
  const Error error = LaunchPages(p, plan, starts, stream);
  if (error != 0 || plan.cluster > 0) return error;
  return LaunchDecodeJoin(p, plan, starts, stream);
}

}  // namespace pagefuse::cuda
