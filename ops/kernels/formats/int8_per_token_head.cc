// SPDX-License-Identifier: Apache-2.0
// "int8_per_token_head": int8 codes, one float scale a row.
#include <algorithm>
#include <cmath>

#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/formats/row_codec.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"

namespace pagefuse {
namespace {

void Encode(const CacheFormat& format, const RowParams& /*params*/, const float* x, int64_t n,
            RowAddress row) {
  const float scale = std::max(LargestOf(x, n) / kInt8Max, kScaleFloor);
  const float inverse = 1.0f / scale;
  auto* codes = reinterpret_cast<int8_t*>(row.data);
  for (int64_t i = 0; i < n; ++i) {
    float y = x[i] * inverse;
    if (format.int8_rounding == Int8Rounding::kHalfEven) y = std::nearbyint(y);
    codes[i] = ConvertElement<int8_t>(y);
  }
  StoreRowScale(scale, row);
}

std::string Text(const EncodeText& options) {
  const bool rounds = options.int8_rounding == Int8Rounding::kHalfEven;
  return RowScaleText({.least = "-128.0", .largest = "127.0", .rounds = rounds}) +
         "  $p_stored = Cast <to = 3> ($p_clipped)\n";
}

}  // namespace

RowFormat Int8PerTokenHeadFormat() {
  return {.mode = KvQuantMode::kInt8PerTokenHead,
          .name = "int8_per_token_head",
          .cache_names = {{"int8_per_token_head", DataType::kInt8}},
          .types = {DataType::kInt8},
          .element = DataType::kInt8,
          .scales = ScaleKind::kRow,
          .operand = RowOperand::kCode,
          .has_rounding = true,
          .encode = Encode,
          .encode_text = Text};
}

}  // namespace pagefuse
