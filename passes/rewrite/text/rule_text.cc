// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/text/rule_text.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/similar_names.h"
#include "pagefuse/passes/rewrite/condition_text.h"
#include "pagefuse/passes/rewrite/text/rule_variants.h"
#include "pagefuse/passes/rewrite/written_ops.h"

namespace pagefuse {
namespace {

const std::vector<std::string>& RuleKeys() {
  static const auto* keys = new std::vector<std::string>{"rule",  "before", "after",   "metadata",
                                                         "where", "let",    "match-op"};
  return *keys;
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
    PF_ASSIGN_OR_RETURN(const std::vector<Variant> variants, VariantsOf(parts_, error_));
    for (const Variant& variant : variants) {
      rule_.MatchText(variant.text, variant.name);
      PF_RETURN_IF_ERROR(CheckFunctionText(variant.text, error_, &names_));
    }
    PF_RETURN_IF_ERROR(NameParts(variants));
    for (const RuleKey& key : parts_.keys) {
      if (key.key == "match-op") rule_.MatchDecompositionOf(key.value);
      any_name_ = any_name_ || key.key == "match-op";
    }
    if (variants.empty() && !any_name_) return error_(parts_.name, "the rule has no pattern");
    return absl::OkStatus();
  }

  // @PART is what the part's form is called where it matched.
  absl::Status NameParts(const std::vector<Variant>& variants) {
    std::map<std::string, std::vector<std::pair<std::string, std::string>>> parts;
    for (const Variant& variant : variants) {
      if (variant.parts.empty()) continue;
      if (!parts.emplace(variant.name, variant.parts).second) {
        return error_(parts_.name, StrCat("two forms are called \"", variant.name, "\""));
      }
      for (const auto& [part, name] : variant.parts) names_.attributes.push_back(part);
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
    if (any_name_ || absl::c_linear_search(names_.values, name)) return absl::OkStatus();
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
    PF_RETURN_IF_ERROR(CheckWritten(after->text));
    for (const std::string& attribute : names.attributes) {
      if (any_name_ || absl::c_linear_search(names_.attributes, attribute)) continue;
      const size_t at = after->text.find("@" + attribute);
      return error_(after->text.substr(std::min(at, after->text.size())),
                    StrCat("no pattern and no \"let\" has @", attribute,
                           SimilarNames(attribute, names_.attributes)));
    }
    rule_.ReplaceWith(after->text);
    return absl::OkStatus();
  }

  // What no graph could run is no replacement.
  absl::Status CheckWritten(std::string_view text) const {
    PF_ASSIGN_OR_RETURN(const Function function, ParseFunctionText(text, error_));
    const std::optional<WrittenFault> fault = FaultOfWritten(*function.body);
    if (!fault) return absl::OkStatus();
    const std::string_view node = PlaceOfNode(*fault->node, text);
    const size_t at = fault->attribute.empty() ? 0 : node.find(fault->attribute);
    return error_(node.substr(std::min(at, node.size())), fault->message);
  }

  const RuleParts& parts_;
  const ConditionFunctions& functions_;
  const PlaceError& error_;
  Rule rule_;
  TextNames names_;
  bool any_name_ = false;
  std::string before_, after_;
};

}  // namespace

absl::StatusOr<TextRule> MakeRule(const RuleParts& parts, const ConditionFunctions& functions,
                                  const PlaceError& error) {
  Builder builder(parts, functions, error);
  PF_ASSIGN_OR_RETURN(Rule rule, builder.Build());
  return TextRule{std::move(rule), builder.before(), builder.after()};
}

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
    PF_ASSIGN_OR_RETURN(TextRule made, MakeRule(one, functions, error));
    rules.push_back(std::move(made.rule));
  }
  return rules;
}

}  // namespace pagefuse
