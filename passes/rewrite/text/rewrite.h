// SPDX-License-Identifier: Apache-2.0
// Describes one rewrite of a pipeline: its number, its place, and what became of the numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pagefuse {

struct Rewrite {
  enum class Numbers { kNotAsked, kEqual, kDiffer, kNotCompared };

  int64_t number = 0;  // from 1 over the whole pipeline
  std::string pass;
  std::string rule;
  std::string at;                        // the value whose readers read another one now
  std::vector<std::string> taken, made;  // nodes, as text
  Numbers numbers = Numbers::kNotAsked;
  std::string detail = {};  // how they differ, and where; or why they were not compared
};

// `rewrite 239 of 365, pass wrong, rule bad-tanh at "val_386"`; without the total where it is 0.
std::string RewriteName(const Rewrite& rewrite, int64_t total = 0);

// A line for each run of rewrites that were not compared for the same reason: `rewrites 1-12 of 40
// were not compared: ...`.
std::vector<std::string> NotComparedLines(const std::vector<Rewrite>& rewrites);

// The list as text: a line for each rewrite, and indented the nodes that it took and made.
std::string RewriteLog(const std::vector<Rewrite>& rewrites);

// `365 rewrites: 359 equal, 6 differ (bad-tanh 6), 0 not compared`
std::string VerifySummary(const std::vector<Rewrite>& rewrites);

// A file of rules as text (rewrite/text/rule_text.h).
struct RuleFile {
  std::string path;
  std::string text;
};

}  // namespace pagefuse
