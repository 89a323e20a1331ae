// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/device_memory.h"

#include <cstdint>
#include <limits>

#include "pagefuse/ops/kernels/cuda/runtime_status.h"

namespace pagefuse::cuda {
namespace {

constexpr size_t kAlignment = 256;

// What a failed call leaves behind would else be taken for the error of the next launch. Errors that the GPU does not recover from
// stay, and every later call gives them.
void ForgetError() { (void)cudaGetLastError(); }

}  // namespace

absl::Status DeviceMemory::Init() {
  int has_pools = 0;
  PF_CUDA_CALL(cudaDeviceGetAttribute, &has_pools, cudaDevAttrMemoryPoolsSupported, ordinal_);
  if (has_pools == 0) return absl::OkStatus();
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = ordinal_;
  PF_CUDA_CALL(cudaMemPoolCreate, &pool_, &properties);
  // What is freed stays in the pool: the driver is asked again for more alone.
  uint64_t kept = std::numeric_limits<uint64_t>::max();
  PF_CUDA_CALL(cudaMemPoolSetAttribute, pool_, cudaMemPoolAttrReleaseThreshold, &kept);
  return absl::OkStatus();
}

DeviceMemory::~DeviceMemory() {
  if (pool_ != nullptr) (void)cudaMemPoolDestroy(pool_);
}

std::optional<MemoryRoom> DeviceMemory::Room() const {
  MemoryRoom room;
  if (cudaSetDevice(ordinal_) == cudaSuccess &&
      cudaMemGetInfo(&room.free, &room.total) == cudaSuccess) {
    return room;
  }
  ForgetError();
  return std::nullopt;
}

cudaError_t DeviceMemory::Take(void** data, size_t bytes) {
  if (pool_ == nullptr) return cudaMalloc(data, bytes);
  const cudaError_t error = cudaMallocFromPoolAsync(data, bytes, pool_, stream_);
  if (error != cudaErrorMemoryAllocation) return error;
  // What the pool keeps may lie in pieces that are too small.
  ForgetError();
  if (const cudaError_t failed = cudaStreamSynchronize(stream_); failed != cudaSuccess) {
    return failed;
  }
  (void)cudaMemPoolTrimTo(pool_, 0);
  return cudaMallocFromPoolAsync(data, bytes, pool_, stream_);
}

std::byte* DeviceMemory::Allocate(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() - kAlignment) return nullptr;
  const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
  void* data = nullptr;
  if (cudaSetDevice(ordinal_) != cudaSuccess || Take(&data, rounded) != cudaSuccess) {
    ForgetError();
    return nullptr;
  }
  if (cudaMemsetAsync(data, 0, rounded, stream_) != cudaSuccess) {
    ForgetError();
    Free(static_cast<std::byte*>(data), bytes);
    return nullptr;
  }
  return static_cast<std::byte*>(data);
}

void DeviceMemory::Free(std::byte* data, size_t /*bytes*/) {
  if (data == nullptr) return;
  (void)cudaSetDevice(ordinal_);
  // cudaFree waits for the GPU itself.
  const cudaError_t error = pool_ == nullptr ? cudaFree(data) : cudaFreeAsync(data, stream_);
  if (error != cudaSuccess) ForgetError();
}

}  // namespace pagefuse::cuda
