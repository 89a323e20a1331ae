// Verdicts on decoders that are run in a process of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "../child.h"
#include "judge.h"
#include "plan.h"

namespace pagefuse::fuzz {

// The verdict on a text; a crash, a hang or memory without end is a finding.
Verdict JudgeAlone(Progress& progress, const std::string& text);

// Verdicts on the decoders of seeds [begin, end), up to the first that ends the process and while
// `go_on` says so. `next` is the first seed that was not judged.
struct SeedVerdicts {
  std::map<uint64_t, Verdict> verdicts;
  uint64_t next = 0;
};
SeedVerdicts JudgeSeeds(Progress& progress, uint64_t begin, uint64_t end,
                        const std::function<bool()>& go_on);

}  // namespace pagefuse::fuzz
