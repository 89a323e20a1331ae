// SPDX-License-Identifier: Apache-2.0
// SparseMlaAttention: which kernel takes a call, and the launch of the plain one.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/shared_memory.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_plain.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_tiles.h"

namespace pagefuse::cuda {
namespace {

using latent::PlainCut, latent::PlainShape;

int RowBytes(const SparseMla& call) {
  if (!call.plain) return static_cast<int>(call.grouped.DataBytes());
  return call.head_size * (call.element == DataType::kFloat ? 4 : 2);
}

// Rows are copied ahead where there is memory for it.
PlainShape ShapeOf(const SparseMla& call) {
  const int64_t heads = std::clamp<int64_t>(call.heads, 1, latent::kPlainHeads);
  PlainShape shape{.head_size = call.head_size,
                   .warps = static_cast<int>(CeilDiv(heads, latent::kRows)),
                   .row_bytes = RowBytes(call)};
  const int most = MostShared();
  if (shape.bytes() > most) shape.row_bytes = 0;
  while (shape.bytes() > most && shape.warps > 1) --shape.warps;
  return shape;
}

PlainCut CutOf(const SparseMla& call, const PlainShape& shape) {
  constexpr int kMostCtas = 8;  // that a multiprocessor has at a time
  const int resident = std::clamp(MostShared() / std::max(shape.bytes(), 1), 1, kMostCtas);
  PlainCut cut;
  cut.groups = static_cast<int>(CeilDiv(call.heads, shape.warps * latent::kRows));
  cut.splits = SplitsOf({.ctas = call.tokens * cut.groups,
                         .tiles = CeilDiv(call.most_rows(), latent::kKeys),
                         .slots = int64_t{Multiprocessors()} * resident});
  return cut;
}

SinkResults ResultsOf(const SparseMla& call, int splits, float unit) {
  return {.rows = call.tokens * call.heads,
          .heads = call.heads,
          .value_size = call.value_size,
          .type = call.query_type,
          .out = call.out,
          .lse = call.lse,
          .sink = call.sink,
          .unit = unit,
          .splits = splits};
}

template <int chunks>
Error LaunchChunksOf(const SparseMla& call, const SinkResults& results, const PlainCut& cut,
                     const PlainShape& shape, Stream stream) {
  const auto kernel = latent::PlainKernel<chunks>;
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const Error error = cudaFuncSetAttribute(kernel, attribute, MostShared()); error != 0) {
    return error;
  }
  const int64_t ctas = call.tokens * cut.groups * cut.splits;
  if (ctas > INT32_MAX) return kTooLarge;
  const LaunchShape launch = {dim3(static_cast<unsigned>(ctas)), dim3(shape.warps * kWarp),
                              static_cast<size_t>(shape.bytes())};
  return Launch(kernel, launch, stream, call, results, cut, shape);
}

Error LaunchPlain(const SparseMla& call, const SinkResults& results, const PlainCut& cut,
                  Stream stream) {
  const PlainShape shape = ShapeOf(call);
  if (shape.bytes() > MostShared()) return kTooLarge;
  if (call.value_size <= 256) return LaunchChunksOf<2>(call, results, cut, shape, stream);
  if (call.value_size <= 512) return LaunchChunksOf<4>(call, results, cut, shape, stream);
  return LaunchChunksOf<8>(call, results, cut, shape, stream);
}

// The results of a call by the kernel that takes it.
SinkResults CutResults(const SparseMla& call, const LatentTiles& tiles) {
  constexpr float kLog2E = 1.4426950408889634f;
  if (tiles.fits()) return ResultsOf(call, tiles.partials(), 1);  // scores are in log2
  return ResultsOf(call, CutOf(call, ShapeOf(call)).splits, kLog2E);
}

bool IsEmpty(const SparseMla& call) { return call.tokens == 0 || call.heads == 0; }

}  // namespace

bool HasMemoryForSparseMla(const SparseMla& call) {
  return IsEmpty(call) || ShapeOf(call).bytes() <= MostShared();
}

size_t SparseMlaWorkspace(const SparseMla& call) {
  return IsEmpty(call) ? 0 : PartialBytes(CutResults(call, LatentTilesOf(call)));
}

Error LaunchSparseMla(const SparseMla& call, void* workspace, Stream stream) {
  if (IsEmpty(call)) return 0;
  if (call.head_size > kLongestLatentRow || call.tokens > INT32_MAX) return kTooLarge;
  if (!call.is_dense && call.most_rows() > kMostLatentRows) return kTooLarge;
  const LatentTiles tiles = LatentTilesOf(call);
  SinkResults results = CutResults(call, tiles);
  PlacePartials(workspace, results);
  const Error error = tiles.fits() ? LaunchLatentTiles(call, results, tiles, stream)
                                   : LaunchPlain(call, results, CutOf(call, ShapeOf(call)), stream);
  if (error != 0 || results.splits == 1) return error;
  return LaunchSinkJoin(results, stream);
}

}  // namespace pagefuse::cuda
