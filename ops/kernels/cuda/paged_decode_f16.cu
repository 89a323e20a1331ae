// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/paged_decode_rows.h"

namespace pagefuse::cuda {

Error LaunchDecodeFloat16(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                          Stream stream) {
  if (plan.exact) return LaunchDecodeFor<DecodeFormat::kFloat16, true>(p, plan, starts, stream);
  return LaunchDecodeFor<DecodeFormat::kFloat16, false>(p, plan, starts, stream);
}

}  // namespace pagefuse::cuda
