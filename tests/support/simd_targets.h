// Runs a test body once for each SIMD target that this machine supports.
#pragma once

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "hwy/targets.h"

namespace pagefuse::testing {

// Calls body() with dynamic dispatch held to each target in turn, then restores the free choice.
// Failures name the target.
template <typename Body>
void ForEachSimdTarget(Body&& body) {
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    SCOPED_TRACE(std::string("SIMD target ") + hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace pagefuse::testing
