// SPDX-License-Identifier: Apache-2.0
// InvRopeQuant and IndexerQRopeQuant: a warp a (token, head) row, floats between what is read and what is stored.
#include "pagefuse/ops/kernels/cuda/grouped_rows.h"
#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/rope_quant.h"
#include "pagefuse/ops/kernels/cuda/rotate_row.h"

namespace pagefuse::cuda {
namespace {

template <typename T>
__device__ void LoadSource(const RotatedRows& rows, int64_t row, float* x) {
  LoadRow(static_cast<const T*>(rows.source) + row * rows.size, rows.size, x);
}

// --- InvRopeQuant ---

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

// One product after the other, each rounded. From one lane.
__device__ void StoreWeight(const IndexerQRopeQuant& p, int64_t row, float query_scale) {
  const float weight = LoadElement(p.weight_type, p.weights, row);
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
    if (g == 0) StoreWeight(p, row, scale);
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
  if (LaneId() == 0) StoreWeight(p, row, 1.0f);
}

// --- launches ---

// launch.operator()<T>(shape) with the rows' type, where there are rows.
template <class F>
Error LaunchRows(const RotatedRows& rows, const F& launch) {
  if (rows.tokens == 0 || rows.heads == 0 || rows.size == 0) return 0;
  if (rows.size > kLongestInsertRow) return kTooLarge;
  const LaunchShape shape = InsertGridFor(rows.tokens, rows.heads, rows.size);
  switch (rows.type) {
    case DataType::kFloat:
      return launch.template operator()<float>(shape);
    case DataType::kFloat16:
      return launch.template operator()<Float16>(shape);
    case DataType::kBfloat16:
      return launch.template operator()<Bfloat16>(shape);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

Error LaunchInvRopeQuant(const InvRopeQuant& call, Stream stream) {
  return LaunchRows(call.rows, [&]<typename T>(const LaunchShape& shape) {
    return Launch(InvRopeQuantKernel<T>, shape, stream, call);
  });
}

Error LaunchIndexerQRopeQuant(const IndexerQRopeQuant& call, Stream stream) {
  return LaunchRows(call.rows, [&]<typename T>(const LaunchShape& shape) {
    return Launch(IndexerQRopeQuantKernel<T>, shape, stream, call);
  });
}

}  // namespace pagefuse::cuda
