// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/small_rows.h"

namespace pagefuse::cuda {
namespace {

// Many products with rows of bfloat16 under an x of float, which is rounded. One has kernels of its own.
bool Rounds(const ProductParams& params) {
  return params.type == DataType::kFloat && params.weight.type == DataType::kBfloat16 &&
         !params.batch.empty();
}

bool Suits(const ProductParams& params, const ProductWeight& w) {
  if (w.is_codes()) return (w.bits == 4 || w.bits == 8) && IsAligned(w.data, 4);
  return w.rows && (w.type == params.type || Rounds(params)) && IsAligned(w.data, 16);
}

// Many products are those of numbers.
bool SuitsBatch(const ProductParams& params) {
  if (params.batch.empty()) return true;
  const StridedAxes<2> batch(params.batch, {params.x_steps, params.weight_steps});
  return !params.weight.is_codes() && !params.gated() && batch.outer_axes() == 0;
}

template <typename T>
Error LaunchNumbers(const ProductParams& params, Stream stream) {
  if (params.gated()) return LaunchSmallRowsOf<T, NumberPieces<T>, true>(params, stream);
  return params.batch.empty()
             ? LaunchSmallRowsOf<T, NumberPieces<T>, false>(params, stream)
             : LaunchSmallRowsOf<T, NumberPieces<T>, false, /*kBatch=*/true>(params, stream);
}

}  // namespace

bool SuitsSmallRows(const ProductParams& params) {
  const bool narrow = params.type == DataType::kFloat16;
  if (params.m > kMostSmallRows || params.x_turned || params.k == 0 ||
      (params.type != DataType::kFloat && !narrow)) {
    return false;
  }
  // Rows of numbers begin where a piece may be loaded.
  const int64_t piece = narrow || Rounds(params) ? 8 : 4;
  if (!params.weight.is_codes() && params.k % piece != 0) return false;
  if (params.weight.is_codes() && params.gated() && narrow) return false;
  return Suits(params, params.weight) && (!params.gated() || Suits(params, params.up)) &&
         SuitsBatch(params);
}

Error LaunchSmallRows(const ProductParams& params, Stream stream) {
  if (params.weight.is_codes()) return LaunchSmallCodes(params, stream);
  if (Rounds(params)) {
    return LaunchSmallRowsOf<float, NumberPieces<Bfloat>, false, /*kBatch=*/true, /*kRounds=*/true>(
        params, stream);
  }
  return params.type == DataType::kFloat ? LaunchNumbers<float>(params, stream)
                                         : LaunchNumbers<Half>(params, stream);
}

}  // namespace pagefuse::cuda
