// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/paged_decode_rows.h"

namespace pagefuse::cuda {

Error LaunchDecodeBfloat16(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                           Stream stream) {
  if (plan.exact) return LaunchDecodeFor<DecodeFormat::kBfloat16, true>(p, plan, starts, stream);
  return LaunchDecodeFor<DecodeFormat::kBfloat16, false>(p, plan, starts, stream);
}

}  // namespace pagefuse::cuda
