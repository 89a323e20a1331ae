#include "pagefuse/passes/authoring/embedded_rules.h"

#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/authoring/rule_text.h"
#include "pagefuse/passes/rule.h"

namespace pagefuse {

std::unique_ptr<Pass> EmbeddedRulePass(std::string_view name, std::string_view description) {
  // Parsed and compiled once; after that nobody writes to a rule.
  static auto* mutex = new std::mutex;
  static auto* parsed = new std::map<std::string, std::vector<Rule>, std::less<>>;
  const std::lock_guard lock(*mutex);
  auto it = parsed->find(name);
  if (it == parsed->end()) {
    const RuleFile file{.path = StrCat(name, ".rules.txt"),
                        .text = std::string(EmbeddedRules(name))};
    absl::StatusOr<std::vector<Rule>> rules = ParseRules(file);
    if (!rules.ok()) std::cerr << rules.status().message() << "\n";
    PF_CHECK(rules.ok());
    it = parsed->emplace(std::string(name), *std::move(rules)).first;
  }
  return MakeRulePass(name, description, it->second);
}

}  // namespace pagefuse
