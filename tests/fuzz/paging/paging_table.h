// SPDX-License-Identifier: Apache-2.0
// What the fuzzer of paging found, counted.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "../decoders/judge.h"
#include "paging_case.h"

namespace pagefuse::fuzz {

class PagingTable {
 public:
  // True for a finding unlike all before it: of another kind, or by another change.
  bool Add(const PagingCase& made, const Verdict& verdict);
  // Of a seed whose changes had no place.
  void AddUnchanged() { ++without_change_; }
  void Print() const;
  int64_t findings() const;

 private:
  using Counts = std::array<int64_t, kNumJudgements>;
  static void PrintCounts(const std::string& name, const Counts& counts);

  int64_t without_change_ = 0;
  std::map<std::string, Counts> by_subject_, by_family_;
  std::map<std::string, int64_t> at_run_time_;  // refusals of paged steps, by kind
  std::map<std::string, std::pair<int64_t, std::string>> findings_;  // by key, with a place
};

}  // namespace pagefuse::fuzz
