// SPDX-License-Identifier: Apache-2.0
// Codes as the blocks of bfloat16 that matrix units read.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/linalg/nbits_lanes.h"

namespace pagefuse {

// Elements [32 * first, 32 * (first + count)) along k of a group of 16 rows, as `count` blocks of
// PackedBf16: (code - zero) * scale, rounded to bfloat16 to nearest, halves away from 0. Elements past
// k are whatever the codes behind it say. `to` is aligned to 64. A scale that is NaN gives NaN.
void DecodeToBf16Blocks(const NBitsLanes& w, int64_t group, int64_t first, int64_t count,
                        uint16_t* to);

}  // namespace pagefuse
