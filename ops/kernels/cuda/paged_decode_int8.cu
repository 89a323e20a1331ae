// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/paged_decode_rows.h"

namespace pagefuse::cuda {

Error LaunchDecodeInt8(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                       Stream stream) {
  if (plan.exact) return LaunchDecodeFor<DecodeFormat::kInt8, true>(p, plan, starts, stream);
  return LaunchDecodeFor<DecodeFormat::kInt8, false>(p, plan, starts, stream);
}

}  // namespace pagefuse::cuda
