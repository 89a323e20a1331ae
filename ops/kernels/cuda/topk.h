// SPDX-License-Identifier: Apache-2.0
// The best elements of rows on the device: IndexerTopK, TopK, ArgMax and ArgMin. Of equal elements the lower index
// is better, 0 and -0 are equal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/index_errors.h"
#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// Row m: the `topk` largest of logits [rows, width] in columns begins[m] <= n < ends[m], as indices relative to
// begins[m], the largest first; -1 behind the last. NaN is as small as -inf. A row whose range is not among the
// columns gives -1, and is told as element first_row + m of its input.
struct IndexerTopKCall {
  int64_t rows = 0, width = 0, topk = 0;
  const float* logits = nullptr;
  const int32_t* begins = nullptr;  // [rows]
  const int32_t* ends = nullptr;
  int32_t* indices = nullptr;  // [rows, topk]
  void* workspace = nullptr;   // IndexerTopKWorkspace bytes
  IndexErrors errors;
  int begins_input = 0, ends_input = 0;
  int64_t first_row = 0;
};
size_t IndexerTopKWorkspace(const IndexerTopKCall& call);
Error LaunchIndexerTopK(const IndexerTopKCall& call, Stream stream);

// Along the middle of x [outer, n, inner]: the k largest or smallest elements in order, [outer, k, inner], k <= n.
// NaN is larger than every number. All types of ElementOrder.
struct TopKCall {
  DataType type = DataType::kFloat;
  int64_t outer = 0, n = 0, inner = 0, k = 0;
  bool largest = true;
  const void* x = nullptr;
  void* values = nullptr;      // may be null
  int64_t* indices = nullptr;  // may be null
  void* workspace = nullptr;   // TopKWorkspace bytes
};
size_t TopKWorkspace(const TopKCall& call);
Error LaunchTopK(const TopKCall& call, Stream stream);

// Along the middle of x [outer, n, inner]: where the largest or smallest element is, [outer, inner], n > 0. NaN is
// passed over, but for one in front, which is taken for the best.
struct ArgBestCall {
  DataType type = DataType::kFloat;
  int64_t outer = 0, n = 0, inner = 0;
  bool largest = true;
  bool last = false;  // of equal elements, instead of the first
  const void* x = nullptr;
  int64_t* indices = nullptr;
};
Error LaunchArgBest(const ArgBestCall& call, Stream stream);

}  // namespace pagefuse::cuda
