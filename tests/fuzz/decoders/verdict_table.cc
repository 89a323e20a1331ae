// SPDX-License-Identifier: Apache-2.0
#include "verdict_table.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "decoder_case.h"
#include "judge_in_child.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

const char* MeaningOf(const Plan& plan) {
  if (plan.Has(Meaning::kMixes)) return "mixes tokens";
  return plan.Has(Meaning::kSizes) ? "declared with sizes" : "can be paged";
}

std::string FileName(const std::string& kind, uint64_t seed) {
  constexpr size_t kMaxLength = 40;
  std::string name;
  for (const char c : kind.substr(0, kMaxLength)) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return StrCat(name, "-", seed, ".onnxtxt");
}

}  // namespace

bool VerdictTable::CountKnown(std::vector<Class>& classes, const Plan& plan,
                              const Verdict& verdict) const {
  for (Class& known : classes) {
    if (known.verdict.kind != verdict.kind || !plan.Contains(known.plan)) continue;
    ++known.count;
    return true;
  }
  return false;
}

void VerdictTable::Add(const Plan& plan, const Verdict& verdict) {
  std::vector<int>& counts = counts_[MeaningOf(plan)];
  counts.resize(kNumJudgements);
  ++counts[static_cast<size_t>(verdict.judgement)];
  if (verdict.judgement == Judgement::kInvalid) {
    auto& [count, example] = invalid_[verdict.kind];
    if (count++ == 0) example = plan.seed();
  }
  const bool can_be_paged = !plan.Has(Meaning::kMixes) && !plan.Has(Meaning::kSizes);
  if (verdict.judgement == Judgement::kRefused && !can_be_paged) ++refusals_[verdict.kind];
  if (verdict.judgement == Judgement::kRefused && can_be_paged) {
    if (!CountKnown(recall_, plan, verdict)) recall_.push_back(Plainest(plan, verdict));
  }
  if (verdict.judgement != Judgement::kFinding || CountKnown(findings_, plan, verdict)) return;
  findings_.push_back(Plainest(plan, verdict));
  Write(findings_.back());
}

// Leaving out one feature may let others go.
VerdictTable::Class VerdictTable::Plainest(Plan plan, Verdict verdict) {
  for (bool plainer = true; plainer;) {
    plainer = false;
    for (size_t feature = 0; feature < Grammar().size(); ++feature) {
      const std::optional<Plan> candidate = plan.Without(feature);
      if (!candidate) continue;
      Verdict other = JudgeAlone(progress_, WriteDecoder(*candidate));
      if (other.judgement != verdict.judgement || other.kind != verdict.kind) continue;
      plan = *candidate;
      verdict = std::move(other);
      plainer = true;
    }
  }
  return {.plan = std::move(plan), .verdict = std::move(verdict)};
}

void VerdictTable::Write(const Class& found) const {
  std::filesystem::create_directories(out_);
  const auto path = std::filesystem::path(out_) / FileName(found.verdict.kind, found.plan.seed());
  std::ofstream file(path);
  const std::string text = WriteDecoder(found.plan);
  // Comments that say what the decoder is come first.
  file << "# " << found.verdict.reason << "\n" << text;
  std::printf("finding: %s\n  %s\n  written to %s\n", found.verdict.reason.c_str(),
              found.plan.ToString().c_str(), path.c_str());
}

void VerdictTable::Print() const {
  std::printf("%-22s", "");
  for (int i = 0; i < kNumJudgements; ++i) {
    std::printf("%9s", JudgementName(static_cast<Judgement>(i)));
  }
  for (const auto& [meaning, counts] : counts_) {
    std::printf("\n%-22s", meaning.c_str());
    for (const int count : counts) std::printf("%9d", count);
  }
  std::printf("\nrefusals of what need not be paged:\n");
  for (const auto& [kind, count] : refusals_) std::printf("%6d  %s\n", count, kind.c_str());
  std::printf("refusals of what can be paged:\n");
  for (const Class& refused : recall_) {
    std::printf("%6d  %s\n        %s\n", refused.count, refused.plan.ToString().c_str(),
                refused.verdict.reason.c_str());
  }
  for (const auto& [kind, example] : invalid_) {
    std::printf("%6d  do not run, as seed %llu: %s\n", example.first,
                static_cast<unsigned long long>(example.second), kind.c_str());
  }
  for (const Class& found : findings_) {
    std::printf("%6d  findings as %s: %s\n", found.count, found.plan.ToString().c_str(),
                found.verdict.kind.c_str());
  }
  std::printf("%d findings\n", findings());
}

}  // namespace pagefuse::fuzz
