// SPDX-License-Identifier: Apache-2.0
// The GPU of the benchmarks: its stream, memory with random contents, and times of launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device_code.h"

#include "pagefuse/base/device.h"
#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda_bench {

struct Gpu {
  std::string name;
  int sms = 0, capability = 0;
  size_t l2_bytes = 0, free_bytes = 0;
  std::shared_ptr<DeviceContext> context;
  cuda::Stream stream = nullptr;  // the context's
};

// The first GPU; ends the program with a line, and exit status 77, where none can be used.
Gpu OpenGpu();

// Ends the program with the name of the error, unless it is 0.
void Check(cuda::Error error, const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Device memory.
class Memory {
 public:
  Memory() = default;
  Memory(const Gpu& gpu, size_t bytes, Fill fill, uint32_t seed = 1);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  size_t bytes() const { return bytes_; }
  template <typename T = uint8_t>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// A copy of the host's values on the device.
template <typename T>
Memory Upload(const Gpu& gpu, const std::vector<T>& values);
void CopyUp(const Gpu& gpu, void* to, const void* from, size_t bytes);

// Microseconds of one launch: the median of 40 replays of a graph of many, and what nine tenths of them
// are within, as a share of it.
struct Timing {
  double us = 0, spread = 0;
};
// `launch(set)` queues one call on set number `set` of `sets`, which follow each other so that caches hold
// nothing of a set when its turn comes.
Timing TimeLaunches(const Gpu& gpu, int sets, const std::function<void(int set)>& launch);
// The same of calls that capture does not take.
Timing TimePlainly(const Gpu& gpu, const std::function<void()>& call);

// So many sets of `bytes` that they are three times as large as the cache, at least two.
int SetsFor(const Gpu& gpu, size_t bytes);

// A permutation of [0, n), the same each time.
std::vector<int32_t> Shuffled(int32_t n, uint32_t seed);

// --- implementation ---

template <typename T>
Memory Upload(const Gpu& gpu, const std::vector<T>& values) {
  Memory memory(gpu, values.size() * sizeof(T), Fill::kZeros);
  CopyUp(gpu, memory.as(), values.data(), memory.bytes());
  return memory;
}

}  // namespace pagefuse::cuda_bench
