// SPDX-License-Identifier: Apache-2.0
// Pieces of rows as floats, whatever type they have in memory. Device code alone.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/element.h"

namespace pagefuse::cuda {

template <typename T, int kVector>
__device__ Vector<float, kVector> LoadFloats(const void* data, int64_t piece) {
  const auto elements = static_cast<const Vector<T, kVector>*>(data)[piece];
  Vector<float, kVector> floats;
#pragma unroll
  for (int i = 0; i < kVector; ++i) floats.at[i] = ToFloat(elements.at[i]);
  return floats;
}

template <typename T, int kVector>
__device__ void StoreFloats(const Vector<float, kVector>& floats, void* data, int64_t piece) {
  Vector<T, kVector> elements;
#pragma unroll
  for (int i = 0; i < kVector; ++i) elements.at[i] = FromFloat<T>(floats.at[i]);
  static_cast<Vector<T, kVector>*>(data)[piece] = elements;
}

// The number that x is in memory of the type.
template <typename T>
__device__ float RoundedTo(float x) {
  return ToFloat(FromFloat<T>(x));
}

}  // namespace pagefuse::cuda
