// SPDX-License-Identifier: Apache-2.0
// Inserts of one row a token: rows of published formats in registers, others a warp a row.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/grouped_insert.h"
#include "pagefuse/ops/kernels/cuda/grouped_rows.h"
#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/register_codes.h"
#include "pagefuse/ops/kernels/cuda/register_rows.h"
#include "pagefuse/ops/kernels/cuda/row_types.h"

namespace pagefuse::cuda {
namespace {

constexpr int kMostWarps = 4;  // of a block

__device__ int WarpOfBlock() { return static_cast<int>(threadIdx.x) / kWarp; }
// The token of this warp, which may be past the last one.
__device__ int64_t TokenOfWarp() {
  return (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp;
}

LaunchShape ShapeFor(int64_t tokens, int warps, size_t warp_bytes) {
  return {.grid = static_cast<unsigned>(CeilDiv(tokens, warps)),
          .block = static_cast<unsigned>(warps * kWarp),
          .shared_bytes = warps * warp_bytes};
}

template <typename T>
__global__ void GroupedInsertKernel(const __grid_constant__ GroupedInsert insert) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = TokenOfWarp();
  if (token >= insert.slots.mapping.tokens) return;
  const int64_t slot = insert.slots.OfToken(token);
  if (slot < 0) return;
  const auto* x = reinterpret_cast<const T*>(insert.coded + token * insert.coded_stride);
  EncodeRowOfGroups(insert.format, x, insert.plain + token * insert.plain_stride,
                    insert.rows.AtSlot(slot, 0));
}

template <typename T>
__global__ void RotatedInsertKernel(const __grid_constant__ GroupedInsert insert) {
  extern __shared__ float4 rotated_rows[];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = TokenOfWarp();
  if (token >= insert.slots.mapping.tokens) return;
  const int64_t slot = insert.slots.OfToken(token);
  if (slot < 0) return;
  const int size = static_cast<int>(insert.format.coded);
  float* x = reinterpret_cast<float*>(rotated_rows + WarpOfBlock() * CeilDiv(size, 4));
  LoadRow(reinterpret_cast<const T*>(insert.coded + token * insert.coded_stride), size, x);
  HadamardRotate(x, size);
  RoundRowThrough<Bfloat16>(x, size);
  EncodeRowOfGroups(insert.format, x, insert.plain + token * insert.plain_stride,
                    insert.rows.AtSlot(slot, 0));
}

template <typename T>
Error LaunchFrom(const GroupedInsert& insert, Stream stream) {
  const int64_t tokens = insert.slots.mapping.tokens;
  if (!insert.hadamard) {
    return Launch(GroupedInsertKernel<T>, ShapeFor(tokens, kMostWarps, 0), stream, insert);
  }
  constexpr int64_t kSharedBytes = 48 << 10;
  const int64_t row_bytes = CeilDiv(insert.format.coded, 4) * int64_t{sizeof(float4)};
  const auto warps = static_cast<int>(std::clamp<int64_t>(kSharedBytes / row_bytes, 1, kMostWarps));
  const LaunchShape shape = ShapeFor(tokens, warps, static_cast<size_t>(row_bytes));
  return Launch(RotatedInsertKernel<T>, shape, stream, insert);
}

// --- rows in registers ---

constexpr int kRegisterWarps = 8;  // of a block

// The slot of this lane's token, of kTokens from `first` on that the warp has, or -1.
template <int kTokens>
__device__ int64_t SlotOfLane(const CheckedSlots& slots, int64_t first) {
  const int own = LaneId() / (kWarp / kTokens);
  const int64_t token = first + own;
  int64_t slot = -1;
  if (slots.mapping.unique) {
    if (token < slots.mapping.tokens) slot = slots.mapping[token];
    if (slot < slots.num_slots) return slot;
    slots.errors.Tell(slots.input, token, slot);
    return -1;
  }
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    if (first + i >= slots.mapping.tokens) break;
    const int64_t of_token = slots.OfToken(first + i);
    if (i == own) slot = of_token;
  }
  return slot;
}

template <class Row>
__global__ void __launch_bounds__(kRegisterWarps* kWarp)
    RegisterInsertKernel(const __grid_constant__ GroupedInsert insert) {
  using Codes = typename Row::Codes;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  constexpr int kTokens = kWarp / Row::kLanes;
  const int64_t first = TokenOfWarp() * kTokens;
  if (first >= insert.slots.mapping.tokens) return;
  const int lane = LaneId() % Row::kLanes;
  const int64_t token = min(first + LaneId() / Row::kLanes, insert.slots.mapping.tokens - 1);
  const bool is_plain = lane < insert.format.plain * 2 / static_cast<int>(sizeof(uint4));
  RowPiece<Bfloat16> piece = {};
  uint4 plain = {};
  if (lane < Row::kCodedLanes) {
    const uint8_t* row = insert.coded + token * insert.coded_stride;
    piece = LoadPiece(reinterpret_cast<const Bfloat16*>(row) + lane * kPiece);
  }
  if (is_plain) {
    plain = reinterpret_cast<const uint4*>(insert.plain + token * insert.plain_stride)[lane];
  }
  const int64_t slot = SlotOfLane<kTokens>(insert.slots, first);
  float x[kPiece];
  Widen(piece, x);
  if constexpr (Row::kCoded == Row::kSize) {
    if (insert.hadamard) {
      HadamardRotatePieces<Row::kCoded>(x);
      RoundPiece(x);
    }
  }
  uint32_t codes[Codes::kWords];
  const float scale = EncodePiece<Codes>(insert.format.groups, x, codes);
  if (slot < 0) return;
  const RowAddress to = RowOfSlot(insert.rows, slot);
  StoreCodes<Row>(insert.format, codes, scale, lane, to);
  if (is_plain) reinterpret_cast<uint4*>(to.data + insert.format.PlainOffset())[lane] = plain;
}

// Whether such a kernel reads and writes the row in pieces, of which no lane has two plain ones.
template <class Row>
bool IsInPieces(const GroupedInsert& insert) {
  constexpr int64_t kBytes = sizeof(uint4);
  const int64_t plain_bytes = 2 * insert.format.plain;
  return IsAligned(insert.coded, kBytes) && insert.coded_stride % kBytes == 0 &&
         StoresPieces(insert.format, insert.rows) &&
         (plain_bytes == 0 ||
          (IsAligned(insert.plain, kBytes) && insert.plain_stride % kBytes == 0 &&
           plain_bytes % kBytes == 0 && plain_bytes <= Row::kLanes * kBytes));
}

template <class Row>
Error LaunchRegisters(const GroupedInsert& insert, Stream stream) {
  const int64_t warps = CeilDiv(insert.slots.mapping.tokens, kWarp / Row::kLanes);
  return Launch(RegisterInsertKernel<Row>, ShapeFor(warps, kRegisterWarps, 0), stream, insert);
}

// Launches what has such rows; false where they are others.
bool LaunchInRegisters(const GroupedInsert& insert, Stream stream, Error& error) {
  if (insert.source_type != DataType::kBfloat16) return false;
  const auto launch_if = [&]<class Row>() {
    constexpr bool kRotates = Row::kCoded == Row::kSize;
    if (!Row::Is(insert.format) || !IsInPieces<Row>(insert) || (insert.hadamard && !kRotates)) {
      return false;
    }
    error = LaunchRegisters<Row>(insert, stream);
    return true;
  };
  return launch_if.template operator()<V4Row>() || launch_if.template operator()<DsMlaRow>() ||
         launch_if.template operator()<IndexerRow>() ||
         launch_if.template operator()<IndexerFloatRow>() ||
         launch_if.template operator()<IndexerE2M1Row>();
}

// --- rows side by side ---

__global__ void JoinedInsertKernel(const __grid_constant__ JoinedInsert insert) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t token = TokenOfWarp();
  if (token >= insert.slots.mapping.tokens) return;
  const int64_t slot = insert.slots.OfToken(token);
  if (slot < 0) return;
  uint8_t* to = insert.rows.AtSlot(slot, 0).data;
  for (const JoinedInsert::Part& part : insert.parts) {
    CopyBytes(part.rows + token * part.bytes, part.bytes, to);
    to += part.bytes;
  }
}

}  // namespace

Error LaunchGroupedInsert(const GroupedInsert& insert, Stream stream) {
  if (insert.slots.mapping.tokens == 0) return 0;
  if (insert.hadamard && insert.format.coded > kLongestHadamardRow) return kTooLarge;
  Error error = 0;
  if (LaunchInRegisters(insert, stream, error)) return error;
  return ForRowType(insert.source_type,
                    [&]<typename T>() { return LaunchFrom<T>(insert, stream); });
}

Error LaunchJoinedInsert(const JoinedInsert& insert, Stream stream) {
  if (insert.slots.mapping.tokens == 0) return 0;
  const LaunchShape shape = ShapeFor(insert.slots.mapping.tokens, kMostWarps, 0);
  return Launch(JoinedInsertKernel, shape, stream, insert);
}

}  // namespace pagefuse::cuda
