// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/formats/row_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_replace.h"

namespace pagefuse {

float LargestOf(const float* x, int64_t n) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

void StoreRowScale(float scale, RowAddress row) { std::memcpy(row.scale, &scale, sizeof(scale)); }

float LoadRowScale(RowAddress row) {
  float scale;
  std::memcpy(&scale, row.scale, sizeof(scale));
  return scale;
}

std::string RowScaleText(const RowScaleNodes& nodes) {
  constexpr char kText[] = R"(  $p_largest_code = Constant <value_float: float = $largest> ()
  $p_abs = Abs ($x)
  $p_axis = Constant <value_ints: ints = [2]> ()
  $p_amax = ReduceMax <keepdims = 1> ($p_abs, $p_axis)
  $p_ratio = Div ($p_amax, $p_largest_code)
  $p_floor = Constant <value_float: float = 1e-06> ()
  $p_row_scale = Max ($p_ratio, $p_floor)
  $p_inverse = Reciprocal ($p_row_scale)
  $p_scaled = Mul ($x, $p_inverse)
$rounding  $p_least_code = Constant <value_float: float = $least> ()
  $p_clipped = Clip ($quotient, $p_least_code, $p_largest_code)
)";
  return absl::StrReplaceAll(
      kText, {{"$largest", nodes.largest},
              {"$least", nodes.least},
              {"$rounding", nodes.rounds ? "  $p_rounded = Round ($p_scaled)\n" : ""},
              {"$quotient", nodes.rounds ? "$p_rounded" : "$p_scaled"}});
}

}  // namespace pagefuse
