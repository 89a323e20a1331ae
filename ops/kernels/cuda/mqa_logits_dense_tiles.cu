// SPDX-License-Identifier: Apache-2.0
// MqaLogits on Hopper: blocks of threads stay and take turns at tiles of 4 queries of 64 heads by 64 keys. One warp group of three copies
// queries and keys, the others multiply 64 keys by the 256 query rows at a time and sum the heads in registers.
#include <algorithm>
#include <cmath>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_dense_scores.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_dense_works.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_ptx.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_tensor_map.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_tiles.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_widen.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {
namespace {

constexpr int kQueries = kDenseQueries, kKeys = kDenseKeys;
constexpr int kGroup = 128;  // threads of a warp group
constexpr int kConsumers = kDenseConsumers;
// A stage belongs to one consumer for ever.
constexpr int kStages = 6;
static_assert(kStages % kConsumers == 0);
constexpr int kHalf =
    64 * 2;  // bytes of a row of half of the elements: what swizzle exchanges within
constexpr int kQueryBytes = kQueries * kTileHeads * kTileSize * 2,
              kKeyBytes = kKeys * kTileSize * 2;
constexpr int kBarrierBytes = 1024, kAlignment = 1024;
constexpr int kSharedBytes = kAlignment + kBarrierBytes + 2 * kQueryBytes + kStages * kKeyBytes;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Addresses in shared memory.
struct Places {
  uint32_t q_full, q_empty, k_full, k_empty, q, k;

  __device__ explicit Places(uint32_t base)
      : q_full(base),
        q_empty(base + 16),
        k_full(base + 32),
        k_empty(base + 32 + 8 * kStages),
        q(base + kBarrierBytes),
        k(q + 2 * kQueryBytes) {}
};

__device__ void MakeBarriers(const Places& at) {
  for (int i = 0; i < 2; ++i) {
    ptx::InitBarrier(at.q_full + 8 * i, 1);
    ptx::InitBarrier(at.q_empty + 8 * i, kConsumers);
  }
  for (int i = 0; i < kStages; ++i) {
    ptx::InitBarrier(at.k_full + 8 * i, 1);
    ptx::InitBarrier(at.k_empty + 8 * i, 1);
  }
  ptx::FenceBarriers();
}

struct Range {
  int64_t first, end;
};

// A place in the ring of stages, and the parity of the phase in which it is filled. Stepped
// from tile to tile: a division would make each tile wait.
struct Place {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void Step(int steps) {
    stage += steps;
    if (stage >= kStages) stage -= kStages, parity ^= 1;
  }
};

// One thread copies what all works need, in order.
__device__ void CopyAll(const MqaLogits& call, const DenseWorks& works, Range range,
                        const Places& at, const CUtensorMap* queries, const CUtensorMap* keys) {
  Place place;
  int filled = 0;
  for (int64_t i = range.first; i < range.end;) {
    const DenseWork work = DenseWorkAt(call, works, i, range.end);
    i = work.next;
    if (work.first == work.end) continue;
    const int buffer = filled & 1;
    // Of a barrier that is new, the phase before counts as ended.
    ptx::WaitBarrier(at.q_empty + 8 * buffer, ((filled / 2) & 1) ^ 1);
    ++filled;
    ptx::ArriveAndExpect(at.q_full + 8 * buffer, kQueryBytes);
    for (int half = 0; half < 2; ++half) {
      ptx::CopyTile2d(at.q + buffer * kQueryBytes + half * (kQueryBytes / 2), queries, half * 64,
                      work.q0 * kTileHeads, at.q_full + 8 * buffer);
    }
    for (int k = work.first; k < work.end; ++k, place.Step(1)) {
      const uint32_t full = at.k_full + 8 * place.stage;
      ptx::WaitBarrier(at.k_empty + 8 * place.stage, place.parity ^ 1);
      ptx::ArriveAndExpect(full, kKeyBytes);
      for (int half = 0; half < 2; ++half) {
        ptx::CopyTile2d(at.k + place.stage * kKeyBytes + half * (kKeyBytes / 2), keys, half * 64,
                        k * kKeys, full);
      }
    }
  }
}

// -inf in the columns of a work that lie in none of its tiles.
__device__ void FillRest(const MqaLogits& call, const DenseWork& work, int thread) {
  if (!call.clean) return;
  const int first = work.first * kKeys, end = work.first == work.end ? first : work.end * kKeys;
  // Most works are covered by their tiles.
  if (first <= work.n0 && end >= work.n1) return;
  for (int q = 0; q < kQueries && work.q0 + q < call.rows; ++q) {
    float* logits = call.logits + (work.q0 + q) * call.width;
    for (int n = work.n0 + thread; n < work.n1; n += kConsumers * kGroup) {
      if (n < first || n >= end) logits[n] = -INFINITY;
    }
  }
}

// Whose turn it is to multiply. Groups that multiplied side by side would sum their heads side by side too, and
// the tensor cores wait for that: so one begins when all products of the other are asked for.
class Turns {
 public:
  __device__ explicit Turns(int group) : group_(group) {
    if (group == 1) End();  // the other one is the first
  }
  __device__ void Begin() const { ptx::SyncThreads(kFirstBarrier + group_, kConsumers * kGroup); }
  __device__ void End() const {
    ptx::ArriveThreads(kFirstBarrier + (group_ ^ 1), kConsumers * kGroup);
  }

 private:
  static constexpr int kFirstBarrier = 1 + kConsumers;  // behind those of the groups themselves
  static_assert(kConsumers == 2);

  int group_;
};

// Tiles number `group`, and so on by twos, of a thread block's works.
__device__ void MultiplyAll(const MqaLogits& call, const DenseWorks& works, Range range,
                            const Places& at, int group) {
  const int thread = static_cast<int>(threadIdx.x) % kGroup, warp = thread / 32;
  const int g = thread % 32 / 4, t = thread % 4;
  const Turns turns(group);
  Place place = {group, 0};
  int filled = 0, turn = group;  // tiles of the next work before this group's first
  for (int64_t i = range.first; i < range.end;) {
    const DenseWork work = DenseWorkAt(call, works, i, range.end);
    i = work.next;
    FillRest(call, work, group * kGroup + thread);
    if (work.first == work.end) continue;
    const int buffer = filled & 1;
    const uint32_t q_parity = (filled / 2) & 1;
    ++filled;
    float weights[kDenseWeights];
    LoadWeights(call, work.q0, t, weights);
    const DenseRow row(call, work.q0 + t);
    ptx::WaitBarrier(at.q_full + 8 * buffer, q_parity);
    const uint64_t q = ptx::SwizzledTile(at.q + buffer * kQueryBytes);
    int k = work.first + turn;
    for (; k < work.end; k += kConsumers, place.Step(kConsumers)) {
      const int n = k * kKeys + warp * 16 + g;
      const float scale = LoadScale(call, n), scale8 = LoadScale(call, n + 8);
      ptx::WaitBarrier(at.k_full + 8 * place.stage, place.parity);
      const uint64_t keys = ptx::SwizzledTile(at.k + place.stage * kKeyBytes);
      float d[128];
      turns.Begin();
      ptx::BeginProducts();
#pragma unroll
      for (int step = 0; step < kTileSize / 16; ++step) {
        const int half = step / 4, within = step % 4 * 2;  // units of 16 bytes
        ptx::Product256(d, keys + half * (kKeyBytes / 2 / 16) + within,
                        q + half * (kQueryBytes / 2 / 16) + within, step > 0);
      }
      ptx::CommitProducts();
      turns.End();
      ptx::WaitForProducts();
      if (thread == 0) ptx::Arrive(at.k_empty + 8 * place.stage);
      const float2 sums = SumHeads(d, weights, t);
      row.Store(n, sums.x * scale);
      row.Store(n + 8, sums.y * scale8);
    }
    turn = k - work.end;
    ptx::SyncThreads(1 + group, kGroup);
    if (thread == 0) ptx::Arrive(at.q_empty + 8 * buffer);
  }
  if (turn == 0) turns.Begin();  // a turn that nobody needs
}

#endif

__global__ void __launch_bounds__((kConsumers + 1) * kGroup, 1)
    DenseTilesKernel(const __grid_constant__ CUtensorMap queries,
                     const __grid_constant__ CUtensorMap keys,
                     const __grid_constant__ MqaLogits call, const DenseWorks works) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t shared[];
  const uint32_t base = ptx::SharedAddress(shared);
  const Places at((base + kAlignment - 1) / kAlignment * kAlignment);
  if (threadIdx.x == 0) {
    ptx::FetchTensorMap(&queries);
    ptx::FetchTensorMap(&keys);
    MakeBarriers(at);
  }
  __syncthreads();
  ptx::WaitForKernelBefore();
  const Range range = {works.count * blockIdx.x / gridDim.x,
                       works.count * (blockIdx.x + 1) / gridDim.x};
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  if (group == kConsumers) {
    ptx::GiveRegisters<24>();
    if (threadIdx.x % kGroup == 0) CopyAll(call, works, range, at, &queries, &keys);
  } else {
    ptx::TakeRegisters<240>();
    MultiplyAll(call, works, range, at, group);
  }
#endif
}

struct Halves {
  uint16_t *q, *k;
};
int64_t QueryElements(const MqaLogits& call) { return call.rows * kTileHeads * kTileSize; }
int64_t KeyElements(const MqaLogits& call) { return call.width * kTileSize; }
Halves HalvesIn(const MqaLogits& call, void* workspace) {
  auto* q = static_cast<uint16_t*>(workspace);
  return {q, q + QueryElements(call)};
}

bool MakeMap(uint16_t* halves, int64_t rows, int box_rows, CUtensorMap& map) {
  return MakeTensorMap({.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                        .data = halves,
                        .dims = {kTileSize, static_cast<uint64_t>(rows), 1},
                        .strides = {kTileSize * 2, 0},
                        .box = {kHalf / 2, static_cast<uint32_t>(box_rows), 1},
                        .rank = 2},
                       map);
}

bool IsAligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

bool HasHopperProducts() {
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return major == 9 && minor == 0;
}

bool FitsDenseTiles(const MqaLogits& call) {
  return call.block_table == nullptr && call.query_type == DataType::kFloat8E4M3FN &&
         call.key_format == MqaKeyFormat::kFloat8 && call.heads == kTileHeads &&
         call.head_size == kTileSize && call.keys.scales != nullptr && IsAligned(call.q) &&
         IsAligned(call.keys.data) && IsAligned(call.weights) &&
         call.rows <= INT32_MAX / kTileHeads - kQueries &&
         call.width <= INT32_MAX - kConsumers * kGroup && HasHopperProducts();
}

size_t DenseTilesWorkspace(const MqaLogits& call) {
  return static_cast<size_t>(QueryElements(call) + KeyElements(call)) * sizeof(uint16_t);
}

Error LaunchDenseTiles(const MqaLogits& call, void* workspace, Stream stream) {
  const Halves halves = HalvesIn(call, workspace);
  CUtensorMap queries, keys;
  if (!MakeMap(halves.q, call.rows * kTileHeads, kQueries * kTileHeads, queries) ||
      !MakeMap(halves.k, call.width, kKeys, keys)) {
    return cudaErrorNotSupported;
  }
  int device = 0, sms = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  const DenseWorks works = DenseWorksOf(call.rows, call.width);
  const auto* scales = reinterpret_cast<const float*>(call.keys.scales);
  Error error = LaunchWiden({call.q, nullptr, halves.q, QueryElements(call)},
                            {call.keys.data, scales, halves.k, KeyElements(call)}, stream);
  if (error != 0) return error;
  error = cudaFuncSetAttribute(DenseTilesKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               kSharedBytes);
  if (error != 0) return error;
  return Launch(DenseTilesKernel,
                {.grid = static_cast<unsigned>(std::min<int64_t>(sms, works.count)),
                 .block = (kConsumers + 1) * kGroup,
                 .shared_bytes = kSharedBytes},
                stream, queries, keys, call, works);
}

}  // namespace pagefuse::cuda
