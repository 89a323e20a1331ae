// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/numeric/bfloat16_unit.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace pagefuse {

bool HasAvx512Bf16() {
#if defined(__x86_64__)
  static const bool kHas = [] {
    constexpr uint32_t kAvx512Bf16 = 1u << 5;
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0) return false;
    __builtin_cpu_init();
    return (eax & kAvx512Bf16) != 0 && __builtin_cpu_supports("avx512f") != 0 &&
           __builtin_cpu_supports("avx512bw") != 0;
  }();
  return kHas;
#else
  return false;
#endif
}

}  // namespace pagefuse
