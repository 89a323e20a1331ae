// SPDX-License-Identifier: Apache-2.0
#include "decoder_fuzz.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "decoder_case.h"
#include "judge_in_child.h"
#include "verdict_table.h"

#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse::fuzz {
namespace {

class Clock {
 public:
  double Elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

unsigned long long Number(uint64_t number) { return number; }

}  // namespace

int FuzzDecoders(const DecoderFuzzOptions& options) {
  constexpr uint64_t kBatch = 50;
  constexpr double kReportEvery = 60;
  const Clock clock;
  Progress& progress = SharedProgress();
  VerdictTable table(options.out);
  const uint64_t end = options.seed + static_cast<uint64_t>(options.cases);
  uint64_t next = options.seed;
  double reported = 0;
  const auto go_on = [&] { return clock.Elapsed() < options.seconds; };
  while (next < end && go_on()) {
    const SeedVerdicts seeds = JudgeSeeds(progress, {next, std::min(next + kBatch, end)}, go_on);
    for (const auto& [seed, verdict] : seeds.verdicts) {
      const Plan plan = Plan::Random(seed);
      if (options.verbose) {
        std::printf("%s: %s: %s\n", plan.ToString().c_str(), JudgementName(verdict.judgement),
                    verdict.reason.c_str());
      }
      table.Add(plan, verdict);
    }
    next = seeds.next;
    if (clock.Elapsed() < reported + kReportEvery) continue;
    reported = clock.Elapsed();
    std::printf("%llu decoders, %d findings\n", Number(next - options.seed), table.findings());
  }
  std::printf("%llu decoders in %.0f s, seeds %llu to %llu\n", Number(next - options.seed),
              clock.Elapsed(), Number(options.seed), Number(next - 1));
  table.Print();
  return table.findings() == 0 ? 0 : 1;
}

int ReplayDecoders(const std::vector<std::string>& files, bool verbose) {
  Progress& progress = SharedProgress();
  int failed = 0;
  for (const std::string& file : files) {
    const auto text = ReadFile(file);
    const Verdict verdict = text.ok() ? JudgeAlone(progress, *text)
                                      : Verdict{Judgement::kInvalid, "", text.status().ToString()};
    const bool bad =
        verdict.judgement == Judgement::kFinding || verdict.judgement == Judgement::kInvalid;
    failed += bad ? 1 : 0;
    if (!bad && !verbose) continue;
    std::printf("%s: %s: %s\n", file.c_str(), JudgementName(verdict.judgement),
                verdict.reason.c_str());
  }
  std::printf("%zu decoders, %d findings\n", files.size(), failed);
  return failed == 0 && !files.empty() ? 0 : 1;
}

int JudgePlan(const std::string& choices) {
  const auto plan = Plan::Parse(choices);
  if (!plan.ok()) {
    std::fprintf(stderr, "%s\n", plan.status().ToString().c_str());
    return 2;
  }
  const std::string text = WriteDecoder(*plan);
  const Verdict verdict = JudgeAlone(SharedProgress(), text);
  std::printf("# %s: %s\n%s", JudgementName(verdict.judgement), verdict.reason.c_str(),
              text.c_str());
  return verdict.judgement == Judgement::kFinding ? 1 : 0;
}

}  // namespace pagefuse::fuzz
