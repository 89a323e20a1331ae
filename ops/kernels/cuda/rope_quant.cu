// SPDX-License-Identifier: Apache-2.0
// InvRopeQuant and IndexerQRopeQuant: rows of published sizes in registers, the heads of a token in a block; others a warp a
// (token, head) row, floats in shared memory between what is read and what is stored.
#include "pagefuse/ops/kernels/cuda/grouped_rows.h"
#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/register_codes.h"
#include "pagefuse/ops/kernels/cuda/register_rows.h"
#include "pagefuse/ops/kernels/cuda/rope_quant.h"
#include "pagefuse/ops/kernels/cuda/rotate_row.h"
#include "pagefuse/ops/kernels/cuda/row_types.h"

namespace pagefuse::cuda {
namespace {

template <typename T>
__device__ void LoadSource(const RotatedRows& rows, int64_t row, float* x) {
  LoadRow(static_cast<const T*>(rows.source) + row * rows.size, rows.size, x);
}

bool SuitsRegisters(const RotatedRows& rows, int size, const void* codes) {
  constexpr int64_t kBytes = sizeof(uint4);
  return rows.type == DataType::kBfloat16 && rows.size == size && RotatesPieces(rows.rotation) &&
         IsAligned(rows.source, kBytes) && IsAligned(codes, kBytes);
}

// --- InvRopeQuant ---

constexpr int kOutputSize = 512;
using OutputFormat = PieceFormat<GroupCodes::kE4M3, /*kIsPowerOfTwo=*/true, 128 / kPiece>;

__global__ void __launch_bounds__(kHeadWarps* kWarp)
    InvRopeQuantRegisters(const __grid_constant__ InvRopeQuant p) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = blockIdx.x;
  const int lane = LaneId();
  const auto load = [&](int head) {
    const int64_t at = p.rows.Row(token, head) * kOutputSize + lane * kPiece;
    return LoadPiece(static_cast<const Bfloat16*>(p.rows.source) + at);
  };
  const OwnHeads<kOutputSize> heads(p.rows.heads);
  const auto first = heads.LoadFirst(load);
  const PieceRotation</*kInterleaved=*/true> rotation(p.rows.rotation, TableRowOf(p.rows, token),
                                                      lane * kPiece);
  const int scale_bytes = kOutputSize / 128 * static_cast<int>(p.format.ScaleBytes());
  heads.ForEach(first, load, [&](int head, bool, const RowPiece<Bfloat16>& piece) {
    float x[kPiece];
    Widen(piece, x);
    rotation.Rotate(x, /*rounds=*/false);
    uint32_t codes[OutputFormat::kWords];
    const float scale = EncodePiece<OutputFormat>(p.format, x, codes);
    const int64_t row = p.rows.Row(token, head);
    StoreWords(codes, p.codes + row * kOutputSize + lane * kPiece);
    StorePieceScale<OutputFormat>(p.format.scale, scale, lane, p.scales + row * scale_bytes);
  });
}

template <typename T>
__global__ void InvRopeQuantKernel(const __grid_constant__ InvRopeQuant p) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = blockIdx.x;
  const int head = RowOfWarp(), size = p.rows.size;
  if (head >= p.rows.heads) return;
  float* x = FloatsOfWarp(size);
  const int64_t row = p.rows.Row(token, head);
  LoadSource<T>(p.rows, row, x);
  RotateByPosition(p.rows, token, x);
  const int groups = size / p.group;
  const auto scale_bytes = static_cast<int>(p.format.ScaleBytes());
  uint8_t* scales = p.scales + row * groups * scale_bytes;
  EncodeGroups(p.format, x, {groups, p.group}, p.codes + row * size, [&](int g, float scale) {
    StoreGroupScale(p.format.scale, scale, scales + g * scale_bytes);
  });
}

// --- IndexerQRopeQuant ---

// Elements [begin, begin + n) rounded to bfloat16, where they become codes.
__device__ void RoundForCodes(const IndexerQRopeQuant& p, float* x, int begin, int n) {
  if (!p.is_plain) RoundRowThrough<Bfloat16>(x + begin, n);
}

__device__ void RotateQuery(const IndexerQRopeQuant& p, int64_t token, float* x) {
  RotateByPosition(p.rows, token, x);
  RoundForCodes(p, x, p.rows.rotation.offset, 2 * p.rows.rotation.pairs);
  if (!p.hadamard) return;
  HadamardRotate(x, p.rows.size);
  RoundForCodes(p, x, 0, p.rows.size);
}

__device__ float LoadWeight(const IndexerQRopeQuant& p, int64_t row) {
  return LoadElement(p.weight_type, p.weights, row);
}
// One product after the other, each rounded. From one lane.
__device__ void StoreWeight(const IndexerQRopeQuant& p, int64_t row, float weight,
                            float query_scale) {
  const float scaled = p.scales == nullptr ? __fmul_rn(weight, query_scale) : weight;
  p.weights_out[row] = __fmul_rn(__fmul_rn(scaled, p.softmax_scale), p.head_scale);
}

__device__ void EncodeQuery(const IndexerQRopeQuant& p, int64_t row, const float* x) {
  const int groups = p.rows.size / p.group;
  uint8_t* codes = p.codes + row * p.format.CodeBytes(p.rows.size);
  EncodeGroups(p.format, x, {groups, p.group}, codes, [&](int g, float scale) {
    if (p.scales != nullptr) {
      StoreGroupScale(p.format.scale, scale, p.scales + row * groups + g);
    }
    if (g == 0) StoreWeight(p, row, LoadWeight(p, row), scale);
  });
}

template <typename T>
__global__ void IndexerQRopeQuantKernel(const __grid_constant__ IndexerQRopeQuant p) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = blockIdx.x;
  const int head = RowOfWarp(), size = p.rows.size;
  if (head >= p.rows.heads) return;
  float* x = FloatsOfWarp(size);
  const int64_t row = p.rows.Row(token, head);
  LoadSource<T>(p.rows, row, x);
  RotateQuery(p, token, x);
  if (!p.is_plain) return EncodeQuery(p, row, x);
  StoreRow(reinterpret_cast<T*>(p.codes) + row * size, size, [=](int d) { return T(x[d]); });
  if (LaneId() == 0) StoreWeight(p, row, LoadWeight(p, row), 1.0f);
}

constexpr int kQuerySize = 128;

struct QueryPiece {
  RowPiece<Bfloat16> elements;
  float weight;
};

template <bool kInterleaved, class Format>
__global__ void __launch_bounds__(kHeadWarps* kWarp)
    IndexerQRopeQuantRegisters(const __grid_constant__ IndexerQRopeQuant p) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = blockIdx.x;
  const int lane = LaneId() % kRowLanes<kQuerySize>;
  const auto load = [&](int head) {
    const int64_t row = p.rows.Row(token, head);
    const auto* source = static_cast<const Bfloat16*>(p.rows.source) + row * kQuerySize;
    return QueryPiece{LoadPiece(source + lane * kPiece), LoadWeight(p, row)};
  };
  const OwnHeads<kQuerySize> heads(p.rows.heads);
  const auto first = heads.LoadFirst(load);
  const PieceRotation<kInterleaved> rotation(p.rows.rotation, TableRowOf(p.rows, token),
                                             lane * kPiece);
  heads.ForEach(first, load, [&](int head, bool is_one, const QueryPiece& query) {
    float x[kPiece];
    Widen(query.elements, x);
    rotation.Rotate(x, /*rounds=*/true);
    if (p.hadamard) {
      HadamardRotatePieces<kQuerySize>(x);
      RoundPiece(x);
    }
    uint32_t codes[Format::kWords];
    const float scale = EncodePiece<Format>(p.format, x, codes);
    if (!is_one) return;
    const int64_t row = p.rows.Row(token, head);
    constexpr int kRowBytes = kRowLanes<kQuerySize> * sizeof(codes);
    constexpr int kGroups = kRowLanes<kQuerySize> / Format::kLanes;
    StoreWords(codes, p.codes + row * kRowBytes + lane * sizeof(codes));
    if (p.scales != nullptr) {
      StorePieceScale<Format>(p.format.scale, scale, lane, p.scales + row * kGroups);
    }
    if (lane == 0) StoreWeight(p, row, query.weight, scale);
  });
}

using QueryFp8 = PieceFormat<GroupCodes::kE4M3, /*kIsPowerOfTwo=*/true, kQuerySize / kPiece>;
using QueryMxfp4 = PieceFormat<GroupCodes::kE2M1, /*kIsPowerOfTwo=*/true, 32 / kPiece>;

// --- launches ---

// launch.operator()<T>() with the rows' type, where there are rows.
template <class F>
Error LaunchRows(const RotatedRows& rows, const F& launch) {
  if (rows.tokens == 0 || rows.heads == 0 || rows.size == 0) return 0;
  if (rows.size > kLongestInsertRow) return kTooLarge;
  return ForRowType(rows.type, launch);
}

LaunchShape WarpRowsGrid(const RotatedRows& rows) {
  return InsertGridFor(rows.tokens, rows.heads, rows.size);
}

template <class Format>
Error LaunchQueryRegisters(const IndexerQRopeQuant& call, Stream stream) {
  return Launch(call.rows.rotation.interleaved ? IndexerQRopeQuantRegisters<true, Format>
                                               : IndexerQRopeQuantRegisters<false, Format>,
                HeadsGrid(call.rows.tokens, call.rows.heads, kWarpRows<kQuerySize>), stream, call);
}

template <typename T>
Error LaunchQuery(const IndexerQRopeQuant& call, Stream stream) {
  if (!call.is_plain && SuitsRegisters(call.rows, kQuerySize, call.codes)) {
    if (QueryFp8::Is(call.format, call.group) && call.scales == nullptr) {
      return LaunchQueryRegisters<QueryFp8>(call, stream);
    }
    if (QueryMxfp4::Is(call.format, call.group)) {
      return LaunchQueryRegisters<QueryMxfp4>(call, stream);
    }
  }
  return Launch(IndexerQRopeQuantKernel<T>, WarpRowsGrid(call.rows), stream, call);
}

template <typename T>
Error LaunchOutput(const InvRopeQuant& call, Stream stream) {
  if (OutputFormat::Is(call.format, call.group) && call.rows.rotation.interleaved &&
      SuitsRegisters(call.rows, kOutputSize, call.codes) && IsAligned(call.scales, sizeof(float))) {
    return Launch(InvRopeQuantRegisters,
                  HeadsGrid(call.rows.tokens, call.rows.heads, kWarpRows<kOutputSize>), stream,
                  call);
  }
  return Launch(InvRopeQuantKernel<T>, WarpRowsGrid(call.rows), stream, call);
}

}  // namespace

Error LaunchInvRopeQuant(const InvRopeQuant& call, Stream stream) {
  return LaunchRows(call.rows, [&]<typename T>() { return LaunchOutput<T>(call, stream); });
}

Error LaunchIndexerQRopeQuant(const IndexerQRopeQuant& call, Stream stream) {
  return LaunchRows(call.rows, [&]<typename T>() { return LaunchQuery<T>(call, stream); });
}

}  // namespace pagefuse::cuda
