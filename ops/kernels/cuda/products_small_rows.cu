// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/small_rows.h"

namespace pagefuse::cuda {
namespace {

bool Suits(const ProductParams& params, const ProductWeight& w) {
  if (w.is_codes()) return (w.bits == 4 || w.bits == 8) && IsAligned(w.data, 4);
  return w.rows && w.type == params.type && IsAligned(w.data, 16);
}

template <typename T>
Error LaunchNumbers(const ProductParams& params, Stream stream) {
  return params.gated() ? LaunchSmallRowsOf<T, NumberPieces<T>, true>(params, stream)
                        : LaunchSmallRowsOf<T, NumberPieces<T>, false>(params, stream);
}

}  // namespace

bool SuitsSmallRows(const ProductParams& params) {
  const bool narrow = params.type == DataType::kFloat16;
  if (params.m > kMostSmallRows || params.x_turned || !params.batch.empty() || params.k == 0 ||
      (params.type != DataType::kFloat && !narrow)) {
    return false;
  }
  // Rows of numbers begin where a piece may be loaded.
  if (!params.weight.is_codes() && params.k % (narrow ? 8 : 4) != 0) return false;
  if (params.weight.is_codes() && params.gated() && narrow) return false;
  return Suits(params, params.weight) && (!params.gated() || Suits(params, params.up));
}

Error LaunchSmallRows(const ProductParams& params, Stream stream) {
  if (params.weight.is_codes()) return LaunchSmallCodes(params, stream);
  return params.type == DataType::kFloat ? LaunchNumbers<float>(params, stream)
                                         : LaunchNumbers<Half>(params, stream);
}

}  // namespace pagefuse::cuda
