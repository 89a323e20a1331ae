// SPDX-License-Identifier: Apache-2.0
// Matrices of bfloat16 that products read in blocks (PackedBf16): rows [.., N, K] in a graph, each
// matrix in blocks in memory.
#pragma once

#include <cstdint>

#include "pagefuse/ops/schema/packing.h"

namespace pagefuse {

extern const Packing kBf16Blocks;

// The blocks of input `port`, one matrix behind the other; null where it is not packed.
const uint16_t* Bf16BlocksOf(const KernelArgs& args, int port);

}  // namespace pagefuse
