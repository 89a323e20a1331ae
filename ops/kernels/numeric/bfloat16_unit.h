// SPDX-License-Identifier: Apache-2.0
// Whether the processor rounds floats to bfloat16 by itself.
#pragma once

namespace pagefuse {

// True if there is AVX512-BF16 (Zen 4 and later, Cooper Lake, Sapphire Rapids and later) and the
// operating system saves its registers. Thread-safe.
bool HasAvx512Bf16();

// The same, for inner loops. Not for the initialisation of other globals.
inline const bool kHasAvx512Bf16 = HasAvx512Bf16();

}  // namespace pagefuse
