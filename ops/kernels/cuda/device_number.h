// SPDX-License-Identifier: Apache-2.0
// What a device is asked once. For launchers.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include <cuda_runtime.h>

namespace pagefuse::cuda {

// A number of each device, as a static variable. Threads that ask at the same time get the same.
class DeviceNumber {
 public:
  // Of the current device: what ask(device) gives, asked again after a 0; `unknown` where there is none, or no room for it.
  template <class Ask>
  int Get(int unknown, const Ask& ask) {
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device >= kDevices) return unknown;
    std::atomic<int>& kept = numbers_[static_cast<size_t>(device)];
    int number = kept.load(std::memory_order_relaxed);
    if (number == 0) {
      number = ask(device);
      kept.store(number, std::memory_order_relaxed);
    }
    return number;
  }

 private:
  static constexpr int kDevices = 64;
  std::array<std::atomic<int>, kDevices> numbers_ = {};  // 0: not yet
};

}  // namespace pagefuse::cuda
