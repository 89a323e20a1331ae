// SPDX-License-Identifier: Apache-2.0
// CompressorStateInsert: a block a token. CompressCacheInsert: a block a few neighbouring tokens, of which most end no window.
#include "pagefuse/ops/kernels/cuda/compress.h"
#include "pagefuse/ops/kernels/cuda/grouped_floats.h"
#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/rotate_row.h"
#include "pagefuse/ops/kernels/cuda/strided.h"
#include "pagefuse/ops/kernels/cuda/window_sum.h"

namespace pagefuse::cuda {
namespace {

// Rows of floats that are read or written in pieces of 16 bytes.
bool IsAlignedRows(const CacheRows& rows) {
  constexpr int64_t kBytes = sizeof(float4);
  return IsAligned(rows.data, kBytes) && rows.data_strides.block % kBytes == 0 &&
         rows.data_strides.row % kBytes == 0;
}

// --- CompressorStateInsert ---

constexpr int kStateThreads = 256;

template <typename T, int kVector>
__global__ void __launch_bounds__(kStateThreads)
    StateInsertKernel(const __grid_constant__ StateInsert p) {
  using Floats = Vector<float, kVector>;
  using Source = Vector<T, kVector>;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = blockIdx.x;
  const int64_t slot = p.slots.OfToken(token);
  if (slot < 0) return;
  const int64_t position = p.positions[token];
  if (position < 0) {
    if (threadIdx.x == 0) p.slots.errors.Tell(p.positions_input, token, position);
    return;
  }
  const T* kv = static_cast<const T*>(p.kv) + token * p.width;
  const T* score = static_cast<const T*>(p.score) + token * p.width;
  const float* ape = p.ape + position % p.ratio * p.width;
  float* row = reinterpret_cast<float*>(p.rows.AtSlot(slot, 0).data);
  for (int64_t d = threadIdx.x * kVector; d < p.width; d += kStateThreads * kVector) {
    const Source x = *reinterpret_cast<const Source*>(kv + d);
    const Source s = *reinterpret_cast<const Source*>(score + d);
    const Floats a = *reinterpret_cast<const Floats*>(ape + d);
    Floats keys, scores;
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      keys.at[v] = ToFloat(x.at[v]);
      scores.at[v] = __fadd_rn(ToFloat(s.at[v]), a.at[v]);
    }
    *reinterpret_cast<Floats*>(row + d) = keys;
    *reinterpret_cast<Floats*>(row + p.half + d) = scores;
  }
}

template <typename T>
Error LaunchStateFrom(const StateInsert& call, Stream stream) {
  constexpr int64_t kBytes = 4 * sizeof(T);
  const LaunchShape shape{.grid = static_cast<unsigned>(call.slots.mapping.tokens),
                          .block = kStateThreads};
  const bool in_fours = call.width % 4 == 0 && call.half % 4 == 0 && IsAlignedRows(call.rows) &&
                        IsAligned(call.kv, kBytes) && IsAligned(call.score, kBytes) &&
                        IsAligned(call.ape, sizeof(float4));
  return in_fours ? Launch(StateInsertKernel<T, 4>, shape, stream, call)
                  : Launch(StateInsertKernel<T, 1>, shape, stream, call);
}

// --- CompressCacheInsert ---

// Tokens that share a block, at most: a lane looks at each.
constexpr int kMostTokens = kWarp;

struct CompressCall : CompressInsert {
  Divisor state_block;  // tokens
  int block_tokens = 1;
};

__device__ int ThreadOfBlock() { return static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); }
__device__ unsigned ThreadsOfBlock() { return blockDim.x * blockDim.y; }

// That a token has an index out of range. False.
__device__ bool Told(const CompressCall& p, int input, int64_t element, int64_t value) {
  if (ThreadOfBlock() == 0) p.errors.Tell(input, element, value);
  return false;
}

// Whether the token ends a window that is written.
__device__ bool EndsWindow(const CompressCall& p, int64_t token) {
  if (p.slots[token] < 0) return false;
  const int64_t position = p.positions[token];
  if (position < 0) {
    p.errors.Tell(p.inputs.positions, token, position);
    return false;
  }
  return position % p.ratio == p.ratio - 1 && p.kv_slots[token] >= 0;
}

// A window that is written: positions [begin, position].
struct Window {
  int64_t token, table_row, slot;
  const int32_t* blocks;  // of its request's state
  uint32_t begin, position;
};

// Whether its blocks are those of the state. All threads come here, with the same window.
__device__ bool HasBlocks(const CompressCall& p, const Window& window) {
  const uint32_t first = p.state_block.Quotient(window.begin);
  const uint32_t last = p.state_block.Quotient(window.position);
  bool is_wrong = false;
  for (uint32_t i = first + ThreadOfBlock(); i <= last; i += ThreadsOfBlock()) {
    const int32_t block = window.blocks[i];
    if (block >= 0 && block < p.state.num_blocks) continue;
    is_wrong = true;
    p.errors.Tell(p.inputs.block_table, window.blocks + i - p.block_table, block);
  }
  return !__syncthreads_or(is_wrong);
}

// Whether a later token writes the same slot. All threads come here.
__device__ bool IsOverwritten(const CompressCall& p, const Window& window) {
  bool later = false;
  for (int64_t t = window.token + 1 + ThreadOfBlock(); t < p.tokens; t += ThreadsOfBlock()) {
    later = later || (p.kv_slots[t] == window.slot && EndsWindow(p, t));
  }
  return __syncthreads_or(later);
}

// The token's window. False where it is not written: what it reads or its slot is out of range, or a later token has the slot. All threads
// come here with the same token, and have come before any goes on with a window.
__device__ bool FindWindow(const CompressCall& p, int64_t token, Window& window) {
  const int64_t position = p.positions[token], request = p.token_to_req[token];
  if (request < 0 || request >= p.requests) {
    return Told(p, p.inputs.token_to_req, token, request);
  }
  window.token = token;
  window.table_row = p.table_row_of_token ? token : position / p.ratio * p.ratio;
  if (p.state.block_size == 0 || position / p.state.block_size >= p.table_columns ||
      window.table_row >= p.rotation.table_rows) {
    return Told(p, p.inputs.positions, token, position);
  }
  window.slot = p.kv_slots[token];
  if (window.slot >= NumSlots(p.rows)) return Told(p, p.inputs.kv_slots, token, window.slot);
  window.blocks = p.block_table + request * p.table_columns;
  window.position = static_cast<uint32_t>(position);
  window.begin = static_cast<uint32_t>(max(position - p.WindowRows() + 1, int64_t{0}));
  return HasBlocks(p, window) && (p.kv_slots.unique || !IsOverwritten(p, window));
}

// The weighted sums of the window's columns to y.
template <int kVector>
__device__ void SumWindow(const CompressCall& p, const Window& window, float* y,
                          WindowSum<kVector>* joined) {
  using Floats = Vector<float, kVector>;
  const int half = (1 + p.overlap) * p.size;
  const auto ratio = static_cast<uint32_t>(p.ratio);
  for (int first = 0; first < p.size; first += static_cast<int>(blockDim.x) * kVector) {
    const int d = first + static_cast<int>(threadIdx.x) * kVector;
    const auto load = [&](uint32_t position, Floats& scores, Floats& values) {
      const uint32_t column = p.state_block.Quotient(position);
      const uint8_t* row =
          p.state.At(window.blocks[column], position - column * p.state_block.size, 0).data;
      // With overlap the newer half of a window has columns of its own.
      const bool is_newer = p.overlap == 1 && position + ratio > window.position;
      const float* kv = reinterpret_cast<const float*>(row) + (is_newer ? p.size : 0) + d;
      values = *reinterpret_cast<const Floats*>(kv);
      scores = *reinterpret_cast<const Floats*>(kv + half);
    };
    WindowSum<kVector> sum;
    if (d < p.size) SumRows<kVector>(window.begin, window.position + 1, load, sum);
    JoinGroups<kVector>(sum, joined);
    if (d >= p.size || threadIdx.y > 0) continue;
#pragma unroll
    for (int v = 0; v < kVector; ++v) y[d + v] = sum.at[v].Result();
  }
}

// Norms, rotates and stores y, which one warp has.
__device__ void StoreWindow(const CompressCall& p, const Window& window, float* y) {
  NormFloats(y, p.size, p.epsilon, [&p](int d) { return LoadElement(p.weight_type, p.weight, d); });
  RotateFloats(p.rotation, window.table_row, y);
  const RowAddress row = p.rows.AtSlot(window.slot, 0);
  if (p.plain_type != DataType::kUndefined) {
    return EncodePlainRow(p.plain_type, y, p.size, row.data);
  }
  RoundRowThrough<Bfloat16>(y, p.size);
  if (p.hadamard) {
    HadamardRotate(y, p.size);
    RoundRowThrough<Bfloat16>(y, p.size);
  }
  StoreGroupedFloats(p.format, y, row);
}

template <int kVector>
__global__ void __launch_bounds__(kWindowThreads, 1)
    CompressInsertKernel(const __grid_constant__ CompressCall p) {
  extern __shared__ float4 compress_shared[];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  float* y = reinterpret_cast<float*>(compress_shared);
  auto* joined = reinterpret_cast<WindowSum<kVector>*>(compress_shared + (p.size + 3) / 4);
  const int64_t first = int64_t{blockIdx.x} * p.block_tokens;
  const int64_t own = first + LaneId();
  const bool ends = LaneId() < p.block_tokens && own < p.tokens && EndsWindow(p, own);
  for (unsigned left = __ballot_sync(kAllLanes, ends); left != 0; left &= left - 1) {
    Window window;
    if (!FindWindow(p, first + __ffs(static_cast<int>(left)) - 1, window)) continue;
    SumWindow<kVector>(p, window, y, joined);
    __syncthreads();
    if (ThreadOfBlock() < kWarp) StoreWindow(p, window, y);
  }
}

template <int kVector>
Error LaunchCompressVectors(const CompressInsert& given, Stream stream) {
  // Neighbours in a sequence end at most one window, while there are blocks enough for all processors.
  constexpr int64_t kBlocks = 512;
  CompressCall call{given};
  call.state_block = Divisor(static_cast<uint32_t>(given.state.block_size));
  call.block_tokens = static_cast<int>(
      std::min({given.ratio, int64_t{kMostTokens}, CeilDiv(given.tokens, kBlocks)}));
  const dim3 block = WindowBlock(CeilDiv(given.size, kVector), given.WindowRows());
  const auto blocks = static_cast<unsigned>(CeilDiv(given.tokens, call.block_tokens));
  const size_t row_bytes = static_cast<size_t>(CeilDiv(given.size, 4)) * sizeof(float4);
  const LaunchShape shape{
      .grid = blocks, .block = block, .shared_bytes = row_bytes + JoinedBytes<kVector>(block)};
  return Launch(CompressInsertKernel<kVector>, shape, stream, call);
}

}  // namespace

Error LaunchStateInsert(const StateInsert& call, Stream stream) {
  if (call.slots.mapping.tokens == 0 || call.width == 0) return 0;
  switch (call.type) {
    case DataType::kFloat:
      return LaunchStateFrom<float>(call, stream);
    case DataType::kBfloat16:
      return LaunchStateFrom<Bfloat>(call, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

Error LaunchCompressInsert(const CompressInsert& call, Stream stream) {
  if (call.tokens == 0) return 0;
  const int64_t positions = call.table_columns * call.state.block_size;
  if (call.size > kLongestInsertRow || positions > kMaxWalked) return kTooLarge;
  const bool in_fours = call.size % 4 == 0 && IsAlignedRows(call.state);
  return in_fours ? LaunchCompressVectors<4>(call, stream) : LaunchCompressVectors<1>(call, stream);
}

}  // namespace pagefuse::cuda
