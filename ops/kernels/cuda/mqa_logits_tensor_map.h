// SPDX-License-Identifier: Apache-2.0
// How copies of tiles see a tensor in memory. For .cu files.
#pragma once

#include <array>
#include <cstdint>

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

namespace pagefuse::cuda {

struct TensorBytes {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  void* data = nullptr;                  // aligned to 16
  std::array<uint64_t, 3> dims = {};     // innermost first
  std::array<uint64_t, 2> strides = {};  // bytes of a step in dims 1 and 2: multiples of 16
  std::array<uint32_t, 3> box = {};      // 128 bytes of the innermost dim
  int rank = 2;
};

// False where the driver makes none.
inline bool MakeTensorMap(const TensorBytes& tensor, CUtensorMap& map) {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                               12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) found = nullptr;
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
  }();
  constexpr cuuint32_t kOnes[3] = {1, 1, 1};
  const std::array<cuuint64_t, 3> dims = {tensor.dims[0], tensor.dims[1], tensor.dims[2]};
  const std::array<cuuint64_t, 2> strides = {tensor.strides[0], tensor.strides[1]};
  return encode != nullptr &&
         encode(&map, tensor.type, static_cast<cuuint32_t>(tensor.rank), tensor.data, dims.data(),
                strides.data(), tensor.box.data(), kOnes, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace pagefuse::cuda
