// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/formats/group_format.h"

#include <cmath>

#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {

float EncodeGroup(const GroupFormat& format, const float* x, int64_t n, uint8_t* codes) {
  float amax = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > amax) amax = std::fabs(x[i]);
  }
  const float scale = format.ScaleOf(amax);
  if (format.codes == GroupCodes::kE4M3) {
    for (int64_t i = 0; i < n; ++i) codes[i] = EncodeFloat<E4M3FNFormat>(x[i] / scale);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      if (i % 2 == 0) codes[i / 2] = 0;
      SetNibble(codes, i, EncodeFloat<E2M1Format>(x[i] / scale));
    }
  }
  return scale;
}

void DecodeGroup(GroupCodes kind, const uint8_t* codes, float scale, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) {
    const float code = kind == GroupCodes::kE4M3 ? kFloat8Table<Float8E4M3FN>[codes[i]]
                                                 : kFloat4E2M1Table[GetNibble(codes, i)];
    x[i] = code * scale;
  }
}

}  // namespace pagefuse
