// SPDX-License-Identifier: Apache-2.0
// How products of up to 64 rows with bfloat16 weights in rows are cut (small_bf16.h): into clusters of blocks, blocks, warps.
// Device code alone.
#pragma once

#include "pagefuse/ops/kernels/cuda/product_parts.h"

namespace pagefuse::cuda {

inline constexpr int kOwnElements = 8;  // of a piece: 16 bytes along K
inline constexpr int kMostSmallParts = 8;

// Products of a stack of matrices of W, by rows of x that lie one behind the other: each has a matrix, in turn. In grids
// blockIdx.y is the matrix, and blockIdx.z counts the turns.
struct SmallStack {
  int64_t matrices = 1, turns = 1;

  int64_t products() const { return matrices * turns; }
  dim3 Grid(int64_t blocks) const {
    return {static_cast<unsigned>(blocks), static_cast<unsigned>(matrices),
            static_cast<unsigned>(turns)};
  }
  // The block's: fewer than 2^32.
  __device__ static int64_t Product() { return blockIdx.z * gridDim.y + blockIdx.y; }
};
// One matrix without a batch; none where the batch is something else.
SmallStack StackOf(const ProductParams& params);

// Whether what must be read of W takes far longer than to begin a kernel.
inline bool HasLargeWeights(const ProductParams& params) {
  constexpr int64_t kLarge = 32 << 20;  // bytes
  return params.n * params.k * (params.gated() ? 4 : 2) * StackOf(params).products() >= kLarge;
}

// What the kernels of small_bf16.h differ in. In a step a warp takes a run of pieces of each row of W of a group.
struct SmallShape {
  int rows = 1;     // of x, at most
  int columns = 1;  // of a group: rows of W
  int run = 32;     // pieces
  int warps = 16;   // of a block
  int stages = 8;   // steps for which a warp has memory
  // Blocks of a multiprocessor that a plan counts on where W is large: there the next kernel need not find room beside
  // them. Elsewhere it counts on one.
  int residents = 2;
  // Whether warps that share groups with no other write them from where they summed them up.
  bool direct = false;

  constexpr int threads() const { return warps * 32; }
  constexpr int stage_pieces() const { return columns * run; }
  constexpr int warp_pieces() const { return stages * stage_pieces(); }
  constexpr int ring_pieces() const { return warps * warp_pieces(); }
  constexpr int group_sums() const { return rows * columns; }
  // Whether a warp's sums of a group take the place of its stages exactly.
  constexpr bool SumsFillRing() const { return group_sums() * 4 == warp_pieces() * 16; }
};

// How blocks lie over W.
struct SmallPlan {
  int parts = 0;  // of K: blocks of a cluster; 0: no block has the memory
  int clusters = 0;
  int split = 1;         // warps of a block that share a group
  int groups = 0;        // of a cluster, at most
  int round_groups = 0;  // whose sums have room: the same number for all warps
  bool direct = false;   // no sums meet: round_groups are all
  // Sums lie where the stages were: a warp has no more than one group.
  bool in_ring = false;
  int row_pieces = 0, part_pieces = 0;
  int steps = 0;  // of a warp in a group
  int64_t shared_bytes = 0;
  int most_shared = 0;  // that a block may have

  // Of a row of x in shared memory. Runs of neighbours are in different banks.
  constexpr int x_pieces(const SmallShape& shape) const { return split * steps * shape.run; }
  constexpr int x_stride(const SmallShape& shape) const { return x_pieces(shape) | 4; }
};
// For `shape`, of rows as SuitsSmallBf16 says.
SmallPlan PlanSmall(const ProductParams& params, const SmallShape& shape);

struct SmallCall {
  int64_t n = 0;
  int m = 0;
  bool constant_weights = false;
  SmallPlan plan;
  const void* x = nullptr;
  const Bfloat* weight = nullptr;
  const Bfloat* up = nullptr;
  Epilogue epilogue;

  static SmallCall Of(const ProductParams& params, const SmallPlan& plan) {
    return {.n = params.n,
            .m = static_cast<int>(params.m),
            .constant_weights = params.constant_weights,
            .plan = plan,
            .x = params.x,
            .weight = static_cast<const Bfloat*>(params.weight.data),
            .up = static_cast<const Bfloat*>(params.up.data),
            .epilogue = Epilogue::Of(params)};
  }
};

// What a warp has to do: of one matrix, some groups of columns of its cluster, of each its share of its block's part of K.
template <class Sums, bool kGated>
struct SmallPlace {
  static constexpr SmallShape kShape = Sums::kShape;
  static constexpr int kMatrices = kGated ? 2 : 1, kWarps = kShape.warps / kMatrices;

  int part_begin, part_count;  // in pieces
  int share_begin;             // of the part; shares are padded behind its end
  int first_group, groups;     // of the cluster
  int matrix, share;
  int group, group_step;  // the first one and from one to the next, of the cluster's

  __device__ explicit SmallPlace(const SmallCall& call) {
    const SmallPlan& plan = call.plan;
    const int warp = static_cast<int>(threadIdx.x) / 32, block = static_cast<int>(blockIdx.x);
    part_begin = block % plan.parts * plan.part_pieces;
    part_count = min(plan.part_pieces, plan.row_pieces - part_begin);
    first_group = block / plan.parts * plan.groups;
    const auto all_groups = static_cast<int>((call.n + kShape.columns - 1) / kShape.columns);
    groups = min(plan.groups, all_groups - first_group);
    matrix = warp / kWarps;
    share = warp % plan.split;
    share_begin = share * plan.steps * kShape.run;
    group = warp % kWarps / plan.split;
    group_step = kWarps / plan.split;
  }
};

}  // namespace pagefuse::cuda
