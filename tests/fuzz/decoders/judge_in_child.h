// SPDX-License-Identifier: Apache-2.0
// Verdicts on decoders that are found in a process of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "../child.h"
#include "judge.h"

namespace pagefuse::fuzz {

// What `judge` finds; a crash, a hang or memory without end is a finding.
Verdict JudgeAlone(Progress& progress, const std::function<Verdict()>& judge,
                   const ChildLimits& limits = {});
// The verdict on a text.
Verdict JudgeAlone(Progress& progress, const std::string& text);

// Verdicts on the cases of seeds [begin, end), up to the first that ends the process and while
// `go_on` says so. `next` is the first seed that was not judged.
struct SeedVerdicts {
  std::map<uint64_t, Verdict> verdicts;
  uint64_t next = 0;
};
struct SeedRange {
  uint64_t begin = 0, end = 0;
};
SeedVerdicts JudgeSeeds(Progress& progress, const SeedRange& seeds,
                        const std::function<Verdict(uint64_t seed)>& judge,
                        const std::function<bool()>& go_on, const ChildLimits& limits = {});
// Random decoders by seed.
SeedVerdicts JudgeSeeds(Progress& progress, const SeedRange& seeds,
                        const std::function<bool()>& go_on);

}  // namespace pagefuse::fuzz
