// SPDX-License-Identifier: Apache-2.0
// Launches of norms of rows: a team of threads a row, whose lanes have pieces of it in registers. For sources of device code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/row_team.h"

namespace pagefuse::cuda {

// Rows of up to kMostKept pieces lie in the registers of teams whose lanes have up to kKept of them each: few warps have
// little to tell one another. Of longer ones lanes keep some, and read again those behind.
inline constexpr int kKept = 3, kKeptLanes = 512, kMostKept = kKept * kKeptLanes;

// kernel_of.operator()<T, kVector, kIsLong>() is the kernel(params, 1 / n) for rows in pieces of kVector elements of type T:
// of 4 where `data`, each of whole rows, is aligned so.
template <typename Params, typename F>
Error LaunchNormRows(const Params& p, std::initializer_list<const void*> data, const F& kernel_of,
                     Stream stream) {
  constexpr int64_t kBytes = 16;  // of the widest piece
  const auto is_aligned = [](const void* begin) { return IsAligned(begin, kBytes); };
  const bool suits_vectors = p.n % 4 == 0 && std::all_of(data.begin(), data.end(), is_aligned);
  return ForFloatType(p.type, [&]<typename T>() -> Error {
    const auto launch = [&]<int kVector>() -> Error {
      const int64_t pieces = p.n / kVector;
      const bool is_long = pieces > kMostKept;
      const int lanes = is_long ? LanesFor(pieces) : LanesThatKeep(pieces, kKept);
      const auto kernel = is_long ? kernel_of.template operator()<T, kVector, true>()
                                  : kernel_of.template operator()<T, kVector, false>();
      return Launch(kernel, TeamShape(p.rows, lanes), stream, p, 1.0f / static_cast<float>(p.n));
    };
    return suits_vectors ? launch.template operator()<4>() : launch.template operator()<1>();
  });
}

}  // namespace pagefuse::cuda
