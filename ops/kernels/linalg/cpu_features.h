// SPDX-License-Identifier: Apache-2.0
// What the CPU offers beyond the SIMD targets that Highway chooses among: units for products of
// bfloat16 and of bytes.
#pragma once

namespace pagefuse {

// What multiplies tiles of bfloat16 (bf16_tiles.h), from least to most.
enum class Bf16Unit {
  kNone,
  kAvx512,  // AVX512-BF16: a vector of pairs at a time (Zen 4 and later, Cooper Lake)
  kAmx,     // AMX-TILE and AMX-BF16, and AVX-512 beside them (Sapphire Rapids and later)
};

// The best one that cpuid reports and the operating system grants: it is asked for the state of AMX
// tiles once, at the first call. Thread-safe.
Bf16Unit BestBf16Unit();

inline bool HasAmxBf16() { return BestBf16Unit() == Bf16Unit::kAmx; }
inline bool HasBf16Tiles() { return BestBf16Unit() != Bf16Unit::kNone; }

// True if there is AVX512-BF16, whatever is beside it. Thread-safe.
bool HasBf16Dots();

// True if its products of pairs are as fast as those of floats. Where AMX is made for them they take
// twice the time (Sapphire Rapids, Emerald Rapids). Thread-safe.
bool HasFastBf16Dots();

// True if oneDNN multiplies 8-bit matrices with VNNI instructions or AMX; what it uses elsewhere
// saturates sums of two products. Thread-safe.
bool HasExactByteGemm();

// While one lives, BestBf16Unit() is at most `most`, so that tests and benchmarks reach the other
// kernels; kNone leaves products of bytes to Highway's targets too. Not thread-safe.
class ScopedBf16Limit {
 public:
  explicit ScopedBf16Limit(Bf16Unit most);
  ~ScopedBf16Limit();
  ScopedBf16Limit(const ScopedBf16Limit&) = delete;
  ScopedBf16Limit& operator=(const ScopedBf16Limit&) = delete;

 private:
  Bf16Unit before_;
};

// While one lives, BestBf16Unit() may be kAmx without it: for tests that execute its instructions
// in software. Needs IsPossible(). Not thread-safe.
class ScopedEmulatedAmx {
 public:
  // True if there is what AMX code uses beside tiles.
  static bool IsPossible();

  ScopedEmulatedAmx();
  ~ScopedEmulatedAmx();
  ScopedEmulatedAmx(const ScopedEmulatedAmx&) = delete;
  ScopedEmulatedAmx& operator=(const ScopedEmulatedAmx&) = delete;
};

}  // namespace pagefuse
