// SPDX-License-Identifier: Apache-2.0
// Teams of threads that share a row: blocks of (lanes, teams) threads, where lanes are 1, or 32 to 1024, a power of
// two where nothing else is said. Device code, and the choice of a team on the host.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"

namespace pagefuse::cuda {

inline constexpr int kTeamThreads = 256, kMostLanes = 1024;

// Threads for rows of n pieces: each has about two. The number of rows does not count, so that what becomes of
// a row does not depend on it.
inline int LanesFor(int64_t n) {
  int lanes = 32;
  while (lanes < kMostLanes && lanes * 2 < n) lanes *= 2;
  return lanes;
}

// Threads for rows of n pieces of which each has at most `kept`: whole warps, not only a power of two of them.
inline int LanesThatKeep(int64_t n, int kept) {
  return static_cast<int>(CeilDiv(n, 32 * kept)) * 32;
}

inline LaunchShape TeamShape(int64_t rows, int lanes) {
  const int teams = std::max(kTeamThreads / lanes, 1);
  return {.grid = static_cast<unsigned>(CeilDiv(rows, teams)),
          .block = dim3(static_cast<unsigned>(lanes), static_cast<unsigned>(teams))};
}

#ifdef __CUDACC__

// The row of this thread's team. All threads of a block stay, with or without a row.
__device__ inline int64_t TeamRow() { return int64_t{blockIdx.x} * blockDim.y + threadIdx.y; }

// f over the team's values, in the same order in every run; in all lanes the same where f(a, b) is f(b, a). All threads of the block
// call it. Calls with the same f that follow one another take turns 0 and 1, so that none writes what the one before still reads.
template <typename T, typename F>
__device__ T OverTeam(T value, const F& f, int turn = 0) {
  constexpr int kWarp = 32;
  if (blockDim.x < kWarp) return value;
  const auto over_lanes = [&](unsigned lanes) {
    for (unsigned distance = lanes / 2; distance > 0; distance /= 2) {
      value = f(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
    }
  };
  over_lanes(kWarp);
  if (blockDim.x == kWarp) return value;
  __shared__ T parts[2][kMostLanes / kWarp];
  const unsigned warps = blockDim.x / kWarp;  // a power of two
  T* own = parts[turn] + threadIdx.y * warps;
  if (threadIdx.x % kWarp == 0) own[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = own[threadIdx.x & (warps - 1)];
  over_lanes(warps);
  return value;
}

template <typename T>
__device__ T SumOverTeam(T value, int turn = 0) {
  return OverTeam(
      value, [](T a, T b) { return a + b; }, turn);
}

// SumOverTeam of a team of any number of whole warps, at most four of which meet by one load.
__device__ inline float SumOverWarps(float value, int turn) {
  constexpr int kWarp = 32, kFew = 4;
  const auto over_lanes = [&] {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
    }
  };
  over_lanes();
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (warps == 1) return value;
  __shared__ float4 parts[2][kMostLanes / kWarp / kFew];
  const int fours = (warps + kFew - 1) / kFew;
  float4* own = parts[turn] + static_cast<int>(threadIdx.y) * fours;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float* sums = reinterpret_cast<float*>(own);
  if (lane == 0) sums[static_cast<int>(threadIdx.x) / kWarp] = value;
  __syncthreads();
  if (warps <= kFew) {
    const float4 all = *own;
    return all.x + all.y + ((warps > 2 ? all.z : 0.0f) + (warps > 3 ? all.w : 0.0f));
  }
  value = lane < warps ? sums[lane] : 0.0f;
  over_lanes();
  return value;
}

#endif  // __CUDACC__

}  // namespace pagefuse::cuda
