// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/norm_rows.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/row_team.h"
#include "pagefuse/ops/kernels/cuda/row_vectors.h"
#include "pagefuse/ops/kernels/cuda/rows.h"

namespace pagefuse::cuda {
namespace {

// Pieces of a longer row, and of the scale, that a lane keeps.
constexpr int kKeptOfLong = 4, kKeptScalesOfLong = 2;

template <int kVector>
__device__ void AddTo(Vector<float, kVector>& sum, const Vector<float, kVector>& more) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) sum.at[i] += more.at[i];
}

// A row in pieces of kVector elements, of which each lane has every blockDim.x-th.
template <typename T, int kVector, bool kIsLong>
struct NormRow {
  static constexpr int kHeld = kIsLong ? kKeptOfLong : kKept;
  static constexpr int kHeldScales = kIsLong ? kKeptScalesOfLong : kKept;
  using Floats = Vector<float, kVector>;
  const NormParams& p;
  int64_t row, pieces;
  Floats kept[kHeld], scales[kHeldScales];

  // What is normalised.
  __device__ Floats Read(int64_t piece) const {
    Floats sum = LoadFloats<T, kVector>(p.x, row * pieces + piece);
    if (p.skip != nullptr) {
      AddTo(sum, LoadFloats<T, kVector>(p.skip, row % p.skip_rows * pieces + piece));
    }
    if (p.bias != nullptr) AddTo(sum, LoadFloats<T, kVector>(p.bias, piece));
    return sum;
  }

  // f(k, piece) for those of this lane's pieces that are kept.
  template <typename F>
  __device__ void ForEachKept(const F& f) const {
    int64_t piece = threadIdx.x;
#pragma unroll
    for (int k = 0; k < kHeld; ++k, piece += blockDim.x) {
      if (piece < pieces) f(k, piece);
    }
  }
  // g(piece) for those behind.
  template <typename G>
  __device__ void ForEachBehind(const G& g) const {
    if constexpr (kIsLong) {
#pragma unroll 1
      for (int64_t piece = threadIdx.x + int64_t{kHeld} * blockDim.x; piece < pieces;
           piece += blockDim.x) {
        g(piece);
      }
    }
  }
  // f(piece, its floats) for each of this lane's.
  template <typename F>
  __device__ void ForEach(const F& f) const {
    ForEachKept([&](int k, int64_t piece) { f(piece, kept[k]); });
    ForEachBehind([&](int64_t piece) { f(piece, Read(piece)); });
  }

  __device__ void LoadScales() {
    ForEachKept([&](int k, int64_t piece) {
      if (k < kHeldScales) scales[k] = Scale(piece);
    });
  }

  __device__ void Keep() {
    ForEachKept([&](int k, int64_t piece) { kept[k] = Read(piece); });
    if (p.sum == nullptr) return;
    ForEach(
        [&](int64_t at, const Floats& x) { StoreFloats<T, kVector>(x, p.sum, row * pieces + at); });
  }

  __device__ Floats Scale(int64_t piece) const {
    if (!p.one_scale) return LoadFloats<T, kVector>(p.scale, piece);
    const float one = ToFloat(*static_cast<const T*>(p.scale));
    Floats scale;
#pragma unroll
    for (int i = 0; i < kVector; ++i) scale.at[i] = one;
    return scale;
  }

  // What elements are taken from before their mean is: differences of numbers that lie close together are
  // exact, where a mean that is rounded is not.
  __device__ float Pivot() const { return p.centred && pieces > 0 ? Read(0).at[0] : 0.0f; }

  // The lane's share of the sum of (x - pivot - mean)^power, power 1 or 2.
  __device__ float Moment(float pivot, float mean, bool squared) const {
    float sum = 0;
    ForEach([&](int64_t, const Floats& x) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float d = x.at[i] - pivot - mean;
        sum += squared ? d * d : d;
      }
    });
    return sum;
  }

  __device__ void Write(float pivot, float mean, float inverse) const {
    const auto write = [&](int64_t piece, const Floats& x, const Floats& scale) {
      Floats y;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        y.at[i] = (x.at[i] - pivot - mean) * inverse * scale.at[i];
      }
      if (p.shift != nullptr) AddTo(y, LoadFloats<T, kVector>(p.shift, piece));
      StoreFloats<T, kVector>(y, p.y, row * pieces + piece);
    };
    ForEachKept([&](int k, int64_t piece) {
      write(piece, kept[k], k < kHeldScales ? scales[k] : Scale(piece));
    });
    ForEachBehind([&](int64_t piece) { write(piece, Read(piece), Scale(piece)); });
  }
};

template <typename T, int kVector, bool kIsLong>
__global__ void __launch_bounds__(kIsLong ? kMostLanes : kKeptLanes, 1)
    NormKernel(const __grid_constant__ NormParams p, float over_n) {
  ptx::LetNextKernelBegin();
  if (!p.constant_weights) ptx::WaitForKernelBefore();
  // A team behind the last row has no pieces.
  const bool has_row = TeamRow() < p.rows;
  NormRow<T, kVector, kIsLong> row{p, TeamRow(), has_row ? p.n / kVector : 0, {}, {}};
  row.LoadScales();
  if (p.constant_weights) ptx::WaitForKernelBefore();
  row.Keep();
  const float pivot = row.Pivot();
  const float mean = p.centred ? SumOverWarps(row.Moment(pivot, 0.0f, false), 0) * over_n : 0.0f;
  const float square = SumOverWarps(row.Moment(pivot, mean, true), 1) * over_n;
  const float inverse = rsqrtf(square + p.epsilon);
  if (!has_row) return;
  row.Write(pivot, mean, inverse);
  if (threadIdx.x != 0) return;
  if (p.mean != nullptr) p.mean[row.row] = pivot + mean;
  if (p.inverse != nullptr) p.inverse[row.row] = inverse;
}

}  // namespace

Error LaunchNorm(const NormParams& params, Stream stream) {
  if (params.rows == 0 || params.n == 0) return 0;
  if (params.scale_type != params.type) return kTooLarge;
  const auto kernel_of = [&]<typename T, int kVector, bool kIsLong>() {
    return NormKernel<T, kVector, kIsLong>;
  };
  const void* scales = params.one_scale ? nullptr : params.scale;
  return LaunchNormRows(
      params, {params.x, params.skip, params.bias, scales, params.shift, params.y, params.sum},
      kernel_of, stream);
}

}  // namespace pagefuse::cuda
