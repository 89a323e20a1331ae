// SPDX-License-Identifier: Apache-2.0
// Runs a test body once for each SIMD target that this machine supports, and once for each of its
// units for bfloat16, or freely. AMX is emulated where there is AVX-512 without it.
#pragma once

#include <cstdint>
#include <string>

#include "amx_emulation.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"

#include "pagefuse/ops/kernels/linalg/cpu_features.h"

namespace pagefuse::testing {

// False if ForEachBf16Unit has none to run.
inline bool HasTestableBf16Unit() { return HasBf16Tiles() || ScopedEmulatedAmx::IsPossible(); }

// Calls body() with each unit for bfloat16 that there is, and with AMX wherever it can be emulated.
template <typename Body>
void ForEachBf16Unit(Body&& body) {
  if (const ScopedBf16Limit limit(Bf16Unit::kAvx512); BestBf16Unit() == Bf16Unit::kAvx512) {
    SCOPED_TRACE("AVX512-BF16");
    body();
  }
  if (HasAmxBf16()) {
    SCOPED_TRACE("AMX");
    return body();
  }
  if (!ScopedEmulatedAmx::IsPossible()) return;
  SCOPED_TRACE("AMX, emulated");
  const AmxEmulation emulation;
  const ScopedEmulatedAmx amx;
  EXPECT_TRUE(HasAmxBf16());
  body();
}

// Calls body() with dynamic dispatch held to each target in turn and without a unit for bfloat16,
// then with the free choice and each unit, or none if there is none. Failures name the target.
template <typename Body>
void ForEachSimdTarget(Body&& body) {
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    SCOPED_TRACE(std::string("SIMD target ") + hwy::TargetName(target));
    const ScopedBf16Limit limit(Bf16Unit::kNone);
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  if (BestBf16Unit() == Bf16Unit::kNone) body();
  ForEachBf16Unit(body);
}

}  // namespace pagefuse::testing
