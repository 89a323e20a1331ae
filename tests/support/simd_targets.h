// Runs a test body once for each SIMD target that this machine supports, AMX tiles among them.
#pragma once

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "hwy/targets.h"

#include "pagefuse/ops/linalg/cpu_features.h"

namespace pagefuse::testing {

// Calls body() with dynamic dispatch held to each target in turn and without AMX, then with the
// free choice and AMX, if there is any. Failures name the target.
template <typename Body>
void ForEachSimdTarget(Body&& body) {
  const int64_t supported = hwy::SupportedTargets();
  const bool has_amx = HasAmxBf16();
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    SCOPED_TRACE(std::string("SIMD target ") + hwy::TargetName(target));
    const ScopedDisableAmx disable;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  if (!has_amx) return;
  SCOPED_TRACE("AMX");
  body();
}

}  // namespace pagefuse::testing
