// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/cuda/product_batch.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "pagefuse/ops/onnx/movement.h"

namespace pagefuse::cuda {
namespace {

// Matrices further for each step along each axis of a batch of `rank` axes.
std::vector<int64_t> StepsOf(const std::vector<int64_t>& own, size_t rank) {
  std::vector<int64_t> steps(rank, 0);
  const std::vector<int64_t> strides = onnx_ops::RowMajorStrides(own);
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i] != 1) steps[rank - own.size() + i] = strides[i];
  }
  return steps;
}

}  // namespace

Matrices::Matrices(const std::vector<int64_t>& dims, bool left, bool turned) {
  if (dims.size() == 1) {
    rows = left ? 1 : dims[0];
    columns = left ? dims[0] : 1;
    return;
  }
  batch.assign(dims.begin(), dims.end() - 2);
  rows = dims[dims.size() - 2];
  columns = dims.back();
  if (turned) std::swap(rows, columns);
}

void SetBatch(const Matrices& a, const Matrices& b, ProductParams& params) {
  const size_t rank = std::max(a.batch.size(), b.batch.size());
  params.batch.assign(rank, 1);
  for (const Matrices* side : {&a, &b}) {
    for (size_t i = 0; i < side->batch.size(); ++i) {
      int64_t& size = params.batch[rank - side->batch.size() + i];
      if (side->batch[i] != 1) size = side->batch[i];
    }
  }
  params.x_steps = StepsOf(a.batch, rank);
  params.weight_steps = StepsOf(b.batch, rank);
}

}  // namespace pagefuse::cuda
