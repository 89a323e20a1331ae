// What the CPU offers beyond the SIMD targets that Highway chooses among: AMX tiles.
#pragma once

namespace pagefuse {

// True if AMX bf16 tiles may be used, and AVX-512 beside them: cpuid reports AMX-TILE, AMX-BF16 and
// AVX512F, and the operating system granted the tile state to this process (asked for once, at the
// first call). Thread-safe.
bool HasAmxBf16();

// While one lives, HasAmxBf16() is false, so that tests and benchmarks reach the portable kernels.
// Not thread-safe.
class ScopedDisableAmx {
 public:
  ScopedDisableAmx();
  ~ScopedDisableAmx();
  ScopedDisableAmx(const ScopedDisableAmx&) = delete;
  ScopedDisableAmx& operator=(const ScopedDisableAmx&) = delete;
};

}  // namespace pagefuse
