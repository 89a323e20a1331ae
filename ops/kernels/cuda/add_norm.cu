// SPDX-License-Identifier: Apache-2.0
// AddNorm: a team of threads a row, which stays in registers between the two norms. The CPU multiplies and adds apart, so
// this does.
#include "pagefuse/ops/kernels/cuda/add_norm.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/row_team.h"
#include "pagefuse/ops/kernels/cuda/row_vectors.h"

namespace pagefuse::cuda {
namespace {

// Pieces of a row that a thread keeps in registers, as many as it has of a row of up to 8192 elements; those behind are
// read again.
constexpr int kKept = 2;

// A row in pieces of kVector elements, of which each lane has every blockDim.x-th.
template <typename T, int kVector>
struct AddNormRow {
  using Floats = Vector<float, kVector>;
  const AddNormParams& p;
  int64_t row, pieces;
  Floats x_weight[kKept], weight[kKept], residual[kKept];
  Floats kept[kKept];  // of x, then of the sum

  __device__ int64_t Piece(int k) const { return threadIdx.x + int64_t{k} * blockDim.x; }
  __device__ Floats Load(const void* rows, int64_t piece) const {
    return LoadFloats<T, kVector>(rows, row * pieces + piece);
  }
  __device__ void Store(const Floats& floats, void* rows, int64_t piece) const {
    StoreFloats<T, kVector>(floats, rows, row * pieces + piece);
  }

  // f(k, piece) for each of this lane's, where k is that of kept ones; g(piece) for those behind.
  template <typename F, typename G>
  __device__ void ForEach(const F& f, const G& g) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      if (Piece(k) < pieces) f(k, Piece(k));
    }
#pragma unroll 1
    for (int64_t piece = Piece(kKept); piece < pieces; piece += blockDim.x) g(piece);
  }

  __device__ void LoadWeights() {
    ForEach(
        [&](int k, int64_t piece) {
          x_weight[k] = LoadFloats<T, kVector>(p.x_weight, piece);
          weight[k] = LoadFloats<T, kVector>(p.weight, piece);
        },
        [](int64_t) {});
  }

  // All on their way at once.
  __device__ void LoadRows() {
    ForEach(
        [&](int k, int64_t piece) {
          kept[k] = Load(p.x, piece);
          residual[k] = Load(p.residual, piece);
        },
        [](int64_t) {});
  }

  // 1 / sqrt(the mean of the squares + epsilon) of what is kept, and of `rows` behind.
  __device__ float Inverse(const void* rows, float epsilon, int turn) {
    float squares = 0;
    const auto add = [&](const Floats& floats) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) squares += floats.at[i] * floats.at[i];
    };
    ForEach([&](int k, int64_t) { add(kept[k]); }, [&](int64_t piece) { add(Load(rows, piece)); });
    return 1.0f / sqrtf(SumOverTeam(squares, turn) / static_cast<float>(p.n) + epsilon);
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
    const auto add = [&](const Floats& x, const Floats& scale, const Floats& to, int64_t piece) {
      const Floats branch = Scaled(x, inverse, scale);
      Floats sum;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        sum.at[i] = RoundedTo<T>(__fadd_rn(to.at[i], RoundedTo<T>(branch.at[i])));
      }
      Store(sum, p.sum, piece);
      return sum;
    };
    ForEach([&](int k, int64_t piece) { kept[k] = add(kept[k], x_weight[k], residual[k], piece); },
            [&](int64_t piece) {
              const Floats scale = LoadFloats<T, kVector>(p.x_weight, piece);
              add(Load(p.x, piece), scale, Load(p.residual, piece), piece);
            });
  }

  __device__ void Write(float inverse) {
    ForEach([&](int k, int64_t piece) { Store(Scaled(kept[k], inverse, weight[k]), p.y, piece); },
            [&](int64_t piece) {
              const Floats scale = LoadFloats<T, kVector>(p.weight, piece);
              Store(Scaled(Load(p.sum, piece), inverse, scale), p.y, piece);
            });
  }
};

template <typename T, int kVector>
__global__ void __launch_bounds__(kMostLanes, 1)
    AddNormKernel(const __grid_constant__ AddNormParams p) {
  ptx::LetNextKernelBegin();
  if (!p.constant_weights) ptx::WaitForKernelBefore();
  // A team behind the last row has no pieces.
  const int64_t pieces = TeamRow() < p.rows ? p.n / kVector : 0;
  AddNormRow<T, kVector> row{p, TeamRow(), pieces, {}, {}, {}, {}};
  row.LoadWeights();
  if (p.constant_weights) ptx::WaitForKernelBefore();
  row.LoadRows();
  row.Add(row.Inverse(p.x, p.x_epsilon, 0));
  row.Write(row.Inverse(p.sum, p.epsilon, 1));
}

bool SuitsVectors(const AddNormParams& p) {
  constexpr int64_t kBytes = 16;  // of the widest piece
  if (p.n % 4 != 0) return false;
  for (const void* data : {p.x, p.residual, p.x_weight, p.weight, static_cast<const void*>(p.sum),
                           static_cast<const void*>(p.y)}) {
    if (!IsAligned(data, kBytes)) return false;
  }
  return true;
}

}  // namespace

Error LaunchAddNorm(const AddNormParams& params, Stream stream) {
  if (params.rows == 0 || params.n == 0) return 0;
  return ForFloatType(params.type, [&]<typename T>() -> Error {
    const bool vectors = SuitsVectors(params);
    const int lanes = LanesFor(vectors ? params.n / 4 : params.n);
    const LaunchShape shape = TeamShape(params.rows, lanes);
    return vectors ? Launch(AddNormKernel<T, 4>, shape, stream, params)
                   : Launch(AddNormKernel<T, 1>, shape, stream, params);
  });
}

}  // namespace pagefuse::cuda
