// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/cpu_features.h"

#include <algorithm>
#include <cstdint>

#include "dnnl.h"

#include "pagefuse/ops/kernels/numeric/bfloat16_unit.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <unistd.h>

#include <sys/syscall.h>
#endif

namespace pagefuse {
namespace {

Bf16Unit limit = Bf16Unit::kAmx;
bool emulates_amx = false;

#if defined(__x86_64__) && defined(__linux__)

// Linux hands out the 8 KiB of tile state only on request (Documentation/x86/xstate.rst); without
// it the first tile instruction ends the process.
bool RequestTileState() {
  constexpr int kArchReqXcompPerm = 0x1023;
  constexpr int kXfeatureXtileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtileData) == 0;
}

// True if the operating system saves AVX-512 registers too.
bool HasAvx512() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") != 0;
}

// Bits of cpuid that tell of AMX.
constexpr uint32_t kAmxBf16 = 1u << 22;
constexpr uint32_t kAmxTile = 1u << 24;

bool CpuidHas(uint32_t bits) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & bits) == bits;
}

bool DetectAmxBf16() { return CpuidHas(kAmxBf16 | kAmxTile) && HasAvx512() && RequestTileState(); }

#else

bool HasAvx512() { return false; }
bool DetectAmxBf16() { return false; }

#endif

Bf16Unit Capped(Bf16Unit most) {
  static const bool kHasAmx = DetectAmxBf16();
  if ((kHasAmx || emulates_amx) && most >= Bf16Unit::kAmx) return Bf16Unit::kAmx;
  if (HasAvx512Bf16() && most >= Bf16Unit::kAvx512) return Bf16Unit::kAvx512;
  return Bf16Unit::kNone;
}

}  // namespace

Bf16Unit BestBf16Unit() { return Capped(limit); }

bool HasFastBf16Dots() { return HasBf16Dots() && Capped(Bf16Unit::kAmx) != Bf16Unit::kAmx; }

bool HasBf16Dots() { return Capped(std::min(limit, Bf16Unit::kAvx512)) == Bf16Unit::kAvx512; }

bool HasExactByteGemm() {
  static const bool kHasVnni = (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_vnni) ==
                               dnnl_cpu_isa_avx512_core_vnni;
  return kHasVnni && limit != Bf16Unit::kNone;
}

ScopedBf16Limit::ScopedBf16Limit(Bf16Unit most) : before_(limit) { limit = std::min(limit, most); }
ScopedBf16Limit::~ScopedBf16Limit() { limit = before_; }

bool ScopedEmulatedAmx::IsPossible() { return HasAvx512(); }
ScopedEmulatedAmx::ScopedEmulatedAmx() { emulates_amx = true; }
ScopedEmulatedAmx::~ScopedEmulatedAmx() { emulates_amx = false; }

}  // namespace pagefuse
