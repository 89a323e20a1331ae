// SPDX-License-Identifier: Apache-2.0
// Keys of three bits.
#include "pagefuse/ops/kernels/cuda/paged_decode_turboquant.h"

namespace pagefuse::cuda {

Error LaunchDecodeTurboQuant3(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                              Stream stream) {
  if (p.slot.value_bits == 3) return LaunchDecodeSlots<3, 3>(p, plan, starts, stream);
  return LaunchDecodeSlots<3, 4>(p, plan, starts, stream);
}

}  // namespace pagefuse::cuda
