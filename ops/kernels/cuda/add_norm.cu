// SPDX-License-Identifier: Apache-2.0
// AddNorm: a team of threads a row, which stays in registers between the two norms. The CPU multiplies and adds apart, so
// this does.
#include <type_traits>

#include "pagefuse/ops/kernels/cuda/add_norm.h"
#include "pagefuse/ops/kernels/cuda/norm_rows.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/row_team.h"
#include "pagefuse/ops/kernels/cuda/row_vectors.h"

namespace pagefuse::cuda {
namespace {

// Pieces of a longer row that a lane keeps.
constexpr int kKeptOfLong = 2;

// A row in pieces of kVector elements, of which each lane has every blockDim.x-th.
template <typename T, int kVector, bool kIsLong>
struct AddNormRow {
  static constexpr int kHeld = kIsLong ? kKeptOfLong : kKept;
  using Floats = Vector<float, kVector>;
  using Count = std::conditional_t<kIsLong, int64_t, int>;
  const AddNormParams& p;
  int64_t begin;  // of the row, in pieces
  Count pieces;
  float over_n;
  Floats x_weight[kHeld], weight[kHeld], residual[kHeld];
  Floats kept[kHeld];  // of x, then of the sum

  __device__ static Count Piece(int k) { return static_cast<Count>(threadIdx.x + k * blockDim.x); }
  __device__ Floats Load(const void* rows, Count piece) const {
    return LoadFloats<T, kVector>(rows, begin + piece);
  }
  __device__ void Store(const Floats& floats, void* rows, Count piece) const {
    StoreFloats<T, kVector>(floats, rows, begin + piece);
  }

  // f(k, piece) for each of this lane's, where k is that of kept ones; g(piece) for those behind.
  template <typename F, typename G>
  __device__ void ForEach(const F& f, const G& g) {
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (Piece(k) < pieces) f(k, Piece(k));
    }
    if constexpr (kIsLong) {
#pragma unroll 1
      for (Count piece = Piece(kHeld); piece < pieces; piece += blockDim.x) g(piece);
    }
  }

  __device__ void LoadWeights() {
    ForEach(
        [&](int k, Count piece) {
          x_weight[k] = LoadFloats<T, kVector>(p.x_weight, piece);
          weight[k] = LoadFloats<T, kVector>(p.weight, piece);
        },
        [](Count) {});
  }

  // All on their way at once.
  __device__ void LoadRows() {
    ForEach(
        [&](int k, Count piece) {
          kept[k] = Load(p.x, piece);
          residual[k] = Load(p.residual, piece);
        },
        [](Count) {});
  }

  // 1 / sqrt(the mean of the squares + epsilon) of what is kept, and of `rows` behind.
  __device__ float Inverse(const void* rows, float epsilon, int turn) {
    Floats squares = {};
    const auto add = [&](const Floats& floats) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) squares.at[i] += floats.at[i] * floats.at[i];
    };
    ForEach([&](int k, Count) { add(kept[k]); }, [&](Count piece) { add(Load(rows, piece)); });
    float sum = squares.at[0];
#pragma unroll
    for (int i = 1; i < kVector; ++i) sum += squares.at[i];
    return rsqrtf(SumOverWarps(sum, turn) * over_n + epsilon);
  }

  __device__ static Floats Scaled(const Floats& x, float inverse, const Floats& scale) {
    Floats scaled;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      scaled.at[i] = __fmul_rn(__fmul_rn(x.at[i], inverse), scale.at[i]);
    }
    return scaled;
  }

  // The sum in place of x, and in memory.
  __device__ void Add(float inverse) {
    const auto add = [&](const Floats& x, const Floats& scale, const Floats& to, Count piece) {
      const Floats branch = Scaled(x, inverse, scale);
      Floats sum;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        sum.at[i] = RoundedTo<T>(__fadd_rn(to.at[i], RoundedTo<T>(branch.at[i])));
      }
      Store(sum, p.sum, piece);
      return sum;
    };
    ForEach([&](int k, Count piece) { kept[k] = add(kept[k], x_weight[k], residual[k], piece); },
            [&](Count piece) {
              const Floats scale = LoadFloats<T, kVector>(p.x_weight, piece);
              add(Load(p.x, piece), scale, Load(p.residual, piece), piece);
            });
  }

  __device__ void Write(float inverse) {
    ForEach([&](int k, Count piece) { Store(Scaled(kept[k], inverse, weight[k]), p.y, piece); },
            [&](Count piece) {
              const Floats scale = LoadFloats<T, kVector>(p.weight, piece);
              Store(Scaled(Load(p.sum, piece), inverse, scale), p.y, piece);
            });
  }
};

template <typename T, int kVector, bool kIsLong>
__global__ void __launch_bounds__(kIsLong ? kMostLanes : kKeptLanes, 1)
    AddNormKernel(const __grid_constant__ AddNormParams p, float over_n) {
  using Row = AddNormRow<T, kVector, kIsLong>;
  ptx::LetNextKernelBegin();
  if (!p.constant_weights) ptx::WaitForKernelBefore();
  // A team behind the last row has no pieces.
  const auto pieces = static_cast<typename Row::Count>(p.n / kVector);
  Row row{p, TeamRow() * pieces, TeamRow() < p.rows ? pieces : 0, over_n, {}, {}, {}, {}};
  row.LoadWeights();
  if (p.constant_weights) ptx::WaitForKernelBefore();
  row.LoadRows();
  row.Add(row.Inverse(p.x, p.x_epsilon, 0));
  row.Write(row.Inverse(p.sum, p.epsilon, 1));
}

}  // namespace

Error LaunchAddNorm(const AddNormParams& params, Stream stream) {
  if (params.rows == 0 || params.n == 0) return 0;
  const auto kernel_of = [&]<typename T, int kVector, bool kIsLong>() {
    return AddNormKernel<T, kVector, kIsLong>;
  };
  return LaunchNormRows(
      params, {params.x, params.residual, params.x_weight, params.weight, params.sum, params.y},
      kernel_of, stream);
}

}  // namespace pagefuse::cuda
