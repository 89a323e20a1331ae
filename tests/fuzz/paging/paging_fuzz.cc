// SPDX-License-Identifier: Apache-2.0
#include "paging_fuzz.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "../decoders/judge_in_child.h"
#include "absl/strings/str_join.h"
#include "paging_case.h"
#include "paging_table.h"
#include "shrink.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse::fuzz {
namespace {

namespace fs = std::filesystem;

class Clock {
 public:
  double Elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string FileName(const std::string& kind) {
  constexpr size_t kMostLetters = 30;
  std::string name;
  for (const char c : kind.substr(0, kMostLetters)) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return name;
}

std::string Report(const PagingCase& made, const Verdict& verdict, uint64_t seed) {
  std::string prompts;
  for (const auto& prompt : made.run.prompts) {
    StrAppend(&prompts, prompts.empty() ? "" : " ", "[", absl::StrJoin(prompt, ","), "]");
  }
  return StrCat("seed ", seed, ", ", made.subject.name, "\nchanged: ", made.where, "\n",
                made.run.ToString(), ", prompts ", prompts, "\n", verdict.kind, ": ",
                verdict.reason, "\n");
}

class Fuzzer {
 public:
  explicit Fuzzer(const PagingFuzzOptions& options)
      : options_(options), subjects_(options.paths), progress_(SharedProgress()) {}

  int Run() {
    if (!subjects_.files().empty()) {
      std::printf("%zu files of decoders beside random ones\n", subjects_.files().size());
    }
    uint64_t next = options_.seed;
    const auto go_on = [this] { return clock_.Elapsed() < options_.seconds; };
    int64_t left = options_.count;
    while (left > 0 && go_on()) {
      const auto size = static_cast<uint64_t>(std::min<int64_t>(left, kBatch));
      const uint64_t begin = next;
      const auto judge = [this](uint64_t seed) { return JudgeSeed(seed); };
      const SeedVerdicts seeds =
          JudgeSeeds(progress_, {begin, begin + size}, judge, go_on, PagingLimits());
      for (const auto& [seed, verdict] : seeds.verdicts) Take(seed, verdict);
      next = seeds.next;
      left -= static_cast<int64_t>(next - begin);
      Say(next);
    }
    std::printf("seeds %llu to %llu\n", Number(options_.seed), Number(next - 1));
    table_.Print();
    return table_.findings() == 0 ? 0 : 1;
  }

 private:
  static constexpr int64_t kBatch = 100;
  static unsigned long long Number(uint64_t number) { return number; }

  absl::StatusOr<PagingCase> Make(uint64_t seed) const {
    return MakePagingCase(subjects_, seed, options_.unchanged);
  }

  Verdict JudgeSeed(uint64_t seed) const {
    const auto made = Make(seed);
    return made.ok() ? Judge(*made) : Verdict{};
  }

  void Take(uint64_t seed, const Verdict& verdict) {
    auto made = Make(seed);
    if (!made.ok()) return table_.AddUnchanged();
    if (options_.verbose) {
      std::printf("%llu %s: %s: %s\n  %s\n", Number(seed), JudgementName(verdict.judgement),
                  verdict.kind.c_str(), verdict.reason.c_str(), made->where.c_str());
    }
    if (table_.Add(*made, verdict)) Keep(seed, *std::move(made), verdict);
  }

  void Keep(uint64_t seed, PagingCase made, const Verdict& verdict) {
    ShrunkCase shrunk{std::move(made), verdict};
    const PagingJudge judge = [this](const DecoderCase& decoder, const PagingRun& run) {
      return JudgeAlone(progress_, decoder, run);
    };
    if (options_.shrink) shrunk = Shrink(std::move(shrunk.made), verdict, judge);
    const fs::path folder =
        fs::path(options_.out) / StrCat(FileName(shrunk.verdict.kind), "-", seed);
    fs::create_directories(folder);
    (void)SaveModel(shrunk.made.decoder.model, (folder / "model.onnx").string());
    std::ofstream(folder / "decoder.onnxtxt") << PrintDecoderCase(shrunk.made.decoder);
    const std::string report = Report(shrunk.made, shrunk.verdict, seed);
    std::ofstream(folder / "finding.txt") << report;
    std::printf("%s  written to %s\n", report.c_str(), folder.c_str());
  }

  void Say(uint64_t next) {
    constexpr double kEvery = 60;
    if (clock_.Elapsed() < said_ + kEvery) return;
    said_ = clock_.Elapsed();
    std::printf("%llu cases, %lld findings\n", Number(next - options_.seed),
                static_cast<long long>(table_.findings()));
  }

  const PagingFuzzOptions& options_;
  const Clock clock_;
  Subjects subjects_;
  Progress& progress_;
  PagingTable table_;
  double said_ = 0;
};

// Runs that differ in blocks, pieces and lengths.
std::vector<PagingRun> ReplayRuns(int64_t vocabulary) {
  constexpr uint64_t kRuns = 6;
  std::vector<PagingRun> runs;
  for (uint64_t seed = 1; seed <= kRuns; ++seed) runs.push_back(RandomRun(seed, vocabulary));
  return runs;
}

// The worst verdict of all runs.
Verdict Replay(Progress& progress, const DecoderCase& decoder, int64_t vocabulary) {
  Verdict last;
  for (const PagingRun& run : ReplayRuns(vocabulary)) {
    const Verdict verdict = JudgeAlone(progress, decoder, run);
    if (verdict.judgement == Judgement::kFinding) return verdict;
    if (last.judgement == Judgement::kInvalid) last = verdict;
  }
  return last;
}

}  // namespace

int FuzzPaging(const PagingFuzzOptions& options) { return Fuzzer(options).Run(); }

int ReplayPaging(const std::vector<std::string>& files, bool verbose) {
  Progress& progress = SharedProgress();
  int bad = 0;
  size_t decoders = 0;
  const Subjects subjects(files);
  for (const std::string& file : subjects.files()) {
    const auto decoder = ReadDecoder(file);
    if (!decoder.ok()) continue;
    ++decoders;
    const Verdict verdict = Replay(progress, *decoder, VocabularyOf(*decoder));
    const bool fails = verdict.judgement == Judgement::kFinding ||
                       verdict.judgement == Judgement::kInvalid ||
                       (decoder->paged && verdict.judgement != Judgement::kPaged);
    bad += fails ? 1 : 0;
    if (!fails && !verbose) continue;
    std::printf("%s: %s: %s\n", file.c_str(), JudgementName(verdict.judgement),
                verdict.reason.c_str());
  }
  std::printf("%zu decoders, %d findings\n", decoders, bad);
  return bad == 0 && decoders > 0 ? 0 : 1;
}

int ShowPagingCase(const PagingFuzzOptions& options) {
  const Subjects subjects(options.paths);
  const auto made = MakePagingCase(subjects, options.seed, options.unchanged);
  if (!made.ok()) {
    std::printf("%s\n", made.status().ToString().c_str());
    return 0;
  }
  const Verdict verdict = JudgeAlone(SharedProgress(), made->decoder, made->run);
  std::printf("%s%s\n%s", JudgementName(verdict.judgement),
              StrCat("\n", Report(*made, verdict, options.seed)).c_str(),
              PrintDecoderCase(made->decoder).c_str());
  return verdict.judgement == Judgement::kFinding ? 1 : 0;
}

}  // namespace pagefuse::fuzz
