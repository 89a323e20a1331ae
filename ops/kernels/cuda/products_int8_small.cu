// SPDX-License-Identifier: Apache-2.0
// Up to 64 rows: bound by the memory's bandwidth. A block makes 8 columns of y, or 16, of up to 16 rows; its warps
// share K. More rows have blocks of their own, which find the codes in the L2 cache. A lane loads 16 bytes of a row
// of codes at once, and lanes of a row then exchange words so that all of them hold a part of the same block.
#include "pagefuse/ops/kernels/cuda/int8_parts.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/product_parts.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {
namespace {

constexpr int kWarps = 8, kColumns = 8;
constexpr int64_t kManyColumns = 4096;  // from which on a block makes two tiles of them

struct SmallInt8Call {
  Int8Call product;
  Epilogue epilogue;
};

// Words 0 to 3 of lane t become word t of lanes 0 to 3 (4 bits); or the halves of two blocks are
// dealt out so that each lane has two words of both (8 bits).
template <int kBits>
__device__ void Deal(uint4& words, int t) {
  const auto swap = [](uint32_t& low, uint32_t& high, bool upper, int distance) {
    const uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, upper ? low : high, distance);
    (upper ? low : high) = got;
  };
  if constexpr (kBits == 4) {
    swap(words.x, words.y, t % 2 != 0, 1);
    swap(words.z, words.w, t % 2 != 0, 1);
  }
  swap(words.x, words.z, t / 2 != 0, 2);
  swap(words.y, words.w, t / 2 != 0, 2);
}

// What a lane has loaded of a tile: its 16 bytes, and scale and zero point of the block that they are of.
struct Piece {
  uint4 words;
  float scale;
  uint32_t zero;
};

// kTiles: tiles of columns of a matrix, or one of each of two matrices.
template <int kBits, bool kGated, bool kTall, int kTiles>
__global__ void __launch_bounds__(kWarps * 32)
    SmallInt8Kernel(const __grid_constant__ SmallInt8Call call) {
  constexpr int kBlocks = kBits == 4 ? 4 : 2;  // that the 16 bytes of four lanes hold
  constexpr int kLoads = kTiles == 1 ? 8 : kTall ? 3 : 4, kRows = kTall ? 16 : 8;
  __shared__ float sums[kWarps][kTiles][kRows][kColumns];
  const Int8Call& p = call.product;
  if (!p.constant_weights) ptx::WaitForKernelBefore();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int group = lane / 4, t = lane % 4;
  const int64_t column0 = int64_t{blockIdx.x} * (kGated ? kColumns : kColumns * kTiles);
  const int code_blocks = static_cast<int>(p.row_bytes * 8 / kBits / kRoundBlock);
  // The column of each tile that this lane's row of codes is.
  const uint4* words[kTiles];
  const float* scales[kTiles];
  const uint8_t* zeros[kTiles];
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const Int8Call::Weight& w = kGated && j == 1 ? p.up : p.weight;
    const int64_t n = min(column0 + (kGated ? 0 : j * kColumns) + group, p.n - 1);
    words[j] = reinterpret_cast<const uint4*>(w.codes + n * p.row_bytes) + t;
    scales[j] = w.scales + n * p.scale_blocks;
    zeros[j] = w.zero_codes == nullptr ? nullptr : w.zero_codes + n * p.zero_row_bytes;
  }
  const auto load = [&](int tile, int chunk) {
    const int block = chunk * kBlocks + t * kBlocks / 4;
    Piece piece{uint4{}, 0.0f, 0};
    if (block >= code_blocks) return piece;
    piece.words = __ldcs(words[tile] + chunk * 4);
    piece.scale = scales[tile][block >> p.scale_shift];
    if (kBits == 4) piece.zero = ZeroBytes(zeros[tile], block >> p.scale_shift);
    return piece;
  };
  Piece pieces[kLoads][kTiles];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) pieces[i][j] = load(j, i * kWarps + warp);
  }
  ptx::LetNextKernelBegin();
  if (p.constant_weights) ptx::WaitForKernelBefore();
  float own[kTiles][4] = {};
  // A row's bytes of a block, and its unit; zeros for what is not there.
  const int row0 = static_cast<int>(blockIdx.y) * kRows, rows = static_cast<int>(p.m) - row0;
  const auto* x =
      reinterpret_cast<const uint32_t*>(p.x + int64_t{row0} * p.blocks * kRoundBlock) + t;
  const float* units = p.units + int64_t{row0} * p.blocks;
  const auto rounded = [&](int row, int block, uint32_t& low, uint32_t& high) {
    low = high = 0;
    if (row >= rows || block >= p.blocks) return 0.0f;
    const int at = row * p.blocks + block;
    low = x[at * int64_t{kRoundBlock / 4}];
    high = x[at * int64_t{kRoundBlock / 4} + 4];
    return units[at];
  };
  const int chunks = (p.blocks + kBlocks - 1) / kBlocks;
  for (int round = warp; round < chunks; round += kLoads * kWarps) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int chunk = round + i * kWarps;
      if (chunk >= chunks) break;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) Deal<kBits>(pieces[i][j].words, t);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        uint32_t a[4] = {};
        const float unit = rounded(group, chunk * kBlocks + b, a[0], a[2]);
        float tall_unit = 0;
        if constexpr (kTall) tall_unit = rounded(group + 8, chunk * kBlocks + b, a[1], a[3]);
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          const Piece& piece = pieces[i][j];
          const uint4& w = piece.words;
          const uint32_t first = kBits == 4 ? (b == 0   ? w.x
                                               : b == 1 ? w.y
                                               : b == 2 ? w.z
                                                        : w.w)
                                            : (b == 0 ? w.x : w.z);
          const uint32_t second = b == 0 ? w.y : w.w;  // of 8 bits
          const int holder = b * 4 / kBlocks;          // which of four lanes loaded the block
          uint32_t zero = 0x08080808u;
          if (kBits == 4 && p.weight.zero_codes != nullptr) {
            zero = __shfl_sync(0xFFFFFFFFu, piece.zero, group * 4 + holder);
          }
          uint32_t b0, b1;
          UnpackCodes<kBits>(first, second, zero, b0, b1);
          int32_t c[4] = {kSumBase, kSumBase, kSumBase, kSumBase};
          ptx::MmaInt8(c, a, b0, b1);
          const float left = __shfl_sync(0xFFFFFFFFu, piece.scale, t * 8 + holder);
          const float right = __shfl_sync(0xFFFFFFFFu, piece.scale, t * 8 + 4 + holder);
          own[j][0] += unit * (left * SumOf(c[0]));
          own[j][1] += unit * (right * SumOf(c[1]));
          if constexpr (kTall) {
            own[j][2] += tall_unit * (left * SumOf(c[2]));
            own[j][3] += tall_unit * (right * SumOf(c[3]));
          }
        }
      }
#pragma unroll
      for (int j = 0; j < kTiles; ++j) pieces[i][j] = load(j, chunk + kLoads * kWarps);
    }
  }
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    sums[warp][j][group][t * 2] = own[j][0];
    sums[warp][j][group][t * 2 + 1] = own[j][1];
    if constexpr (kTall) {
      sums[warp][j][group + 8][t * 2] = own[j][2];
      sums[warp][j][group + 8][t * 2 + 1] = own[j][3];
    }
  }
  __syncthreads();
  const auto total = [&](int tile, int row, int column) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) sum += sums[i][tile][row][column];
    return sum;
  };
  constexpr int kAcross = kGated ? kColumns : kColumns * kTiles;
  const int at = static_cast<int>(threadIdx.x), row = at / kAcross, column = at % kAcross;
  if (row >= rows || row >= kRows || column0 + column >= p.n) return;
  if constexpr (kGated) {
    call.epilogue.WriteGated<float>(row0 + row, column0 + column, total(0, row, column),
                                    total(1, row, column));
  } else {
    call.epilogue.Write<float>(row0 + row, column0 + column,
                               total(column / kColumns, row, column % kColumns));
  }
}

template <int kBits, bool kGated, int kTiles>
Error LaunchOf(const Int8Call& product, const ProductParams& params, Stream stream) {
  const SmallInt8Call call{product, Epilogue::Of(params)};
  constexpr int kAcross = kGated ? kColumns : kColumns * kTiles;
  const int rows = params.m > 8 ? 16 : 8;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(params.n, kAcross)),
                                       static_cast<unsigned>(CeilDiv(params.m, rows))),
                          .block = kWarps * 32};
  return rows > 8 ? Launch(SmallInt8Kernel<kBits, kGated, true, kTiles>, shape, stream, call)
                  : Launch(SmallInt8Kernel<kBits, kGated, false, kTiles>, shape, stream, call);
}

template <int kBits>
Error LaunchBits(const Int8Call& call, const ProductParams& params, Stream stream) {
  if (params.gated()) return LaunchOf<kBits, true, 2>(call, params, stream);
  return params.n >= kManyColumns ? LaunchOf<kBits, false, 2>(call, params, stream)
                                  : LaunchOf<kBits, false, 1>(call, params, stream);
}

}  // namespace

Error LaunchInt8Small(const Int8Call& call, const ProductParams& params, Stream stream) {
  return params.weight.bits == 4 ? LaunchBits<4>(call, params, stream)
                                 : LaunchBits<8>(call, params, stream);
}

}  // namespace pagefuse::cuda
