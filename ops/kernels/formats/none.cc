// SPDX-License-Identifier: Apache-2.0
// "none": any float type, the row as it is.
#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

void Encode(const CacheFormat& format, const RowParams& /*params*/, const float* x, int64_t n,
            RowAddress row) {
  EncodeFromFloat(format.element, x, n, row.data).IgnoreError();  // of float types
}

}  // namespace

RowFormat NoneFormat() {
  using enum DataType;
  return {.mode = KvQuantMode::kNone,
          .name = "none",
          .cache_names = {{"none", kUndefined}, {"bf16", kBfloat16}},
          .types = {kFloat, kFloat16, kBfloat16, kFloat8E4M3FN},
          .encode = Encode};
}

}  // namespace pagefuse
