#include "pagefuse/passes/authoring/rule_text.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/authoring/condition_text.h"
#include "pagefuse/passes/authoring/rule_sections.h"
#include "pagefuse/passes/authoring/rule_spellings.h"
#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/pipeline.h"
#include "pagefuse/passes/rule.h"
#include "pagefuse/passes/similar_names.h"

namespace pagefuse {
namespace {

const std::vector<std::string>& RuleKeys() {
  static const auto* keys = new std::vector<std::string>{"rule",  "before", "after",   "metadata",
                                                         "where", "let",    "match-op"};
  return *keys;
}

bool Contains(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// One rule of a file.
class Builder {
 public:
  Builder(const RuleParts& parts, const ConditionFunctions& functions, const PlaceError& error)
      : parts_(parts), functions_(functions), error_(error), rule_(parts.name, parts.description) {}

  absl::StatusOr<Rule> Build() {
    PF_RETURN_IF_ERROR(AddPatterns());
    for (const RuleKey& key : parts_.keys) PF_RETURN_IF_ERROR(AddKey(key));
    PF_RETURN_IF_ERROR(AddReplacement());
    const absl::Status compiled = rule_.Compile();
    if (compiled.ok()) return rule_;
    return error_(parts_.name, StdView(compiled.message()));
  }

  const std::string& before() const { return before_; }
  const std::string& after() const { return after_; }

 private:
  absl::Status AddPatterns() {
    PF_ASSIGN_OR_RETURN(const std::vector<Spelling> spellings, SpellingsOf(parts_, error_));
    for (const Spelling& spelling : spellings) {
      rule_.MatchText(spelling.text, spelling.name);
      PF_RETURN_IF_ERROR(CheckFunctionText(spelling.text, error_, &names_));
    }
    PF_RETURN_IF_ERROR(NameParts(spellings));
    for (const RuleKey& key : parts_.keys) {
      if (key.key == "match-op") rule_.MatchDecompositionOf(key.value);
      any_name_ = any_name_ || key.key == "match-op";
    }
    if (spellings.empty() && !any_name_) return error_(parts_.name, "the rule has no pattern");
    return absl::OkStatus();
  }

  // @PART is what the part's spelling is called where it matched.
  absl::Status NameParts(const std::vector<Spelling>& spellings) {
    std::map<std::string, std::vector<std::pair<std::string, std::string>>> parts;
    for (const Spelling& spelling : spellings) {
      if (spelling.parts.empty()) continue;
      if (!parts.emplace(spelling.name, spelling.parts).second) {
        return error_(parts_.name, StrCat("two spellings are called \"", spelling.name, "\""));
      }
      for (const auto& [part, name] : spelling.parts) names_.attributes.push_back(part);
    }
    if (parts.empty()) return absl::OkStatus();
    rule_.Derive([parts = std::move(parts)](Match& match) {
      const auto found = parts.find(match.pattern);
      if (found == parts.end()) return absl::OkStatus();
      for (const auto& [part, name] : found->second) {
        match.attributes.insert_or_assign(part, MakeAttribute(name));
      }
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

  absl::Status AddKey(const RuleKey& key) {
    if (key.key == "before" || key.key == "after") {
      if (!before_.empty() || !after_.empty())
        return error_(key.key, "the rule has a place already");
      (key.key == "before" ? before_ : after_) = key.value;
    } else if (key.key == "metadata") {
      return AddMetadata(key.value);
    } else if (key.key == "where") {
      return AddConditions(key.value);
    } else if (key.key == "let") {
      return AddDerivation(key.value);
    } else if (key.key != "match-op") {
      return error_(key.key,
                    StrCat("there is no key \"", key.key, "\"", SimilarNames(key.key, RuleKeys())));
    }
    return absl::OkStatus();
  }

  absl::Status AddMetadata(std::string_view value) {
    std::vector<std::string> inputs;
    for (absl::string_view name : absl::StrSplit(AbslView(value), ',')) {
      const std::string_view trimmed = StdView(absl::StripAsciiWhitespace(name));
      PF_RETURN_IF_ERROR(CheckName(trimmed));
      inputs.emplace_back(trimmed);
    }
    rule_.Metadata(std::move(inputs));
    return absl::OkStatus();
  }

  // Ports of ops whose decompositions match are not looked up here.
  absl::Status CheckName(std::string_view name) const {
    if (any_name_ || Contains(names_.values, name)) return absl::OkStatus();
    return error_(
        name, StrCat("no pattern has a value \"", name, "\"", SimilarNames(name, names_.values)));
  }

  absl::Status AddConditions(std::string_view value) {
    PF_ASSIGN_OR_RETURN(std::vector<ParsedCondition> conditions,
                        ParseConditions(value, functions_, error_));
    for (ParsedCondition& condition : conditions) {
      for (const std::string_view name : condition.names) PF_RETURN_IF_ERROR(CheckName(name));
      rule_.Where(std::move(condition.condition));
    }
    return absl::OkStatus();
  }

  absl::Status AddDerivation(std::string_view value) {
    PF_ASSIGN_OR_RETURN(ParsedDerivation derivation, ParseDerivation(value, functions_, error_));
    for (const std::string_view name : derivation.names) PF_RETURN_IF_ERROR(CheckName(name));
    names_.attributes.push_back(derivation.name);
    rule_.Derive(std::move(derivation.derivation));
    return absl::OkStatus();
  }

  absl::Status AddReplacement() {
    const RuleSection* after = nullptr;
    for (const RuleSection& section : parts_.sections) {
      if (section.kind != "after") continue;
      if (after != nullptr) return error_(section.title, "the rule has a replacement already");
      after = &section;
    }
    if (after == nullptr) {
      return any_name_ ? absl::OkStatus()
                       : error_(parts_.name, "the rule has no part \"# ---- after\"");
    }
    TextNames names;
    PF_RETURN_IF_ERROR(CheckFunctionText(after->text, error_, &names));
    for (const std::string& attribute : names.attributes) {
      if (any_name_ || Contains(names_.attributes, attribute)) continue;
      const size_t at = after->text.find("@" + attribute);
      return error_(after->text.substr(std::min(at, after->text.size())),
                    StrCat("no pattern and no \"let\" has @", attribute,
                           SimilarNames(attribute, names_.attributes)));
    }
    rule_.ReplaceWith(after->text);
    return absl::OkStatus();
  }

  const RuleParts& parts_;
  const ConditionFunctions& functions_;
  const PlaceError& error_;
  Rule rule_;
  TextNames names_;
  bool any_name_ = false;
  std::string before_, after_;
};

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

absl::Status CheckPlace(const RuleParts& parts, const Builder& builder, const PlaceError& error) {
  const std::string& place = builder.before().empty() ? builder.after() : builder.before();
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
    Builder builder(parts, functions, error);
    PF_ASSIGN_OR_RETURN(Rule rule, builder.Build());
    PF_RETURN_IF_ERROR(CheckPlace(parts, builder, error));
    GroupOf(groups, builder.before(), builder.after()).rules.push_back(std::move(rule));
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

std::string RulePassName(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  for (const std::string_view ending : {".txt", ".rules"}) {
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  }
  return name;
}

absl::StatusOr<std::vector<Rule>> ParseRules(const RuleFile& file) {
  const PlaceError error = ErrorsIn(file.path, file.text);
  PF_ASSIGN_OR_RETURN(const std::vector<RuleParts> parts, CutRules(file.text, error));
  const ConditionFunctions functions = KnownConditionFunctions();
  std::vector<Rule> rules;
  for (const RuleParts& one : parts) {
    PF_ASSIGN_OR_RETURN(Rule rule, Builder(one, functions, error).Build());
    rules.push_back(std::move(rule));
  }
  return rules;
}

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
