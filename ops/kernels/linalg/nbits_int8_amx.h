// SPDX-License-Identifier: Apache-2.0
// Many rows of x by a few of W in tiles of AMX-INT8; needs HasAmxInt8().
#pragma once

#include "pagefuse/ops/kernels/linalg/nbits_int8_hwy.h"

namespace pagefuse {

// MultiplyInt8Tile for integers of x that lie in order, of 4-bit weights too. Here words[(b * 8 + q) *
// kColumns + c] are the codes of elements [4 q, 4 q + 4) less the centre, so that products of weights
// without zero points have nothing to take off; zeros[b * kColumns + c] is the scale times what the
// zero point is off the centre.
void MultiplyInt8TileAmx(const Int8Rows& x, const NBitsWeight& w, const Int8Part& part,
                         Int8Tile& tile, const OutputView& y);

}  // namespace pagefuse
