// SPDX-License-Identifier: Apache-2.0
// Rotary embedding.
#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/rows.h"

namespace pagefuse::cuda {
namespace {

constexpr int kThreads = 128;

// The row of the tables for a token, or -1.
__device__ int64_t TableRow(const RotaryParams& p, int64_t token) {
  int64_t row = token;
  if (p.positions != nullptr) {
    row = p.first_position ? p.positions[0] + token % p.length : p.positions[token];
  }
  return row >= 0 && row < p.table_rows ? row : -1;
}

// Thread i of a head has its pair i; behind the pairs, the element that is copied.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    RotaryKernel(const __grid_constant__ RotaryParams p, int64_t places) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.batches * p.length * p.heads * places) return;
  const int64_t i = index % places, head = index / places % p.heads;
  const int64_t token = index / places / p.heads;
  const int64_t start = token / p.length * p.batch + token % p.length * p.step + head * p.head;
  const T* x = static_cast<const T*>(p.x) + start;
  T* y = static_cast<T*>(p.y) + start;
  if (i >= p.half) {
    const int64_t element = p.half + i;
    const float value = ToFloat(x[element]);
    y[element] = FromFloat<T>(p.scale == 1.0f ? value : value * p.scale);
    return;
  }
  const int64_t row = TableRow(p, token);
  const int64_t first = p.interleaved ? 2 * i : i;
  const int64_t second = p.interleaved ? first + 1 : i + p.half;
  const float a = ToFloat(x[first]), b = ToFloat(x[second]);
  float c = 1.0f, s = 0.0f;
  if (row >= 0) {
    c = ToFloat(static_cast<const T*>(p.cos)[row * p.half + i]);
    s = ToFloat(static_cast<const T*>(p.sin)[row * p.half + i]);
  }
  // The scaled one is rounded before, as the op's definition does.
  T turned[2] = {FromFloat<T>(a * c - b * s), FromFloat<T>(b * c + a * s)};
  if (p.scale != 1.0f) {
    for (T& value : turned) value = FromFloat<T>(ToFloat(value) * p.scale);
  }
  y[first] = turned[0];
  y[second] = turned[1];
}

}  // namespace

Error LaunchRotary(const RotaryParams& params, Stream stream) {
  const int64_t places = params.size - params.half;
  const int64_t count = params.batches * params.length * params.heads * places;
  if (count == 0) return 0;
  if (CeilDiv(count, kThreads) >= int64_t{1} << 31) return kTooLarge;
  const LaunchShape shape{.grid = static_cast<unsigned>(CeilDiv(count, kThreads)),
                          .block = kThreads};
  return ForFloatType(params.type, [&]<typename T>() -> Error {
    return Launch(RotaryKernel<T>, shape, stream, params, places);
  });
}

}  // namespace pagefuse::cuda
