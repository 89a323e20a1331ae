// SPDX-License-Identifier: Apache-2.0
#include "judge_in_child.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "plan.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

// A line of a child's log: mark, seed, judgement, kind, reason, with tabs between them.
constexpr const char* kMark = "@verdict";
constexpr size_t kFields = 5;

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  return text;
}

void Say(uint64_t seed, const Verdict& verdict) {
  std::fprintf(stderr, "%s\t%llu\t%d\t%s\t%s\n", kMark, static_cast<unsigned long long>(seed),
               static_cast<int>(verdict.judgement), OneLine(verdict.kind).c_str(),
               OneLine(verdict.reason).c_str());
}

std::map<uint64_t, Verdict> VerdictsIn(const std::string& log) {
  std::map<uint64_t, Verdict> verdicts;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    uint64_t seed = 0;
    int judgement = 0;
    if (fields.size() != kFields || fields[0] != kMark || !absl::SimpleAtoi(fields[1], &seed) ||
        !absl::SimpleAtoi(fields[2], &judgement)) {
      continue;
    }
    verdicts[seed] = {static_cast<Judgement>(judgement), fields[3], fields[4]};
  }
  return verdicts;
}

Verdict JudgeText(const std::string& text) {
  const auto decoder = ParseDecoderCase(text);
  if (decoder.ok()) return JudgeDecoder(*decoder);
  return {Judgement::kInvalid, "no text of a decoder", decoder.status().ToString()};
}

Verdict BadEnd(const ChildResult& result) {
  const std::string key = FindingKey(result);
  constexpr size_t kMaxLog = 4000;
  const size_t from = result.log.size() > kMaxLog ? result.log.size() - kMaxLog : 0;
  return {Judgement::kFinding, key, StrCat(key, ": ", OneLine(result.log.substr(from)))};
}

}  // namespace

Verdict JudgeAlone(Progress& progress, const std::function<Verdict()>& judge,
                   const ChildLimits& limits) {
  const ChildResult result = RunInChild(progress, limits, [&](Progress& child) {
    child.Begin(0);
    Say(0, judge());
  });
  if (result.ending != Ending::kDone) return BadEnd(result);
  return VerdictsIn(result.log)[0];
}

Verdict JudgeAlone(Progress& progress, const std::string& text) {
  return JudgeAlone(progress, [&] { return JudgeText(text); });
}

SeedVerdicts JudgeSeeds(Progress& progress, const SeedRange& range,
                        const std::function<Verdict(uint64_t seed)>& judge,
                        const std::function<bool()>& go_on, const ChildLimits& limits) {
  progress.current = range.begin;
  const ChildResult result = RunInChild(progress, limits, [&](Progress& child) {
    for (uint64_t seed = range.begin; seed < range.end && go_on(); ++seed) {
      child.Begin(seed);
      Say(seed, judge(seed));
    }
  });
  SeedVerdicts seeds{.verdicts = VerdictsIn(result.log), .next = progress.current + 1};
  // A leak shows at the end of the process, whichever decoder it was.
  if (result.ending != Ending::kDone) seeds.verdicts[progress.current] = BadEnd(result);
  return seeds;
}

SeedVerdicts JudgeSeeds(Progress& progress, const SeedRange& seeds,
                        const std::function<bool()>& go_on) {
  return JudgeSeeds(
      progress, seeds, [](uint64_t seed) { return JudgeText(WriteDecoder(Plan::Random(seed))); },
      go_on);
}

}  // namespace pagefuse::fuzz
