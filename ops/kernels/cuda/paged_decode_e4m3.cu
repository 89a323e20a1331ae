// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/paged_decode_rows.h"

namespace pagefuse::cuda {

Error LaunchDecodeE4M3(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                       Stream stream) {
  if (plan.exact) return LaunchDecodeFor<DecodeFormat::kE4M3, true>(p, plan, starts, stream);
  return LaunchDecodeFor<DecodeFormat::kE4M3, false>(p, plan, starts, stream);
}

}  // namespace pagefuse::cuda
