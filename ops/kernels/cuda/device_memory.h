// SPDX-License-Identifier: Apache-2.0
// The memory of one GPU, given and taken back in the order of a stream: what is freed may still be read by what the stream was asked
// before.
#pragma once

#include <cstddef>
#include <optional>

#include <cuda_runtime_api.h>

#include "absl/status/status.h"

#include "pagefuse/base/allocator.h"

namespace pagefuse::cuda {

// Zero-filled memory, aligned to 256 bytes, with room behind it up to the next 256. Any thread may ask, and becomes one whose current
// GPU this is.
class DeviceMemory final : public Allocator {
 public:
  // Both outlive it. Init must have given OK.
  DeviceMemory(int ordinal, cudaStream_t stream) : ordinal_(ordinal), stream_(stream) {}
  ~DeviceMemory() override;
  absl::Status Init();

  bool is_host() const override { return false; }
  std::optional<MemoryRoom> Room() const override;
  std::byte* Allocate(size_t bytes) override;
  void Free(std::byte* data, size_t bytes) override;

 private:
  cudaError_t Take(void** data, size_t bytes);

  const int ordinal_;
  const cudaStream_t stream_;
  // Null on a GPU without pools: then each block is asked of the driver.
  cudaMemPool_t pool_ = nullptr;
};

}  // namespace pagefuse::cuda
