// SPDX-License-Identifier: Apache-2.0
// What kernels of products share: weights as floats, and what is done with a sum. Device code alone.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/products.h"

namespace pagefuse::cuda {

// --- gates ---

__device__ inline float Activated(GateFunction function, float x) {
  switch (function) {
    case GateFunction::kGelu:
      return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
    case GateFunction::kGeluTanh: {
      constexpr float kSqrt2OverPi = 0.79788456080286535588f;
      return 0.5f * x * (1.0f + tanhf(kSqrt2OverPi * (x + 0.044715f * x * x * x)));
    }
    default:
      return x / (1.0f + expf(-x));
  }
}

// What becomes of sums: a plain struct, as kernels are given it.
struct Epilogue {
  float alpha = 1.0f, beta = 1.0f;
  const void* bias = nullptr;
  int64_t bias_row_step = 0, bias_column_step = 0;
  GateFunction gate = GateFunction::kSilu;
  float limit = 0;
  void* y = nullptr;
  int64_t n = 0;
  OutputPart parts[kMostOutputParts];
  int num_parts = 0;

  static Epilogue Of(const ProductParams& p) {
    Epilogue epilogue{p.alpha, p.beta, p.bias, p.bias_row_step, p.bias_column_step, p.gate, p.limit,
                      p.y,     p.n,    {},     p.num_parts};
    for (int i = 0; i < p.num_parts; ++i) epilogue.parts[i] = p.parts[i];
    return epilogue;
  }

  // The element of the part that has the column; null where nobody reads it. A loop: unrolled, it would take the
  // registers of sums.
  template <typename T>
  __device__ T* InParts(int64_t row, int64_t column) const {
    int part = 0;
#pragma unroll 1
    for (; column >= parts[part].columns; ++part) column -= parts[part].columns;
    T* to = static_cast<T*>(parts[part].y);
    return to == nullptr ? nullptr : to + row * parts[part].columns + column;
  }

  // `behind`: elements of y in front of the product, one of a batch.
  template <typename T>
  __device__ void Write(int64_t row, int64_t column, float sum, int64_t behind = 0) const {
    float value = alpha * sum;
    if (bias != nullptr) {
      const int64_t at = row * bias_row_step + column * bias_column_step;
      value += beta * ToFloat(static_cast<const T*>(bias)[at]);
    }
    T* to =
        num_parts == 0 ? static_cast<T*>(y) + behind + row * n + column : InParts<T>(row, column);
    if (to != nullptr) *to = FromFloat<T>(value);
  }
  // Both are cut off at the limit. NaN stays.
  template <typename T>
  __device__ void WriteGated(int64_t row, int64_t column, float x, float up,
                             int64_t behind = 0) const {
    x = x > limit ? limit : x;
    up = up > limit ? limit : up < -limit ? -limit : up;
    static_cast<T*>(y)[behind + row * n + column] = FromFloat<T>(Activated(gate, x) * up);
  }
};

// --- weights ---

// A weight as kernels are given it, with what follows from its sizes.
struct WeightView {
  const void* data = nullptr;
  int64_t k_step = 0, n_step = 0;  // of numbers, in elements
  int bits = 0;
  int block_shift = 0;  // log2 of the block
  int64_t row_bytes = 0, blocks = 0, zero_row_bytes = 0;
  const void* scales = nullptr;
  const uint8_t* zero_codes = nullptr;
  const void* zeros = nullptr;

  static WeightView Of(const ProductWeight& w, int64_t n, int64_t k) {
    WeightView view{.data = w.data, .k_step = w.rows ? 1 : n, .n_step = w.rows ? k : 1};
    if (!w.is_codes()) return view;
    while ((int64_t{1} << view.block_shift) < w.block) ++view.block_shift;
    view.bits = w.bits;
    view.blocks = (k + w.block - 1) / w.block;
    view.row_bytes = view.blocks * (w.block * w.bits / 8);
    view.zero_row_bytes = (view.blocks * w.bits + 7) / 8;
    view.scales = w.scales;
    view.zero_codes = w.zero_codes;
    view.zeros = w.zeros;
    return view;
  }
};

// Element (k, n) of a weight of numbers, `behind` elements behind the first matrix.
template <typename W>
struct Numbers {
  __device__ static float At(const WeightView& w, int64_t k, int64_t n, int64_t behind = 0) {
    return ToFloat(static_cast<const W*>(w.data)[behind + k * w.k_step + n * w.n_step]);
  }
};

__device__ inline int PackedCode(const uint8_t* row, int bits, int64_t i) {
  const int64_t bit = i * bits;
  return (row[bit / 8] >> (bit % 8)) & ((1 << bits) - 1);
}

template <typename T>
__device__ float ZeroPoint(const WeightView& w, int64_t block, int64_t n) {
  if (w.zeros != nullptr) return ToFloat(static_cast<const T*>(w.zeros)[n * w.blocks + block]);
  if (w.zero_codes == nullptr) return static_cast<float>(1 << (w.bits - 1));
  return static_cast<float>(PackedCode(w.zero_codes + n * w.zero_row_bytes, w.bits, block));
}

// The same of codes, of which there is one matrix, with scales of type T.
template <typename T>
struct Codes {
  __device__ static float At(const WeightView& w, int64_t k, int64_t n, int64_t = 0) {
    const int64_t block = k >> w.block_shift;
    const auto* row = static_cast<const uint8_t*>(w.data) + n * w.row_bytes;
    const float scale = ToFloat(static_cast<const T*>(w.scales)[n * w.blocks + block]);
    return (static_cast<float>(PackedCode(row, w.bits, k)) - ZeroPoint<T>(w, block, n)) * scale;
  }
};

}  // namespace pagefuse::cuda
