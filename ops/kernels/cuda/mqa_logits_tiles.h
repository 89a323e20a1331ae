// SPDX-License-Identifier: Apache-2.0
// Index scores by the tensor cores of Hopper: 64 heads of 128 elements, queries and keys of e4m3fn codes. Codes become halves, which hold
// them exactly, and products are summed in float: sums of 8-bit products keep too few bits.
#pragma once

#include <cstddef>

#include "pagefuse/ops/kernels/cuda/mqa_logits.h"

namespace pagefuse::cuda {

inline constexpr int kTileHeads = 64, kTileSize = 128;  // of a query

// Launchers give cudaErrorNotSupported, and launch nothing, where the driver makes no map of the tensors.

// Whether the GPU of the calling thread has these tensor cores.
bool HasHopperProducts();

// Dense keys.
bool FitsDenseTiles(const MqaLogits& call);
size_t DenseTilesWorkspace(const MqaLogits& call);
Error LaunchDenseTiles(const MqaLogits& call, void* workspace, Stream stream);

// Keys in pages of 8, 16 or 32 keys, or of a multiple of 64.
bool FitsPagedTiles(const MqaLogits& call);
Error LaunchPagedTiles(const MqaLogits& call, Stream stream);

}  // namespace pagefuse::cuda
