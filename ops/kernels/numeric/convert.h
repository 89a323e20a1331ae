// SPDX-License-Identifier: Apache-2.0
// Conversion between a run of elements of any type and floats, for code that is no kernel's inner
// loop. Memory of elements needs no alignment.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {

// Decodes `count` elements of `type` from `from` to doubles; exact but for 64-bit integers. Packed
// 4-bit types start at the low nibble of the first byte. Unimplemented for strings and complex
// types.
absl::Status DecodeToDouble(DataType type, const void* from, int64_t count, double* to);

// As above, to floats (double, int32 and wider integers round). Vectorised for float16, bfloat16,
// e4m3fn, e5m2, int8, uint8.
absl::Status DecodeToFloat(DataType type, const void* from, int64_t count, float* to);

// Encodes floats as ONNX Cast does: floating types round to nearest even, and `saturate` matters to
// 8-bit floats alone; integers truncate and saturate. Packed 4-bit types write whole bytes, the
// unused nibble 0.
absl::Status EncodeFromFloat(DataType type, const float* from, int64_t count, void* to,
                             bool saturate = true);

// Rounds `count` floats to float16 or bfloat16 and back, in place: what passing through that type
// does to them.
absl::Status RoundThrough(DataType type, float* values, int64_t count);

}  // namespace pagefuse
