// SPDX-License-Identifier: Apache-2.0
// immintrin.h without the warnings that GCC 12 has of its own AVX-512 intrinsics (its bug 105593),
// and the attribute of functions that use them.
#pragma once

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#define PF_AVX512 __attribute__((target("avx512f")))

#endif  // __x86_64__
