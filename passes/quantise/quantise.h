// SPDX-License-Identifier: Apache-2.0
// The passes of stage quantise.
#pragma once

#include <memory>

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// Stores keys and values in a smaller format. Options: kv_cache (kernels/formats/cache_choice.h);
// k_scale and v_scale for fp8_per_tensor (1: the range of
// e4m3 itself, +-448).
std::unique_ptr<Pass> QuantiseKvCache();
// Stores constant matrices as bfloat16 or codes of 4 or 8 bits. Options: weights
// (kernels/formats/weight_format.h), weights_exclude.
std::unique_ptr<Pass> QuantiseWeights();

}  // namespace pagefuse
