// SPDX-License-Identifier: Apache-2.0
// Any codes are codes of some weight in lanes: benchmarks read the memory of rows as that.
#pragma once

#include "pagefuse/ops/kernels/linalg/nbits_lanes.h"

namespace pagefuse {

// `half_scales`: as many as w has. w.n is a multiple of 16, w.codes aligned to 4.
inline NBitsLanes AsLanes(const NBitsWeight& w, const Float16* half_scales) {
  return {.bits = w.bits,
          .n = w.n,
          .k = w.k,
          .block = w.block,
          .codes = reinterpret_cast<const uint32_t*>(w.codes),
          .half_scales = half_scales};
}

}  // namespace pagefuse
