// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/pipeline/placed_rules.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/passes/rewrite/text/rule_sections.h"
#include "pagefuse/passes/rewrite/text/rule_text.h"

namespace pagefuse {
namespace {

// A pass that several pipelines share.
class SharedPass : public Pass {
 public:
  explicit SharedPass(std::shared_ptr<const Pass> pass) : pass_(std::move(pass)) {}
  std::string_view name() const override { return pass_->name(); }
  std::string_view description() const override { return pass_->description(); }
  std::vector<RuleSummary> rules() const override { return pass_->rules(); }
  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
    return pass_->Run(model, context);
  }

 private:
  std::shared_ptr<const Pass> pass_;
};

// The rules that stand in one place.
struct Group {
  std::string before, after;
  std::vector<Rule> rules;
};

Group& GroupOf(std::vector<Group>& groups, const std::string& before, const std::string& after) {
  for (Group& group : groups) {
    if (group.before == before && group.after == after) return group;
  }
  groups.push_back({before, after, {}});
  return groups.back();
}

absl::Status CheckPlace(const RuleParts& parts, const TextRule& made, const PlaceError& error) {
  const std::string& place = made.before.empty() ? made.after : made.before;
  if (place.empty()) return absl::OkStatus();
  const absl::Status found = FindPass(place).status();
  if (found.ok()) return found;
  for (const RuleKey& key : parts.keys) {
    if (key.value == place) return error(key.value, StdView(found.message()));
  }
  return found;
}

absl::StatusOr<std::vector<PlacedPass>> PassesOf(const std::string& name, const RuleFile& file,
                                                 const std::vector<RuleParts>& rules,
                                                 const ConditionFunctions& functions) {
  const PlaceError error = ErrorsIn(file.path, file.text);
  std::vector<Group> groups;
  for (const RuleParts& parts : rules) {
    PF_ASSIGN_OR_RETURN(TextRule made, MakeRule(parts, functions, error));
    PF_RETURN_IF_ERROR(CheckPlace(parts, made, error));
    GroupOf(groups, made.before, made.after).rules.push_back(std::move(made.rule));
  }
  std::vector<PlacedPass> placed;
  std::string description(PassDescriptionOf(file.text));
  if (description.empty()) description = StrCat("Rules of ", file.path, ".");
  for (Group& group : groups) {
    std::shared_ptr<const Pass> pass = MakeRulePass(name, description, group.rules);
    placed.push_back({std::move(pass), std::move(group.rules), group.before, group.after});
  }
  return placed;
}

// Names that passes and rules have; a file's or plug-in's may be added.
class TakenNames {
 public:
  explicit TakenNames(const std::vector<PlacedPass>& others) {
    for (const auto& pass : AllPasses()) Take(*pass);
    for (const PlacedPass& placed : others) Take(*placed.pass);
  }

  // Those of passes that are called `name`.
  absl::Status Add(const std::string& name, const RuleFile& file,
                   const std::vector<PlacedPass>& added) {
    std::set<std::string> here = {name};
    for (const PlacedPass& pass : added) {
      for (const RuleSummary& rule : pass.pass->rules()) {
        const bool is_new = !names_.contains(rule.name) && here.insert(rule.name).second;
        if (is_new || rule.name == name) continue;
        const size_t at = file.text.find("# rule: " + rule.name);
        return ErrorAt(file.path, file.text, at == std::string::npos ? 0 : at + 8,
                       StrCat("there is a pass or rule \"", rule.name, "\" already"));
      }
    }
    names_.insert(here.begin(), here.end());
    return absl::OkStatus();
  }

  bool Has(const std::string& name) const { return names_.contains(name); }

 private:
  void Take(const Pass& pass) {
    names_.emplace(pass.name());
    for (const RuleSummary& rule : pass.rules()) names_.insert(rule.name);
  }

  std::set<std::string> names_;
};

std::mutex& PluginRulesLock() {
  static auto* lock = new std::mutex;
  return *lock;
}

std::vector<PlacedPass>& AllPluginRules() {
  static auto* rules = new std::vector<PlacedPass>;
  return *rules;
}

std::vector<PlacedPass> PluginRules() {
  const std::lock_guard lock(PluginRulesLock());
  return AllPluginRules();
}

}  // namespace

absl::StatusOr<std::vector<PlacedPass>> ReadRules(const RuleFile& file) {
  PF_ASSIGN_OR_RETURN(const std::vector<RuleParts> rules,
                      CutRules(file.text, ErrorsIn(file.path, file.text)));
  return PassesOf(RulePassName(file.path), file, rules, KnownConditionFunctions());
}

absl::StatusOr<std::vector<PlacedPass>> ReadRuleFiles(const std::vector<RuleFile>& files) {
  std::vector<PlacedPass> all = PluginRules();
  if (files.empty()) return all;
  TakenNames names(all);
  for (const RuleFile& file : files) {
    PF_ASSIGN_OR_RETURN(std::vector<PlacedPass> placed, ReadRules(file));
    const std::string name = RulePassName(file.path);
    if (names.Has(name)) {
      return absl::InvalidArgumentError(StrCat(file.path, ": there is a pass or rule \"", name,
                                               "\" already: name the file otherwise"));
    }
    PF_RETURN_IF_ERROR(names.Add(name, file, placed));
    for (PlacedPass& pass : placed) all.push_back(std::move(pass));
  }
  return all;
}

absl::StatusOr<std::vector<PlacedPass>> ReadPluginRules(const std::string& path,
                                                        const std::string& name,
                                                        const std::vector<RuleFile>& files,
                                                        const ConditionFunctions& functions) {
  std::vector<PlacedPass> all;
  TakenNames names(PluginRules());
  if (names.Has(name)) {
    return absl::InvalidArgumentError(
        StrCat("there is a pass or rule \"", name, "\" already, and its rules would be called so"));
  }
  for (const RuleFile& file : files) {
    PF_ASSIGN_OR_RETURN(const TextParts parts, CutText(file.text, ErrorsIn(file.path, file.text)));
    PF_ASSIGN_OR_RETURN(std::vector<PlacedPass> placed,
                        PassesOf(name, file, parts.rules, functions));
    PF_RETURN_IF_ERROR(names.Add(name, file, placed));
    for (PlacedPass& pass : placed) {
      pass.plugin = path;
      all.push_back(std::move(pass));
    }
  }
  return all;
}

void PublishPluginRules(const std::vector<PlacedPass>& added) {
  const std::lock_guard lock(PluginRulesLock());
  AllPluginRules().insert(AllPluginRules().end(), added.begin(), added.end());
}

std::vector<std::unique_ptr<Pass>> RulePasses(const std::vector<PlacedPass>& rules,
                                              const std::string& name) {
  std::vector<std::unique_ptr<Pass>> passes;
  for (const PlacedPass& placed : rules) {
    if (placed.pass->name() == name) passes.push_back(std::make_unique<SharedPass>(placed.pass));
    for (const Rule& rule : placed.rules) {
      if (rule.name() != name || placed.pass->name() == name) continue;
      passes.push_back(MakeRulePass(name, rule.description(), {rule}));
    }
  }
  return passes;
}

void PlaceRules(const std::vector<PlacedPass>& rules, std::vector<std::unique_ptr<Pass>>& passes) {
  // Rules of one place keep their order.
  for (const PlacedPass& placed : rules) {
    const bool is_before = !placed.before.empty();
    const std::string name = is_before              ? placed.before
                             : placed.after.empty() ? std::string(kLastRecognised)
                                                    : placed.after;
    const auto has_name = [&name](const std::unique_ptr<Pass>& pass) {
      return pass->name() == name;
    };
    auto at = passes.end();
    if (is_before) {
      at = std::ranges::find_if(passes, has_name);
    } else {
      const auto last = std::find_if(passes.rbegin(), passes.rend(), has_name);
      if (last != passes.rend()) at = last.base();
      while (at != passes.end() && dynamic_cast<const SharedPass*>(at->get()) != nullptr) ++at;
    }
    passes.insert(at, std::make_unique<SharedPass>(placed.pass));
  }
}

}  // namespace pagefuse
