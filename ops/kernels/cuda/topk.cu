// SPDX-License-Identifier: Apache-2.0
// IndexerTopK and TopK: a block of threads a row (radix_select.h). ArgMax and ArgMin: a team of threads a row.
#include "pagefuse/ops/kernels/cuda/element_order.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/radix_select.h"
#include "pagefuse/ops/kernels/cuda/row_team.h"
#include "pagefuse/ops/kernels/cuda/topk.h"

namespace pagefuse::cuda {
namespace {

// --- IndexerTopK ---

// Whether the range of row m is among the columns; else it is told.
__device__ bool HasRange(const IndexerTopKCall& call, int64_t m) {
  const int32_t begin = call.begins[m], end = call.ends[m];
  if (begin >= 0 && end >= begin && end <= call.width) return true;
  if (threadIdx.x == 0) {
    const bool is_begin = begin < 0;
    call.errors.Tell(is_begin ? call.begins_input : call.ends_input, call.first_row + m,
                     is_begin ? begin : end);
  }
  return false;
}

__global__ void __launch_bounds__(kMostSelectThreads)
    IndexerTopKKernel(const __grid_constant__ IndexerTopKCall call, uint32_t capacity) {
  __shared__ SelectSpace space;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t m = blockIdx.x;
  const bool has_range = HasRange(call, m);
  const int32_t begin = has_range ? call.begins[m] : 0;
  const auto count = static_cast<uint32_t>(has_range ? call.ends[m] - begin : 0);
  const auto* logits = reinterpret_cast<const uint32_t*>(call.logits) + m * call.width + begin;
  const auto key_at = [&](uint32_t i) {
    constexpr ElementOrder kOrder = ElementOrderOf(DataType::kFloat);
    constexpr uint32_t kMinusInfinity = 0xFF800000;
    const uint32_t bits = logits[i];
    return kOrder.RankOf(kOrder.IsNan(bits) ? kMinusInfinity : bits);
  };
  Ranked<uint32_t>* items = ItemsOfBlock<uint32_t>(call.workspace, capacity);
  const auto wanted = static_cast<uint32_t>(min(call.topk, int64_t{count}));
  const uint32_t kept = SelectBest(count, key_at, 32, wanted, items, capacity, space);
  int32_t* indices = call.indices + m * call.topk;
  for (int64_t i = threadIdx.x; i < call.topk; i += blockDim.x) {
    indices[i] = i < kept ? static_cast<int32_t>(items[i].index) : -1;
  }
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
  return PlanOf(call).workspace_bytes * static_cast<size_t>(call.rows);
}

Error LaunchIndexerTopK(const IndexerTopKCall& call, Stream stream) {
  if (call.rows == 0 || call.topk == 0) return 0;
  if (call.rows > INT32_MAX || std::min(call.topk, call.width) > kMostRanked) return kTooLarge;
  const SelectPlan plan = PlanOf(call);
  return Launch(IndexerTopKKernel, ShapeOf(plan, call.rows), stream, call, plan.capacity);
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
