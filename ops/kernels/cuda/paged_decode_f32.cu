// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/paged_decode_rows.h"

namespace pagefuse::cuda {

Error LaunchDecodeFloat(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                        Stream stream) {
  return LaunchDecodeFor<DecodeFormat::kFloat, true>(p, plan, starts, stream);
}

}  // namespace pagefuse::cuda
