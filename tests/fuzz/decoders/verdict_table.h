// SPDX-License-Identifier: Apache-2.0
// What a run of the differential fuzzer comes to: counts, and what was found made plain.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "../child.h"
#include "judge.h"
#include "plan.h"

namespace pagefuse::fuzz {

class VerdictTable {
 public:
  explicit VerdictTable(std::string out) : out_(std::move(out)) {}

  // Counts a verdict. One that is new is made plain by leaving features out one by one, and then
  // stands for all whose plans have the same features: findings, and refusals of what can be paged.
  void Add(const Plan& plan, const Verdict& verdict);
  void Print() const;
  int findings() const { return static_cast<int>(findings_.size()); }

 private:
  struct Class {
    Plan plan;
    Verdict verdict;
    int count = 1;
  };

  bool CountKnown(std::vector<Class>& classes, const Plan& plan, const Verdict& verdict) const;
  Class Plainest(Plan plan, Verdict verdict);
  void Write(const Class& found) const;

  std::string out_;
  Progress& progress_ = SharedProgress();
  std::map<std::string, std::vector<int>> counts_;  // by meaning, then by judgement
  std::map<std::string, int> refusals_;             // of what mixes, by kind
  std::map<std::string, std::pair<int, uint64_t>> invalid_;
  std::vector<Class> findings_, recall_;
};

}  // namespace pagefuse::fuzz
