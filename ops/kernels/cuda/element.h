// SPDX-License-Identifier: Apache-2.0
// Elements in memory and as they are computed: narrow floats in float, rounded to nearest even once. Device code
// alone.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "pagefuse/base/data_type.h"

namespace pagefuse::cuda {

using Half = __half;
using Bfloat = __nv_bfloat16;

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(Half x) { return __half2float(x); }
__device__ inline float ToFloat(Bfloat x) { return __bfloat162float(x); }

template <typename T>
__device__ T FromFloat(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else if constexpr (__is_same(T, Half)) {
    return __float2half_rn(x);
  } else {
    return __float2bfloat16_rn(x);
  }
}

// Neighbours that are loaded and stored at once; their address is aligned to their size.
template <typename T, int kCount>
struct alignas(kCount * sizeof(T)) Vector {
  T at[kCount];
};

// f.operator()<T>() for float, float16 or bfloat16; kTooLarge's value, an invalid argument, for another type. Host
// code, in sources of device code.
template <typename F>
int ForFloatType(DataType type, const F& f) {
  switch (type) {
    case DataType::kFloat:
      return f.template operator()<float>();
    case DataType::kFloat16:
      return f.template operator()<Half>();
    case DataType::kBfloat16:
      return f.template operator()<Bfloat>();
    default:
      return 1;  // cudaErrorInvalidValue
  }
}

// Whether every access of `bytes` that begins at a multiple of them behind the address is aligned.
inline bool IsAligned(const void* data, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0;
}

}  // namespace pagefuse::cuda
