// SPDX-License-Identifier: Apache-2.0
// Pages of a cache as tensor copies see them. For .cu files.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include "pagefuse/ops/kernels/cuda/fragments.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/formats/cache_rows.h"

namespace pagefuse::cuda {

// [block, span, head, token, 128 bytes] with boxes of all but blocks and of `layout.heads` heads. False where the driver makes none.
inline bool DescribePages(const CacheRows& rows, const PageLayout& layout, int64_t heads,
                          CUtensorMap& map) {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                               12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) found = nullptr;
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
  }();
  if (encode == nullptr) return false;
  const auto spans = static_cast<cuuint32_t>(layout.spans());
  const cuuint64_t dims[5] = {kSpanBytes, kPageTokens, static_cast<cuuint64_t>(heads), spans,
                              static_cast<cuuint64_t>(rows.num_blocks)};
  const cuuint64_t strides[4] = {static_cast<cuuint64_t>(rows.data_strides.row),
                                 static_cast<cuuint64_t>(rows.data_strides.head), kSpanBytes,
                                 static_cast<cuuint64_t>(rows.data_strides.block)};
  const cuuint32_t box[5] = {kSpanBytes, kPageTokens, static_cast<cuuint32_t>(layout.heads), spans,
                             1};
  const cuuint32_t ones[5] = {1, 1, 1, 1, 1};
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 5, rows.data, dims, strides, box, ones,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace pagefuse::cuda
