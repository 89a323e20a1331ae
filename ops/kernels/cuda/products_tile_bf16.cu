// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/tile_bf16.h"

namespace pagefuse::cuda {
namespace {

constexpr int kThreads = 256, kRounded = 8;  // elements of a thread

__global__ void __launch_bounds__(kThreads)
    RoundKernel(const float* from, Bfloat* to, int64_t pieces) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= pieces) return;
  const auto floats = reinterpret_cast<const Vector<float, kRounded>*>(from)[i];
  Vector<Bfloat, kRounded> rounded;
#pragma unroll
  for (int e = 0; e < kRounded; ++e) rounded.at[e] = FromFloat<Bfloat>(floats.at[e]);
  reinterpret_cast<Vector<Bfloat, kRounded>*>(to)[i] = rounded;
}

// Large tiles where they are enough for all multiprocessors and have more rows than smaller ones. Else as many parts as
// make about two blocks for each of them, which does not depend on the number of rows.
TileBf16Plan PlanOf(const ProductParams& params) {
  constexpr int64_t kEnough = 128, kBlocks = 264, kMostParts = 16, kLeastSteps = 4;
  const int64_t matrices = params.gated() ? 2 : 1, steps = CeilDiv(params.k, kDepth);
  TileBf16Plan plan{.part_steps = static_cast<int>(steps)};
  if (params.type == DataType::kFloat) {
    plan.x_bytes = static_cast<size_t>(CeilDiv(params.m * params.k * 2, 256) * 256);
  }
  if (params.m > 64 && CeilDiv(params.m, 128) * CeilDiv(params.n, 128 / matrices) >= kEnough) {
    plan.rows = 128;
    return plan;
  }
  plan.rows = params.m <= 32 ? 32 : 64;
  const int64_t wanted = kBlocks / CeilDiv(params.n, 64 / matrices);
  const int64_t most = std::min(kMostParts, steps / kLeastSteps);
  const int64_t parts = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(most, 1));
  plan.part_steps = static_cast<int>(CeilDiv(steps, parts));
  plan.parts = static_cast<int>(CeilDiv(steps, plan.part_steps));
  return plan;
}

bool SuitsPieces(const ProductWeight& w) {
  return w.type == DataType::kBfloat16 && w.rows && IsAligned(w.data, 16);
}

}  // namespace

Error LaunchRoundToBf16(const float* from, void* to, int64_t count, Stream stream) {
  const int64_t pieces = count / kRounded;
  return Launch(RoundKernel,
                {.grid = static_cast<unsigned>(CeilDiv(pieces, kThreads)), .block = kThreads},
                stream, from, static_cast<Bfloat*>(to), pieces);
}

bool SuitsTileBf16(const ProductParams& params) {
  constexpr int64_t kMostColumns = 65535 * 32;
  return !params.x_turned && params.batch.empty() && params.k % kRounded == 0 && params.k > 0 &&
         params.n <= kMostColumns && IsAligned(params.x, 32) &&
         (params.type == DataType::kFloat || params.type == DataType::kBfloat16) &&
         SuitsPieces(params.weight) && (!params.gated() || SuitsPieces(params.up));
}

size_t TileBf16ScratchBytes(const ProductParams& params) {
  const TileBf16Plan plan = PlanOf(params);
  if (plan.parts == 1) return plan.x_bytes;
  return plan.x_bytes +
         static_cast<size_t>(plan.parts * (params.gated() ? 2 : 1) * params.m * params.n) *
             sizeof(float);
}

Error LaunchTileBf16(const ProductParams& params, Stream stream) {
  const TileBf16Plan plan = PlanOf(params);
  const void* rounded = params.x;
  if (params.type == DataType::kFloat) {
    const Error error = LaunchRoundToBf16(static_cast<const float*>(params.x), params.scratch,
                                          params.m * params.k, stream);
    if (error != 0) return error;
    rounded = params.scratch;
  }
  if (params.gated()) return LaunchTileBf16Gated(params, plan, rounded, stream);
  const auto* x = static_cast<const Bfloat*>(rounded);
  return params.type == DataType::kFloat ? LaunchBf16TilesOf<float, 1>(params, plan, x, stream)
                                         : LaunchBf16TilesOf<Bfloat, 1>(params, plan, x, stream);
}

}  // namespace pagefuse::cuda
