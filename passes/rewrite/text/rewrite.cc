// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/text/rewrite.h"

#include <map>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {

std::string RewriteName(const Rewrite& rewrite, int64_t total) {
  std::string text = StrCat("rewrite ", rewrite.number);
  if (total > 0) StrAppend(&text, " of ", total);
  StrAppend(&text, ", pass ", rewrite.pass);
  if (rewrite.rule != rewrite.pass) StrAppend(&text, ", rule ", rewrite.rule);
  if (!rewrite.at.empty()) StrAppend(&text, " at \"", rewrite.at, "\"");
  return text;
}

std::vector<std::string> NotComparedLines(const std::vector<Rewrite>& rewrites) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < rewrites.size();) {
    size_t end = i + 1;
    if (rewrites[i].numbers == Rewrite::Numbers::kNotCompared) {
      while (end < rewrites.size() && rewrites[end].numbers == rewrites[i].numbers &&
             rewrites[end].detail == rewrites[i].detail) {
        ++end;
      }
      const std::string name =
          end == i + 1 ? RewriteName(rewrites[i], static_cast<int64_t>(rewrites.size())) + ":"
                       : StrCat("rewrites ", rewrites[i].number, "-", rewrites[end - 1].number,
                                " of ", rewrites.size(), ":");
      lines.push_back(StrCat(name, " not compared: ", rewrites[i].detail));
    }
    i = end;
  }
  return lines;
}

std::string RewriteLog(const std::vector<Rewrite>& rewrites) {
  std::string text;
  for (const Rewrite& rewrite : rewrites) {
    StrAppend(&text, RewriteName(rewrite), "\n");
    for (const std::string& node : rewrite.taken) StrAppend(&text, "  - ", node, "\n");
    for (const std::string& node : rewrite.made) StrAppend(&text, "  + ", node, "\n");
  }
  return text;
}

std::string VerifySummary(const std::vector<Rewrite>& rewrites) {
  int64_t equal = 0, differ = 0, others = 0;
  std::map<std::string, int> by_rule;
  for (const Rewrite& rewrite : rewrites) {
    equal += rewrite.numbers == Rewrite::Numbers::kEqual ? 1 : 0;
    others += rewrite.numbers == Rewrite::Numbers::kNotCompared ? 1 : 0;
    if (rewrite.numbers != Rewrite::Numbers::kDiffer) continue;
    ++differ;
    ++by_rule[rewrite.rule];
  }
  std::string rules;
  for (const auto& [rule, count] : by_rule) {
    StrAppend(&rules, rules.empty() ? " (" : ", ", rule, " ", count);
  }
  if (!rules.empty()) rules += ")";
  return StrCat(rewrites.size(), rewrites.size() == 1 ? " rewrite: " : " rewrites: ", equal,
                " equal, ", differ, " differ", rules, ", ", others, " not compared");
}

}  // namespace pagefuse
