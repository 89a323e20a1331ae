// SPDX-License-Identifier: Apache-2.0
// Launches kernels, for sources of device code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <cuda_runtime.h>

#include "pagefuse/ops/kernels/cuda/device_number.h"
#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// What does not fit a launch: more elements or rows than a grid has.
inline constexpr Error kTooLarge = cudaErrorInvalidValue;

struct LaunchShape {
  dim3 grid = 1, block = 1;
  size_t shared_bytes = 0;
};

// Whether a kernel may begin before the one in front of it has ended (ptx.h): on sm_90 and newer.
inline bool OverlapsLaunches() {
  static DeviceNumber majors;
  const auto major_of = [](int device) {
    int major = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major;
  };
  return majors.Get(0, major_of) >= 9;
}

// A kernel that calls ptx::WaitForKernelBefore in every block before it reads what others made, or
// writes.
template <typename... Params, typename... Args>
Error Launch(void (*kernel)(Params...), const LaunchShape& shape, Stream stream, Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = OverlapsLaunches() ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace pagefuse::cuda
