// SPDX-License-Identifier: Apache-2.0
#include "paging_table.h"

#include <cstdio>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

constexpr auto kFinding = static_cast<size_t>(Judgement::kFinding);

std::string SubjectKind(const Subject& subject) {
  if (subject.plan) return "random decoders";
  const std::filesystem::path path(subject.name);
  const bool named = path.filename() == "model.onnx";
  return (named ? path.parent_path() : path).filename().string();
}

std::string NamesOf(const PagingCase& made) {
  std::string names;
  for (const auto& [change, seed] : made.changes) {
    StrAppend(&names, names.empty() ? "" : " + ", change->name);
  }
  return names.empty() ? "no change" : names;
}

}  // namespace

bool PagingTable::Add(const PagingCase& made, const Verdict& verdict) {
  const auto judgement = static_cast<size_t>(verdict.judgement);
  ++by_subject_[SubjectKind(made.subject)][judgement];
  std::set<std::string> families;
  for (const auto& [change, seed] : made.changes) families.insert(change->family);
  if (families.empty()) families.insert("no change");
  for (const std::string& family : families) ++by_family_[family][judgement];
  if (verdict.judgement == Judgement::kRefused &&
      absl::StartsWith(verdict.reason, "at run time: ")) {
    ++at_run_time_[verdict.kind];
  }
  if (verdict.judgement != Judgement::kFinding) return false;
  auto& [count, where] = findings_[StrCat(verdict.kind, ": ", NamesOf(made))];
  if (count == 0) where = made.where;
  return count++ == 0;
}

int64_t PagingTable::findings() const {
  int64_t all = 0;
  for (const auto& [subject, counts] : by_subject_) all += counts[kFinding];
  return all;
}

void PagingTable::PrintCounts(const std::string& name, const Counts& counts) {
  std::printf("%-28s", name.substr(0, 27).c_str());
  for (const int64_t count : counts) std::printf("%14lld", static_cast<long long>(count));
  std::printf("\n");
}

void PagingTable::Print() const {
  std::printf("%-28s%14s%14s%14s%14s\n", "", "does not run", "equal", "refused", "different");
  for (const auto& [name, counts] : by_subject_) PrintCounts(name, counts);
  std::printf("\n");
  for (const auto& [name, counts] : by_family_) PrintCounts(name, counts);
  std::printf("\n%lld without a place for a change\n", static_cast<long long>(without_change_));
  for (const auto& [kind, count] : at_run_time_) {
    std::printf("%6lld  paged, and refused %s\n", static_cast<long long>(count), kind.c_str());
  }
  for (const auto& [key, finding] : findings_) {
    std::printf("%6lld  %s\n        %s\n", static_cast<long long>(finding.first), key.c_str(),
                finding.second.c_str());
  }
  std::printf("%lld findings of %zu kinds\n", static_cast<long long>(findings()), findings_.size());
}

}  // namespace pagefuse::fuzz
