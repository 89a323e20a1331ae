// SPDX-License-Identifier: Apache-2.0
// "fp8_per_tensor": e4m3fn codes of x / scale, one scale for the tensor or a head.
#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {
namespace {

void Encode(const CacheFormat& /*format*/, const RowParams& params, const float* x, int64_t n,
            RowAddress row) {
  for (int64_t i = 0; i < n; ++i) {
    row.data[i] = EncodeFloat<E4M3FNFormat>(x[i] / params.tensor_scale);
  }
}

std::string Text(const EncodeText& options) {
  if (options.scale_per_head) {
    return R"(  $p_one = Constant <value_ints: ints = [1]> ()
  $p_column = Unsqueeze ($scale, $p_one)
  $p_scaled = Div ($x, $p_column)
  $p_codes = Cast <to = 17> ($p_scaled)
)";
  }
  return R"(  $p_factor = Squeeze ($scale)
  $p_codes = QuantizeLinear <output_dtype = 17, saturate = 1> ($x, $p_factor)
)";
}

}  // namespace

RowFormat Fp8PerTensorFormat() {
  using enum DataType;
  return {.mode = KvQuantMode::kFp8PerTensor,
          .name = "fp8_per_tensor",
          .cache_names = {{"fp8_per_tensor", kFloat8E4M3FN}},
          .types = {kFloat8E4M3FN, kUint8},
          .element = kFloat8E4M3FN,
          .scales = ScaleKind::kTensor,
          .encode = Encode,
          .encode_text = Text,
          .decode_text = R"(  $p_factor = Squeeze ($scale)
  $p_numbers = DequantizeLinear ($x, $p_factor)
)"};
}

}  // namespace pagefuse
