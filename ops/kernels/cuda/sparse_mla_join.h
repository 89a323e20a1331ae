// SPDX-License-Identifier: Apache-2.0
// Results of attention with sinks beside the softmax, SparseMlaAttention's and SinkAttention's: how the keys of a row are cut among CTAs, and
// how what these found becomes the row's outputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// Where the results of rows go. Pointers are the device's.
struct SinkResults {
  int64_t rows = 0;
  int64_t heads = 1, rows_of_head = 1;  // row r is of head r / rows_of_head % heads
  int value_size = 0;
  DataType type = DataType::kFloat;  // of `out`: float, float16, bfloat16
  void* out = nullptr;               // [rows, value_size]
  float* lse = nullptr;              // [rows], without the sink, or null
  const float* sink = nullptr;       // [heads], or null
  float unit = 1;                    // weights are exp2(score * unit)

  int splits = 1;
  float* partial_values =
      nullptr;                    // [splits, rows, value_size], where there is more than one split
  float* partial_sums = nullptr;  // [splits, rows, 2]: largest score, sum of weights
};

// Work that is to be cut: by sizes that no length changes.
struct SplitWork {
  int64_t ctas = 0;   // without splits
  int64_t tiles = 0;  // of keys, that a CTA has at most
  int64_t slots = 1;  // CTAs that run at a time
};
inline constexpr int kMostSplits = 128;
// How long its CTAs take when they are cut so, in tiles, without the join.
int64_t CostOfSplits(const SplitWork& work, int64_t splits);
int SplitsOf(const SplitWork& work);

// Bytes of the partial results.
size_t PartialBytes(const SinkResults& results);
// Sets the pointers to them.
void PlacePartials(void* workspace, SinkResults& results);

// Joins partial results to the outputs.
Error LaunchSinkJoin(const SinkResults& results, Stream stream);

}  // namespace pagefuse::cuda
