// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/probe_cost.h"

#include <algorithm>
#include <cmath>

namespace pagefuse {
namespace {

double WorkOfRun(double tokens) { return 1 + tokens / 16 + tokens * tokens / 1024; }

}  // namespace

double SecondsSince(ProbeClock::time_point start) {
  return std::chrono::duration<double>(ProbeClock::now() - start).count();
}

double WorkOfText(const ProbeText& text, bool keeps_past) {
  const auto prompt = static_cast<double>(text.prompt.size());
  double work = WorkOfRun(prompt);
  for (size_t i = 0; i < text.following.size(); ++i) {
    work += WorkOfRun(keeps_past ? 1 : prompt + static_cast<double>(i) + 1);
  }
  return work;
}

double WorkOfBatch(const Probe& probe) {
  double tokens = 0;
  size_t most_following = 0;
  for (const ProbeText& text : probe.texts) {
    tokens += static_cast<double>(text.prompt.size());
    most_following = std::max(most_following, text.following.size());
  }
  const double piece =
      probe.piece > 0 ? std::min(static_cast<double>(probe.piece), tokens) : tokens;
  return std::ceil(tokens / piece) * WorkOfRun(piece) +
         static_cast<double>(most_following) * WorkOfRun(static_cast<double>(probe.texts.size()));
}

}  // namespace pagefuse
