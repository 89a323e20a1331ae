// SPDX-License-Identifier: Apache-2.0
// Centroids of TurboQuant keys as kernels take them.
#pragma once

namespace pagefuse::cuda {

// A table of the device's memory, or, where that is null, a copy among a kernel's arguments.
struct CentroidTable {
  const float* device = nullptr;  // [2^key_bits], ascending
  float copy[16] = {};

  constexpr const float* values() const { return device != nullptr ? device : copy; }
};

}  // namespace pagefuse::cuda
