// SPDX-License-Identifier: Apache-2.0
// Index scores of any types and sizes: a block of threads takes one row of queries and a thread a key, with
// pieces of queries and keys as floats in shared memory.
#include <cmath>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_rows.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_tiles.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"
#include "pagefuse/ops/kernels/formats/group_format.h"

namespace pagefuse::cuda {
namespace {

constexpr int kKeys = 128;  // threads
constexpr int kHeads = 16;  // of a piece
constexpr int kDepth = 32;  // elements of a piece, a lane each
constexpr int kGroup = 32;  // elements of a four-bit key with one scale

__device__ float QueryElement(const MqaLogits& call, int64_t i) {
  switch (call.query_type) {
    case DataType::kFloat:
      return reinterpret_cast<const float*>(call.q)[i];
    case DataType::kFloat16:
      return static_cast<float>(reinterpret_cast<const Float16*>(call.q)[i]);
    case DataType::kBfloat16:
      return static_cast<float>(reinterpret_cast<const Bfloat16*>(call.q)[i]);
    default:
      return DecodeFloat<E4M3FNFormat>(call.q[i]);
  }
}

__device__ float KeyElement(const MqaLogits& call, const RowAddress& key, int d) {
  switch (call.key_format) {
    case MqaKeyFormat::kFloat:
      return reinterpret_cast<const float*>(key.data)[d];
    case MqaKeyFormat::kFloat16:
      return static_cast<float>(reinterpret_cast<const Float16*>(key.data)[d]);
    case MqaKeyFormat::kBfloat16:
      return static_cast<float>(reinterpret_cast<const Bfloat16*>(key.data)[d]);
    case MqaKeyFormat::kFourBits: {
      const auto code = static_cast<uint8_t>(key.data[d / 2] >> (d % 2 * 4) & 15);
      return DecodeFloat<E2M1Format>(code) * DecodeUe8m0(key.scale[d / kGroup]);
    }
    default:
      return DecodeFloat<E4M3FNFormat>(key.data[d]);
  }
}

struct Shared {
  MqaRow row;
  RowAddress keys[kKeys];
  float q[kHeads][kDepth];
  float k[kKeys][kDepth + 1];  // a thread a row: one bank each
  float weights[kHeads];
};

// Elements [d0, d0 + kDepth) of heads [h0, h0 + kHeads) and of all keys; those that are not there are 0.
__device__ void LoadPiece(const MqaLogits& call, int64_t m, int h0, int d0, Shared& shared) {
  const int lane = LaneId(), warp = static_cast<int>(threadIdx.x) / kWarp;
  const int d = d0 + lane;
  for (int h = warp; h < kHeads; h += kKeys / kWarp) {
    const bool there = h0 + h < call.heads && d < call.head_size;
    shared.q[h][lane] =
        there ? QueryElement(call, (m * call.heads + h0 + h) * call.head_size + d) : 0.0f;
  }
  for (int key = warp; key < kKeys; key += kKeys / kWarp) {
    const RowAddress& address = shared.keys[key];
    const bool there = address.data != nullptr && d < call.head_size;
    shared.k[key][lane] = there ? KeyElement(call, address, d) : 0.0f;
  }
}

// The sum over heads of this thread's key.
__device__ float Score(const MqaLogits& call, int64_t m, float scale, Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int h0 = 0; h0 < call.heads; h0 += kHeads) {
    float dots[kHeads] = {};
    for (int d0 = 0; d0 == 0 || d0 < call.head_size; d0 += kDepth) {
      __syncthreads();
      if (d0 == 0 && thread < kHeads) {
        shared.weights[thread] =
            h0 + thread < call.heads ? call.weights[m * call.heads + h0 + thread] : 0.0f;
      }
      LoadPiece(call, m, h0, d0, shared);
      __syncthreads();
      for (int d = 0; d < kDepth; ++d) {
        const float k = shared.k[thread][d];
#pragma unroll
        for (int h = 0; h < kHeads; ++h) dots[h] += shared.q[h][d] * k;
      }
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (h0 + h < call.heads) sum += shared.weights[h] * fmaxf(0.0f, dots[h] * scale);
    }
  }
  return sum;
}

__global__ void __launch_bounds__(kKeys)
    MqaLogitsKernel(const __grid_constant__ MqaLogits call, int64_t tiles) {
  __shared__ Shared shared;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t m = blockIdx.x / tiles, first = blockIdx.x % tiles * kKeys, n = first + thread;
  if (thread == 0) shared.row = RowOf(call, m);
  __syncthreads();
  const MqaRow row = shared.row;
  const bool inside = n >= row.begin && n < row.end;
  float logit = -INFINITY;
  if (first < row.end && first + kKeys > row.begin) {
    const RowAddress key = inside ? KeyOf(call, row.sequence, n) : RowAddress{};
    shared.keys[thread] = key;
    const bool scaled = call.key_format == MqaKeyFormat::kFloat8 && key.scale != nullptr;
    const float score = Score(call, m, scaled ? LoadFloatBytes(key.scale) : 1.0f, shared);
    if (inside) logit = score;
  }
  if (n < call.width && (inside || n < row.filled)) call.logits[m * call.width + n] = logit;
}

Error LaunchPlain(const MqaLogits& call, Stream stream) {
  const int64_t tiles = CeilDiv(call.width, kKeys);
  if (tiles > INT32_MAX / call.rows) return kTooLarge;
  return Launch(MqaLogitsKernel, {.grid = static_cast<unsigned>(tiles * call.rows), .block = kKeys},
                stream, call, tiles);
}

}  // namespace

size_t MqaLogitsWorkspace(const MqaLogits& call) {
  return FitsDenseTiles(call) ? DenseTilesWorkspace(call) : 0;
}

Error LaunchMqaLogits(const MqaLogits& call, void* workspace, Stream stream) {
  if (call.rows == 0 || call.width == 0) return 0;
  Error error = cudaErrorNotSupported;  // also where the driver does not copy such tiles
  if (FitsDenseTiles(call)) error = LaunchDenseTiles(call, workspace, stream);
  if (FitsPagedTiles(call)) error = LaunchPagedTiles(call, stream);
  return error == cudaErrorNotSupported ? LaunchPlain(call, stream) : error;
}

}  // namespace pagefuse::cuda
