// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/text/embedded_rules.h"

#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/rewrite/rule.h"
#include "pagefuse/passes/rewrite/text/rule_sections.h"
#include "pagefuse/passes/rewrite/text/rule_text.h"

namespace pagefuse {
namespace {

template <typename T>
T ValueOrEnd(absl::StatusOr<T> value) {
  if (!value.ok()) std::cerr << value.status().message() << "\n";
  PF_CHECK(value.ok());
  return *std::move(value);
}

class EmbeddedPass : public Pass {
 public:
  explicit EmbeddedPass(std::string_view name)
      : name_(name), file_{StrCat(name, ".rules.txt"), std::string(EmbeddedRules(name))} {}

  std::string_view name() const override { return name_; }
  std::string_view description() const override { return PassDescriptionOf(file_.text); }

  std::vector<RuleSummary> rules() const override {
    std::vector<RuleSummary> summaries;
    for (RuleParts& rule : ValueOrEnd(CutRules(file_.text, ErrorsIn(file_.path, file_.text)))) {
      summaries.push_back({std::string(rule.name), std::move(rule.description)});
    }
    return summaries;
  }

  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
    return Parsed().Run(model, context);
  }

 private:
  // Once for the program; after that nobody writes to a rule.
  const Pass& Parsed() const {
    static auto* mutex = new std::mutex;
    static auto* parsed = new std::map<std::string, std::unique_ptr<Pass>>;
    const std::lock_guard lock(*mutex);
    std::unique_ptr<Pass>& pass = (*parsed)[name_];
    if (!pass) pass = MakeRulePass(name_, description(), ValueOrEnd(ParseRules(file_)));
    return *pass;
  }

  std::string name_;
  RuleFile file_;
};

}  // namespace

std::unique_ptr<Pass> EmbeddedRulePass(std::string_view name) {
  return std::make_unique<EmbeddedPass>(name);
}

}  // namespace pagefuse
