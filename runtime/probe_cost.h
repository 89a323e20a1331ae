// SPDX-License-Identifier: Apache-2.0
// How long probes (probes.h) will take, told by those that have run.
#pragma once

#include <chrono>

#include "pagefuse/runtime/probes.h"

namespace pagefuse {

using ProbeClock = std::chrono::steady_clock;

double SecondsSince(ProbeClock::time_point start);

// What a text takes as it was exported, alone, over its own past or from the first token for each new
// one. Work is counted in runs of one token, as all weights are read whatever there is to compute.
double WorkOfText(const ProbeText& text, bool keeps_past);
// What a probe takes in the rewritten graph, with the texts in one batch.
double WorkOfBatch(const Probe& probe);

// How long work took, which tells what more of it will take.
struct ProbePace {
  double work = 0, seconds = 0;

  void Add(double done, double taken) { work += done, seconds += taken; }
  // 0 where nothing has run.
  double SecondsFor(double more) const { return work > 0 ? seconds / work * more : 0; }
};

// So many seconds from a time on.
struct ProbeBudget {
  ProbeClock::time_point start;
  double seconds;

  bool HasRoomFor(double more) const { return SecondsSince(start) + more <= seconds; }
};

}  // namespace pagefuse
