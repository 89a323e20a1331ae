// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/paged_decode_turboquant.h"

namespace pagefuse::cuda {

Error LaunchDecodeTurboQuant(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                             Stream stream) {
  if (p.slot.key_bits == 3) return LaunchDecodeTurboQuant3(p, plan, starts, stream);
  if (p.slot.key_bits == 8) return LaunchDecodeSlots<8, 4>(p, plan, starts, stream);
  return LaunchDecodeSlots<4, 4>(p, plan, starts, stream);
}

}  // namespace pagefuse::cuda
