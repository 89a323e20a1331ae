// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/products_columns.h"

namespace pagefuse::cuda {
namespace {

// Behind them a tile of all rows costs less than reading the weights for 8 at a time.
constexpr int kMostRows = 128;

}  // namespace

bool SuitsSmallColumns(const ProductParams& params) {
  const auto suits = [&](const ProductWeight& w) {
    const bool rounds = params.type == DataType::kFloat && w.type == DataType::kBfloat16;
    return (w.type == params.type || rounds) && !w.rows;
  };
  return params.m <= kMostRows && !params.x_turned && params.batch.empty() &&
         params.k <= kMostColumnRows && suits(params.weight) &&
         (!params.gated() || (suits(params.up) && params.up.type == params.weight.type));
}

Error LaunchSmallColumns(const ProductParams& params, Stream stream) {
  return params.gated() ? LaunchSmallColumnsGated(params, stream)
                        : LaunchColumns<false>(params, stream);
}

}  // namespace pagefuse::cuda
