// SPDX-License-Identifier: Apache-2.0
// IndexerTopK: a cluster of blocks a row (cluster_select.h). TopK: a block a row (radix_select.h). ArgMax and ArgMin: a
// team of threads a row.
#include "pagefuse/ops/kernels/cuda/cluster.h"
#include "pagefuse/ops/kernels/cuda/cluster_select.h"
#include "pagefuse/ops/kernels/cuda/element_order.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/radix_select.h"
#include "pagefuse/ops/kernels/cuda/row_team.h"
#include "pagefuse/ops/kernels/cuda/shared_memory.h"
#include "pagefuse/ops/kernels/cuda/topk.h"

namespace pagefuse::cuda {
namespace {

// --- IndexerTopK ---

// The range of a row, empty where it is not among the columns: that is told.
struct RowOfLogits {
  const float* logits;
  uint32_t count = 0;
  uint32_t wanted = 0;
  int32_t* indices;

  __device__ RowOfLogits(const IndexerTopKCall& call, int64_t m)
      : logits(call.logits + m * call.width), indices(call.indices + m * call.topk) {
    const int32_t begin = call.begins[m], end = call.ends[m];
    if (begin >= 0 && end >= begin && end <= call.width) {
      logits += begin;
      count = static_cast<uint32_t>(end - begin);
      wanted = static_cast<uint32_t>(min(call.topk, int64_t{count}));
    } else if (threadIdx.x == 0) {
      const bool is_begin = begin < 0;
      call.errors.Tell(is_begin ? call.begins_input : call.ends_input, call.first_row + m,
                       is_begin ? begin : end);
    }
  }
  // Behind the `kept` best there is none.
  __device__ void FillUp(int64_t kept, int64_t topk) const {
    for (int64_t i = kept + threadIdx.x; i < topk; i += blockDim.x) indices[i] = -1;
  }
};

// A cluster of blocks a row.
__global__ void __launch_bounds__(kMostSelectThreads)
    IndexerTopKKernel(const __grid_constant__ IndexerTopKCall call, int blocks, uint32_t capacity,
                      bool keeps_keys) {
  __shared__ ClusterSelectSpace space;
  ptx::LetNextKernelBegin();
  BeginSelect(space);
  ptx::WaitForKernelBefore();
  const int block = static_cast<int>(blockIdx.x) % blocks;
  const RowOfLogits row(call, static_cast<int>(blockIdx.x) / blocks);
  if (block == 0) row.FillUp(row.wanted, call.topk);
  if (row.wanted == 0) return;
  SelectByCluster(row.logits, row.count, row.wanted, {block, blocks}, capacity, keeps_keys, space,
                  row.indices);
}

// A block a row, where more are wanted than a cluster sorts.
__global__ void __launch_bounds__(kMostSelectThreads)
    LongIndexerTopKKernel(const __grid_constant__ IndexerTopKCall call, uint32_t capacity) {
  __shared__ SelectSpace space;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const RowOfLogits row(call, blockIdx.x);
  const auto key_at = [&](uint32_t i) { return KeyOfFloat(row.logits[i]); };
  Ranked<uint32_t>* items = ItemsOfBlock<uint32_t>(call.workspace, capacity);
  const uint32_t kept = SelectBest(row.count, key_at, 32, row.wanted, items, capacity, space);
  for (uint32_t i = threadIdx.x; i < kept; i += blockDim.x) {
    row.indices[i] = static_cast<int32_t>(items[i].index);
  }
  row.FillUp(kept, call.topk);
}

// --- TopK ---

template <typename Bits>
__global__ void __launch_bounds__(kMostSelectThreads)
    TopKKernel(const __grid_constant__ TopKCall call, const __grid_constant__ ElementOrder order,
               uint32_t capacity) {
  using Key = RankKey<Bits>;
  __shared__ SelectSpace space;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t outer = blockIdx.x / call.inner, inner = blockIdx.x % call.inner;
  const Bits* x = static_cast<const Bits*>(call.x) + outer * call.n * call.inner + inner;
  const auto key_at = [&](uint32_t i) {
    const Bits bits = x[i * call.inner];
    const Bits rank = order.IsNan(bits) ? static_cast<Bits>(~Bits{0}) : order.RankOf(bits);
    return Key{call.largest ? rank : static_cast<Bits>(~rank)};
  };
  Ranked<Key>* items = ItemsOfBlock<Key>(call.workspace, capacity);
  const auto kept = SelectBest(static_cast<uint32_t>(call.n), key_at, 8 * int{sizeof(Bits)},
                               static_cast<uint32_t>(call.k), items, capacity, space);
  const int64_t first = outer * call.k * call.inner + inner;
  for (uint32_t i = threadIdx.x; i < kept; i += blockDim.x) {
    const int64_t index = items[i].index, to = first + i * call.inner;
    if (call.values != nullptr) static_cast<Bits*>(call.values)[to] = x[index * call.inner];
    if (call.indices != nullptr) call.indices[to] = index;
  }
}

// --- ArgMax, ArgMin ---

template <typename Bits>
__global__ void __launch_bounds__(kMostLanes)
    ArgBestKernel(const __grid_constant__ ArgBestCall call,
                  const __grid_constant__ ElementOrder order) {
  using Key = RankKey<Bits>;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t line = TeamRow();
  const bool has_line = line < call.outer * call.inner;
  const int64_t start = has_line ? line / call.inner * call.n * call.inner + line % call.inner : 0;
  const int64_t n = has_line ? call.n : 0;
  const Bits* x = static_cast<const Bits*>(call.x) + start;
  const int64_t none = call.last ? -1 : INT64_MAX;
  Key best = 0;
  int64_t index = none;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const Bits bits = x[i * call.inner];
    const bool is_nan = order.IsNan(bits);
    if (is_nan && i != 0) continue;
    const Bits rank = order.RankOf(bits);
    const Key key = is_nan         ? static_cast<Bits>(~Bits{0})
                    : call.largest ? rank
                                   : static_cast<Bits>(~rank);
    if (index == none || key > best || (call.last && key == best)) best = key, index = i;
  }
  const Key most = OverTeam(best, [](Key a, Key b) { return a < b ? b : a; });
  if (best != most) index = none;
  const bool last = call.last;
  index = OverTeam(index, [last](int64_t a, int64_t b) { return (a < b) == last ? b : a; });
  if (has_line && threadIdx.x == 0) call.indices[line] = index;
}

SelectPlan PlanOf(const IndexerTopKCall& call) {
  return {call.width, call.topk, sizeof(Ranked<uint32_t>)};
}

// Shared memory that a block may have beside ClusterSelectSpace.
int MostItemBytes() { return MostShared() - static_cast<int>(sizeof(ClusterSelectSpace)); }

ClusterSelectPlan ClusterPlanOf(const IndexerTopKCall& call) {
  return {call.rows,
          call.width,
          std::min(call.topk, call.width),
          {.blocks = MostClusterBlocks(),
           .multiprocessors = Multiprocessors(),
           .shared_bytes = MostItemBytes()}};
}

Error LaunchByClusters(const IndexerTopKCall& call, const ClusterSelectPlan& plan, Stream stream) {
  // The same for all sizes: captured launches stay valid.
  constexpr auto kAttribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  const Error error = cudaFuncSetAttribute(IndexerTopKKernel, kAttribute, MostItemBytes());
  if (error != 0) return error;
  const LaunchShape shape = {.grid = static_cast<unsigned>(call.rows * plan.blocks),
                             .block = static_cast<unsigned>(plan.threads),
                             .shared_bytes = static_cast<size_t>(plan.shared_bytes)};
  return LaunchClusters(IndexerTopKKernel, shape, plan.blocks, stream, call, plan.blocks,
                        plan.capacity, plan.keeps_keys);
}

SelectPlan PlanOf(const TopKCall& call) {
  const bool is_wide = ElementOrderOf(call.type).sign >> 32 != 0 || call.type == DataType::kUint64;
  return {call.n, call.k, is_wide ? sizeof(Ranked<uint64_t>) : sizeof(Ranked<uint32_t>)};
}

LaunchShape ShapeOf(const SelectPlan& plan, int64_t rows) {
  return {.grid = static_cast<unsigned>(rows),
          .block = static_cast<unsigned>(plan.threads),
          .shared_bytes = plan.shared_bytes};
}

}  // namespace

size_t IndexerTopKWorkspace(const IndexerTopKCall& call) {
  if (ClusterPlanOf(call).blocks != 0) return 0;
  return PlanOf(call).workspace_bytes * static_cast<size_t>(call.rows);
}

Error LaunchIndexerTopK(const IndexerTopKCall& call, Stream stream) {
  if (call.rows == 0 || call.topk == 0) return 0;
  const ClusterSelectPlan clusters = ClusterPlanOf(call);
  if (call.rows > INT32_MAX / std::max(clusters.blocks, 1)) return kTooLarge;
  if (clusters.blocks != 0) return LaunchByClusters(call, clusters, stream);
  if (std::min(call.topk, call.width) > kMostRanked) return kTooLarge;
  const SelectPlan plan = PlanOf(call);
  return Launch(LongIndexerTopKKernel, ShapeOf(plan, call.rows), stream, call, plan.capacity);
}

size_t TopKWorkspace(const TopKCall& call) {
  return PlanOf(call).workspace_bytes * static_cast<size_t>(call.outer * call.inner);
}

Error LaunchTopK(const TopKCall& call, Stream stream) {
  const int64_t lines = call.outer * call.inner;
  if (lines == 0 || call.k == 0) return 0;
  if (lines > INT32_MAX || call.n > kMostRanked) return kTooLarge;
  const SelectPlan plan = PlanOf(call);
  return ForElementBits(call.type, [&]<typename Bits>() -> Error {
    return Launch(TopKKernel<Bits>, ShapeOf(plan, lines), stream, call, ElementOrderOf(call.type),
                  plan.capacity);
  });
}

Error LaunchArgBest(const ArgBestCall& call, Stream stream) {
  const int64_t lines = call.outer * call.inner;
  if (lines == 0) return 0;
  if (lines > INT32_MAX) return kTooLarge;
  // Threads side by side read what lies side by side: elements of a line, or of neighbouring lines.
  const int lanes = call.inner < 8 ? LanesFor(call.n) : 1;
  return ForElementBits(call.type, [&]<typename Bits>() -> Error {
    return Launch(ArgBestKernel<Bits>, TeamShape(lines, lanes), stream, call,
                  ElementOrderOf(call.type));
  });
}

}  // namespace pagefuse::cuda
