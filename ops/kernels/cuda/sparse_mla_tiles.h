// SPDX-License-Identifier: Apache-2.0
// SparseMlaAttention by tensor cores, for rows of the published sizes: bfloat16 rows of 576 or 512 elements, fp8_ds_mla and fp8_ue8m0, all with
// values of 512. A CTA takes a token's rows for up to 64 heads, each row once.
#pragma once

#include "pagefuse/ops/kernels/cuda/sparse_mla.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_join.h"

namespace pagefuse::cuda {

enum class LatentTilesFormat { kNone, kBfloat16Of576, kBfloat16Of512, kDsMla, kUe8m0 };

// How a call is cut, by what no length changes.
struct LatentTiles {
  LatentTilesFormat format = LatentTilesFormat::kNone;  // the plain kernel's
  bool exact = false;   // queries have more bits than bfloat16: they and weights are fed in parts
  int head_tiles = 1;   // of 16 heads, of a CTA: 1, 2 or 4
  int head_groups = 1;  // CTAs that share a token's heads
  int splits = 1;       // CTAs that share its rows
  int cluster = 1;      // such CTAs that join what they found

  constexpr bool fits() const { return format != LatentTilesFormat::kNone; }
  constexpr int partials() const { return splits / cluster; }
};

inline constexpr int kLatentTileHeads = 16;
inline constexpr int kLatentTileRows = 32;
inline constexpr int kLatentValues = 512;
inline constexpr int kMostLatentCluster = 8;
// Shared memory of a CTA of 64 heads, which not every device has.
inline constexpr int kLatentManyHeadsBytes = 227 << 10;

// CTAs of a multiprocessor: what registers and shared memory are for.
constexpr int LatentResidents(bool exact, int head_tiles) {
  return exact || head_tiles > 1 ? 1 : 2;
}

// On the current device.
LatentTiles LatentTilesOf(const SparseMla& call);

Error LaunchLatentTiles(const SparseMla& call, const SinkResults& results, const LatentTiles& tiles,
                        Stream stream);
// Its parts, one for each format.
Error LaunchLatentBf16(const SparseMla& call, const SinkResults& results, const LatentTiles& tiles,
                       Stream stream);
Error LaunchLatentDsMla(const SparseMla& call, const SinkResults& results, const LatentTiles& tiles,
                        Stream stream);
Error LaunchLatentUe8m0(const SparseMla& call, const SinkResults& results, const LatentTiles& tiles,
                        Stream stream);

}  // namespace pagefuse::cuda
