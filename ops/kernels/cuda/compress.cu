// SPDX-License-Identifier: Apache-2.0
// CompressorStateInsert: a block a token. CompressCacheInsert: a block, or a cluster of them, a few neighbouring tokens, of which most end
// no window.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/cluster.h"
#include "pagefuse/ops/kernels/cuda/compress.h"
#include "pagefuse/ops/kernels/cuda/compress_row.h"
#include "pagefuse/ops/kernels/cuda/compress_window.h"
#include "pagefuse/ops/kernels/cuda/register_codes.h"
#include "pagefuse/ops/kernels/cuda/register_rows.h"
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

constexpr int kMostStateThreads = 256, kStateBlocks = 6;  // of a processor

struct StateCall : StateInsert {
  Divisor ratio_divisor, block_divisor;  // of numbers below kMaxWalked
};

// n / size for n that is not negative.
__device__ int64_t Quotient(int64_t n, const Divisor& divisor, int64_t size) {
  return n < kMaxWalked ? divisor.Quotient(static_cast<uint32_t>(n)) : n / size;
}

// The row's elements are on their way while its slot and position come.
template <typename T, int kVector>
__global__ void __launch_bounds__(kMostStateThreads, kStateBlocks)
    StateInsertKernel(const __grid_constant__ StateCall p) {
  using Floats = Vector<float, kVector>;
  using Source = Vector<T, kVector>;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = blockIdx.x;
  const T* kv = static_cast<const T*>(p.kv) + token * p.width;
  const T* score = static_cast<const T*>(p.score) + token * p.width;
  Source x, s;
  const auto load = [&](int64_t d) {
    if (d >= p.width) return;
    x = *reinterpret_cast<const Source*>(kv + d);
    s = *reinterpret_cast<const Source*>(score + d);
  };
  int64_t d = static_cast<int>(threadIdx.x) * kVector;
  load(d);
  const int64_t position = p.positions[token];
  const int64_t slot = p.slots.OfToken(token);
  if (slot < 0) return;
  if (position < 0) {
    if (threadIdx.x == 0) p.slots.errors.Tell(p.positions_input, token, position);
    return;
  }
  const int64_t period = Quotient(position, p.ratio_divisor, p.ratio);
  const int64_t block = Quotient(slot, p.block_divisor, p.rows.block_size);
  const float* ape = p.ape + (position - period * p.ratio) * p.width;
  auto* row = reinterpret_cast<float*>(p.rows.At(block, slot - block * p.rows.block_size, 0).data);
  while (d < p.width) {
    const Floats a = *reinterpret_cast<const Floats*>(ape + d);
    Floats keys, scores;
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      keys.at[v] = ToFloat(x.at[v]);
      scores.at[v] = __fadd_rn(ToFloat(s.at[v]), a.at[v]);
    }
    *reinterpret_cast<Floats*>(row + d) = keys;
    *reinterpret_cast<Floats*>(row + p.half + d) = scores;
    d += blockDim.x * kVector;
    load(d);
  }
}

template <typename T, int kVector>
Error LaunchStateVectors(const StateInsert& given, Stream stream) {
  const auto divisor = [](int64_t size) {
    return Divisor(static_cast<uint32_t>(std::min(size, kMaxWalked)));
  };
  StateCall call{given};
  call.ratio_divisor = divisor(given.ratio);
  call.block_divisor = divisor(given.rows.block_size);
  const int64_t threads = CeilDiv(CeilDiv(given.width, kVector), kWarp) * kWarp;
  const LaunchShape shape{
      .grid = static_cast<unsigned>(given.slots.mapping.tokens),
      .block = static_cast<unsigned>(std::min<int64_t>(threads, kMostStateThreads))};
  return Launch(StateInsertKernel<T, kVector>, shape, stream, call);
}

template <typename T>
Error LaunchStateFrom(const StateInsert& call, Stream stream) {
  constexpr int64_t kBytes = 4 * sizeof(T);
  const bool in_fours = call.width % 4 == 0 && call.half % 4 == 0 && IsAlignedRows(call.rows) &&
                        IsAligned(call.kv, kBytes) && IsAligned(call.score, kBytes) &&
                        IsAligned(call.ape, sizeof(float4));
  return in_fours ? LaunchStateVectors<T, 4>(call, stream) : LaunchStateVectors<T, 1>(call, stream);
}

// --- CompressCacheInsert ---

// The weighted sums of the block's columns of a window to y.
template <int kVector, int kRows>
__device__ void SumWindow(const CompressCall& p, const Window& window, float* y,
                          WindowSum<kVector>* joined) {
  using Floats = Vector<float, kVector>;
  const int half = (1 + p.overlap) * p.size;
  const auto ratio = static_cast<uint32_t>(p.ratio);
  const int begin = BlockOfCluster(p) * p.columns, end = min(begin + p.columns, p.size);
#pragma unroll 1
  for (int first = begin; first < end; first += static_cast<int>(blockDim.x) * kVector) {
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
    if (d < end) SumRows<kVector, kRows>(window.begin, window.position + 1, load, sum);
    JoinGroups<kVector>(sum, joined);
    if (d >= end || threadIdx.y > 0) continue;
#pragma unroll
    for (int v = 0; v < kVector; ++v) y[d + v] = sum.at[v].Result();
  }
}

// Until all blocks of the cluster have come here.
__device__ void WaitForBlocks(const CompressCall& p) {
  if (p.blocks == 1) return __syncthreads();
  ptx::WaitForCluster();
}

// Blocks for windows: threads, blocks of a processor, rows that a thread loads at a time.
struct AnyWindows {
  static constexpr int kThreads = kWindowThreads, kBlocks = 1, kRows = kWindowRows;
};
// Few threads, so many of them that all windows of a step are on their way.
struct ShortWindows {
  static constexpr int kThreads = 128, kBlocks = 7, kRows = 2, kLongest = 16;
};
struct LongWindows {
  static constexpr int kThreads = kWindowThreads, kBlocks = 1, kRows = 8, kShortest = 64;
};

template <int kVector, class Row, class Windows>
__global__ void __launch_bounds__(Windows::kThreads, Windows::kBlocks)
    CompressInsertKernel(const __grid_constant__ CompressCall p) {
  extern __shared__ float4 compress_shared[];
  __shared__ TokenList tokens;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  float* y = reinterpret_cast<float*>(compress_shared);
  auto* joined = reinterpret_cast<WindowSum<kVector>*>(compress_shared + (p.size + 3) / 4);
  const int64_t first = int64_t{blockIdx.x} / p.blocks * p.block_tokens;
  tokens.Load(p, first);
  tokens.ForEachEnd(p, [&](int t) {
    Window window;
    if (!FindWindow(p, first + t, tokens.at[t], window)) return;
    const Row row(p, window);
    SumWindow<kVector, Windows::kRows>(p, window, y, joined);
    WaitForBlocks(p);
    if (BlockOfCluster(p) == 0) row.Store(p, tokens.at[t].slot, y);
    if (p.blocks > 1) ptx::WaitForCluster();  // the others' sums are read
  });
}

// --- launches ---

template <int kVector, class Row, class Windows = AnyWindows>
Error LaunchCompressRows(const CompressInsert& given, int cluster, Stream stream) {
  // Neighbours in a sequence end at most one window, while there are blocks enough for all processors.
  constexpr int64_t kBlocks = 512, kClusters = 32;
  CompressCall call{given};
  call.state_block = Divisor(static_cast<uint32_t>(given.state.block_size));
  call.blocks = cluster;
  call.columns = static_cast<int>(CeilDiv(given.size, cluster));
  const int64_t tokens = CeilDiv(given.tokens, cluster > 1 ? kClusters : kBlocks);
  call.block_tokens = static_cast<int>(std::min({given.ratio, int64_t{kMostTokens}, tokens}));
  const dim3 block = WindowBlock(CeilDiv(call.columns, kVector), given.WindowRows(),
                                 Windows::kThreads, Windows::kRows);
  const int64_t clusters = CeilDiv(given.tokens, call.block_tokens);
  const size_t row_bytes = static_cast<size_t>(CeilDiv(given.size, 4)) * sizeof(float4);
  const LaunchShape shape{.grid = static_cast<unsigned>(clusters * cluster),
                          .block = block,
                          .shared_bytes = row_bytes + JoinedBytes<kVector>(block)};
  return LaunchClusters(CompressInsertKernel<kVector, Row, Windows>, shape, cluster, stream, call);
}

template <class Row>
bool SuitsRegisters(const CompressInsert& call) {
  return call.plain_type == DataType::kUndefined && call.size == Row::kSize &&
         call.format.elements() == Row::kSize && Row::Is(call.format) &&
         (!call.hadamard || Row::kCoded == Row::kSize) && call.rotation.interleaved &&
         RotatesPieces(call.rotation) && StoresPieces(call.format, call.rows);
}

template <class Row>
Error LaunchShort(const CompressInsert& call, Stream stream) {
  return LaunchCompressRows<4, PublishedRow<Row>, ShortWindows>(call, 1, stream);
}

// The columns of long windows are cut for a cluster, whose blocks have more threads than a row then.
Error LaunchV4Rows(const CompressInsert& call, Stream stream) {
  if (call.WindowRows() <= ShortWindows::kLongest) return LaunchShort<V4RowOf<4>>(call, stream);
  const int cluster =
      call.WindowRows() < LongWindows::kShortest ? 1 : std::min(MostClusterBlocks(), 4);
  return LaunchCompressRows<4, PublishedRow<V4RowOf<4>>, LongWindows>(call, cluster, stream);
}

Error LaunchCompressFours(const CompressInsert& call, Stream stream) {
  if (SuitsRegisters<V4RowOf<4>>(call)) return LaunchV4Rows(call, stream);
  if (SuitsRegisters<IndexerRowOf<4>>(call)) return LaunchShort<IndexerRowOf<4>>(call, stream);
  if (SuitsRegisters<IndexerE2M1RowOf<4>>(call)) {
    return LaunchShort<IndexerE2M1RowOf<4>>(call, stream);
  }
  return LaunchCompressRows<4, AnyRow>(call, 1, stream);
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
  return in_fours ? LaunchCompressFours(call, stream)
                  : LaunchCompressRows<1, AnyRow>(call, 1, stream);
}

}  // namespace pagefuse::cuda
