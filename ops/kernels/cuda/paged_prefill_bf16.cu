// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/paged_prefill_kernel.h"

namespace pagefuse::cuda {

Error LaunchPrefillBfloat16(const PagedAttention& p, const PrefillPlan& plan, Stream stream) {
  if (plan.exact) return LaunchPrefillFor<true, true>(p, plan, stream);
  return LaunchPrefillFor<true, false>(p, plan, stream);
}

}  // namespace pagefuse::cuda
