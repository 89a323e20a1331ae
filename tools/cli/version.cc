// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/version.h"

#include <bit>
#include <cstdint>

#include "hwy/targets.h"
#include "tools/commit.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

// Better targets have lower bits (hwy/detect_targets.h).
std::string TargetNames(uint64_t targets) {
  std::string names;
  for (; targets != 0; targets &= targets - 1) {
    const auto target = uint64_t{1} << std::countr_zero(targets);
    StrAppend(&names, names.empty() ? "" : ", ",
              hwy::TargetName(static_cast<decltype(hwy::SupportedTargets())>(target)));
  }
  return names;
}

}  // namespace

std::string VersionLine() { return "pagefuse " PAGEFUSE_VERSION; }

std::string VersionText() {
  const auto compiled = static_cast<uint64_t>(HWY_TARGETS);
  const auto here = static_cast<uint64_t>(hwy::SupportedTargets()) & compiled;
  return StrCat(VersionLine(), "\ncommit: ", PAGEFUSE_COMMIT, "\nbuild: ", PAGEFUSE_BUILD_TYPE,
                "\nSIMD targets: ", TargetNames(compiled),
                "; used here: ", TargetNames(here & (~here + 1)));
}

}  // namespace pagefuse::tools
