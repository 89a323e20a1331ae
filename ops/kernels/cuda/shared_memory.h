// SPDX-License-Identifier: Apache-2.0
// How much shared memory blocks may have. For launchers.
#pragma once

#include <cuda_runtime.h>

#include "pagefuse/ops/kernels/cuda/device_number.h"

namespace pagefuse::cuda {

// Bytes that a block may have on the current device, what a kernel declares among them: 227 KiB on sm_90 and sm_100, 163 on sm_80 and sm_87, 99 on
// sm_86, sm_89 and sm_120. For more than 48 KiB kernels need an attribute: always the same, so that threads that launch at the same time do not take
// it from each other.
inline int MostShared() {
  constexpr int kEveryKernel = 48 << 10;
  static DeviceNumber most;
  return most.Get(kEveryKernel, [](int device) {
    int bytes = 0;
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return bytes;
  });
}

}  // namespace pagefuse::cuda
