#include "pagefuse/ops/linalg/cpu_features.h"

#include <cstdint>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <unistd.h>

#include <sys/syscall.h>
#endif

namespace pagefuse {
namespace {

int disabled_count = 0;

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

bool DetectAmxBf16() {
  constexpr uint32_t kAmxBf16 = 1u << 22;
  constexpr uint32_t kAmxTile = 1u << 24;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  return HasAvx512() && RequestTileState();
}

#else

bool DetectAmxBf16() { return false; }

#endif

}  // namespace

bool HasAmxBf16() {
  static const bool kDetected = DetectAmxBf16();
  return kDetected && disabled_count == 0;
}

ScopedDisableAmx::ScopedDisableAmx() { ++disabled_count; }
ScopedDisableAmx::~ScopedDisableAmx() { --disabled_count; }

}  // namespace pagefuse
