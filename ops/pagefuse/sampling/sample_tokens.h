// SPDX-License-Identifier: Apache-2.0
// The ports of SampleTokens.
#pragma once

#include "pagefuse/ops/schema/port.h"

namespace pagefuse::pagefuse_ops {

inline constexpr Ports kSampleIn({
    {"logits", "float", "[R, V]"},
    {"settings", "double", "[R, 7]"},
    {"random", "int64", "[R]"},
    {"edit_starts", "int32", "[R + 1]"},
    {"edit_tokens", "int32", "[E]"},
    {"edit_bias", "double", "[E]"},
    {"edit_counts", "int32", "[E]"},
});
inline constexpr Ports kSampleOut({
    {"tokens", "int64", "[R]"},
});

}  // namespace pagefuse::pagefuse_ops
