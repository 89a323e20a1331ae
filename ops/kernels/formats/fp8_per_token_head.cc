// SPDX-License-Identifier: Apache-2.0
// "fp8_per_token_head": e4m3fn codes, one float scale a row.
#include <algorithm>

#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/formats/row_codec.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {
namespace {

void Encode(const CacheFormat& /*format*/, const RowParams& /*params*/, const float* x, int64_t n,
            RowAddress row) {
  const float scale = std::max(LargestOf(x, n) / kE4M3Max, kScaleFloor);
  const float inverse = 1.0f / scale;
  for (int64_t i = 0; i < n; ++i) row.data[i] = EncodeFloat<E4M3FNFormat>(x[i] * inverse);
  StoreRowScale(scale, row);
}

std::string Text(const EncodeText& /*options*/) {
  return RowScaleText({.least = "-448.0", .largest = "448.0", .rounds = false}) +
         "  $p_codes = Cast <to = 17> ($p_clipped)\n";
}

}  // namespace

RowFormat Fp8PerTokenHeadFormat() {
  using enum DataType;
  return {.mode = KvQuantMode::kFp8PerTokenHead,
          .name = "fp8_per_token_head",
          .cache_names = {{"fp8_per_token_head", kFloat8E4M3FN}},
          .types = {kFloat8E4M3FN, kUint8},
          .element = kFloat8E4M3FN,
          .scales = ScaleKind::kRow,
          .operand = RowOperand::kCode,
          .encode = Encode,
          .encode_text = Text};
}

}  // namespace pagefuse
