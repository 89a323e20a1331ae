// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/rule.h"

#include <algorithm>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/rewrite/condition_text.h"
#include "pagefuse/passes/rewrite/rule_impl.h"

namespace pagefuse {
namespace {

absl::StatusOr<Value*> Bound(const Match& match, const std::string& name) {
  Value* value = match.value(name);
  if (value != nullptr) return value;
  return MatchFailure("the pattern bound no value \"", name, "\"");
}

std::string ShapeText(const Value& value) {
  return value.shape().has_value() ? value.shape()->ToString() : "unknown";
}

// The first two parts of "domain.Op"; the default domain without a dot.
std::pair<std::string, std::string> SplitOpName(const std::string& op) {
  const size_t dot = op.rfind('.');
  if (dot == std::string::npos) return {"", op};
  return {op.substr(0, dot), op.substr(dot + 1)};
}

// The op itself, as the replacement of one of its decompositions.
std::string CallOf(const OpDef& def, const Pattern& pattern) {
  const std::string op = def.domain().empty() ? def.name() : StrCat(def.domain(), ".", def.name());
  const Graph& graph = *pattern.model.graph;
  std::vector<std::string> names;
  size_t last = 0;
  for (const Port& port : def.inputs()) {
    const bool has =
        graph.FindValue(port.name) != nullptr && graph.FindValue(port.name)->is_input();
    names.push_back(has ? port.name : "\"\"");
    if (has) last = names.size();
  }
  names.resize(last);
  std::vector<std::string> formal, outputs;
  for (const Value* input : graph.inputs()) formal.push_back(input->name());
  for (const Value* output : graph.outputs()) outputs.push_back(output->name());
  std::vector<std::string> results;
  size_t last_result = 0;
  for (const Port& port : def.outputs()) {
    const bool has = std::find(outputs.begin(), outputs.end(), port.name) != outputs.end();
    results.push_back(has ? port.name : "\"\"");
    if (has) last_result = results.size();
  }
  results.resize(last_result);
  return StrCat("pattern (", absl::StrJoin(formal, ", "), ") => (", absl::StrJoin(outputs, ", "),
                ") { ", absl::StrJoin(results, ", "), " = ", op, " (", absl::StrJoin(names, ", "),
                ") }");
}

}  // namespace

Value* Match::value(std::string_view name) const {
  auto it = values.find(name);
  return it == values.end() ? nullptr : it->second;
}

const Tensor* Match::constant(std::string_view name) const { return ConstantOf(value(name)); }

Condition SameShape(std::string a, std::string b) {
  std::string name = StrCat("same shape of ", a, " and ", b);
  return {std::move(name),
          [a = std::move(a), b = std::move(b)](const Match& match) -> absl::Status {
            PF_ASSIGN_OR_RETURN(const Value* x, Bound(match, a));
            PF_ASSIGN_OR_RETURN(const Value* y, Bound(match, b));
            if (x->shape().has_value() && y->shape().has_value() &&
                ProvablyEqual(*x->shape(), *y->shape())) {
              return absl::OkStatus();
            }
            return MatchFailure("\"", a, "\" and \"", b,
                                "\" are not provably of the same shape: ", ShapeText(*x), " and ",
                                ShapeText(*y));
          }};
}

Rule::Rule(std::string_view name, std::string_view description) : impl_(std::make_shared<Impl>()) {
  impl_->name = name;
  impl_->description = description;
}

const std::string& Rule::name() const { return impl_->name; }
const std::string& Rule::description() const { return impl_->description; }

Rule& Rule::MatchText(std::string_view text, std::string_view pattern_name) {
  impl_->sources.emplace_back(Impl::Text{std::string(text), std::string(pattern_name)});
  return *this;
}

Rule& Rule::MatchDecompositionOf(std::string_view op) {
  impl_->sources.emplace_back(std::string(op));
  return *this;
}

Rule& Rule::Where(Condition condition) {
  impl_->steps.emplace_back(std::move(condition));
  return *this;
}

Rule& Rule::Where(std::string name, std::function<absl::Status(const Match&)> run) {
  return Where(Condition{std::move(name), std::move(run)});
}

Rule& Rule::Where(std::string_view conditions) {
  const PlaceError error = ErrorsIn(StrCat("rule \"", impl_->name, "\""), conditions);
  absl::StatusOr<std::vector<ParsedCondition>> parsed =
      ParseConditions(conditions, KnownConditionFunctions(), error);
  if (!parsed.ok()) {
    impl_->declared.Update(parsed.status());
    return *this;
  }
  for (ParsedCondition& one : *parsed) Where(std::move(one.condition));
  return *this;
}

Rule& Rule::Derive(Derivation derivation) {
  impl_->steps.emplace_back(std::move(derivation));
  return *this;
}

Rule& Rule::Metadata(std::vector<std::string> inputs) {
  impl_->metadata = std::move(inputs);
  return *this;
}

Rule& Rule::Needs(std::string_view op_type) {
  impl_->needs.emplace_back(op_type);
  return *this;
}

Rule& Rule::ReplaceWith(std::string_view text) {
  impl_->replacement_text = text;
  return *this;
}

Rule& Rule::ReplaceWith(Builder builder) {
  impl_->builder = std::move(builder);
  return *this;
}

namespace {

// Parses a replacement and checks it against the pattern that it is for.
absl::StatusOr<std::shared_ptr<const Graph>> CompileReplacement(const std::string& rule,
                                                                const std::string& text,
                                                                const Pattern& pattern) {
  const auto error = [&](std::string_view what) {
    return absl::InvalidArgumentError(StrCat("rule \"", rule, "\": replacement: ", what));
  };
  auto parsed = ParseFunction(NormaliseFunctionText(text, nullptr));
  if (!parsed.ok()) return error(StdView(parsed.status().message()));
  const Graph& body = *parsed->body;
  if (body.outputs().size() != pattern.outputs.size()) {
    return error(
        StrCat("expected ", pattern.outputs.size(), " outputs, got ", body.outputs().size()));
  }
  for (const auto& node : body.nodes()) {
    if (!node->Subgraphs().empty()) return error(node->Description() + " has a subgraph");
  }
  return std::shared_ptr<const Graph>(parsed->body);
}

struct Compiler {
  const Rule::Impl& rule;
  Rule::Impl::Compiled out;

  // `op` is null where the pattern is a text of the rule.
  absl::Status Add(PatternSource source, const OpDef* op) {
    source.metadata_inputs.insert(source.metadata_inputs.end(), rule.metadata.begin(),
                                  rule.metadata.end());
    auto pattern = CompilePattern(source);
    if (!pattern.ok()) {
      return absl::InvalidArgumentError(
          StrCat("rule \"", rule.name, "\": ", pattern.status().message()));
    }
    PF_RETURN_IF_ERROR(CheckNeeds(**pattern));
    std::string text = rule.replacement_text;
    if (text.empty() && !rule.builder && op != nullptr) text = CallOf(*op, **pattern);
    RuleReplacement replacement{.body = nullptr,
                                .takes_all_attributes = text != rule.replacement_text};
    if (!text.empty()) {
      PF_ASSIGN_OR_RETURN(replacement.body, CompileReplacement(rule.name, text, **pattern));
    } else if (!rule.builder) {
      return absl::InvalidArgumentError(StrCat("rule \"", rule.name, "\" has no replacement"));
    }
    out.patterns.push_back(*std::move(pattern));
    out.replacements.push_back(std::move(replacement));
    return absl::OkStatus();
  }

  absl::Status CheckNeeds(const Pattern& pattern) const {
    const auto& types = pattern.needed_types;
    for (const std::string& type : rule.needs) {
      if (std::find(types.begin(), types.end(), type) != types.end()) continue;
      return absl::InvalidArgumentError(StrCat("rule \"", rule.name, "\": pattern \"", pattern.name,
                                               "\" matches without a node of type ", type,
                                               ", which the rule says it needs"));
    }
    return absl::OkStatus();
  }

  static PatternSource SourceOf(const OpDef& def, const DecompositionForm& form) {
    PatternSource source{.name = form.name.empty() ? def.name() : form.name,
                         .text = form.text,
                         .metadata_inputs = {}};
    for (const Port& port : def.inputs()) {
      if (port.role == PortRole::kMetadata) source.metadata_inputs.push_back(port.name);
    }
    return source;
  }

  absl::Status AddOp(const std::string& op) {
    const auto [domain, name] = SplitOpName(op);
    const OpDef* def = OpRegistry::Global().Find(domain, name, kAnyOpset);
    if (def == nullptr) {
      return absl::InvalidArgumentError(
          StrCat("rule \"", rule.name, "\": there is no op \"", op, "\""));
    }
    if (def->forms().empty()) {
      return absl::InvalidArgumentError(
          StrCat("rule \"", rule.name, "\": op \"", op, "\" has no decomposition that is a text"));
    }
    for (const DecompositionForm& form : def->forms()) {
      PF_RETURN_IF_ERROR(Add(SourceOf(*def, form), def));
    }
    return absl::OkStatus();
  }

  static constexpr int64_t kAnyOpset = 1 << 20;
};

}  // namespace

absl::Status Rule::Compile() const {
  if (impl_->compiled != nullptr) return absl::OkStatus();
  PF_RETURN_IF_ERROR(impl_->declared);
  Compiler compiler{*impl_, {}};
  for (const auto& source : impl_->sources) {
    if (const auto* op = std::get_if<std::string>(&source)) {
      PF_RETURN_IF_ERROR(compiler.AddOp(*op));
      continue;
    }
    const auto& text = std::get<Impl::Text>(source);
    PF_RETURN_IF_ERROR(
        compiler.Add({.name = text.name, .text = text.text, .metadata_inputs = {}}, nullptr));
  }
  impl_->compiled = std::make_unique<Impl::Compiled>(std::move(compiler.out));
  return absl::OkStatus();
}

}  // namespace pagefuse
