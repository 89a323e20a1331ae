// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/json_schema.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "pagefuse/base/json_depth.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/grammar/automaton.h"
#include "pagefuse/text/grammar/grammar_stacks.h"
#include "pagefuse/text/grammar/json_rules.h"
#include "pagefuse/text/grammar/schema_rules.h"

namespace pagefuse {
namespace {

enum SchemaType : size_t {
  kString,
  kInteger,
  kNumber,
  kBoolean,
  kNull,
  kObject,
  kArray,
  kNumTypes
};
constexpr std::string_view kTypeNames[] = {"string", "integer", "number", "boolean",
                                           "null",   "object",  "array"};

constexpr uint32_t Bit(SchemaType type) { return 1u << type; }

struct KeywordOfType {
  const char* keyword;
  SchemaType type;
};
constexpr KeywordOfType kKeywordsOfTypes[] = {{"properties", kObject},
                                              {"required", kObject},
                                              {"additionalProperties", kObject},
                                              {"items", kArray},
                                              {"prefixItems", kArray},
                                              {"minItems", kArray},
                                              {"maxItems", kArray},
                                              {"minLength", kString},
                                              {"maxLength", kString},
                                              {"pattern", kString},
                                              {"format", kString},
                                              {"minimum", kInteger},
                                              {"maximum", kInteger},
                                              {"exclusiveMinimum", kInteger},
                                              {"exclusiveMaximum", kInteger}};

// 0 if the schema says nothing of types.
absl::StatusOr<uint32_t> TypesOf(const SchemaNode& node) {
  uint32_t types = 0;
  if (!node.Has("type")) {
    for (const auto& [keyword, type] : kKeywordsOfTypes) {
      if (node.Has(keyword)) types |= Bit(type);
    }
    return types;
  }
  const SchemaJson& given = node["type"];
  const SchemaJson list = given.is_array() ? given : SchemaJson::array({given});
  for (const SchemaJson& name : list) {
    const auto found = std::find(std::begin(kTypeNames), std::end(kTypeNames),
                                 name.is_string() ? name.get<std::string>() : std::string());
    if (found == std::end(kTypeNames)) return node.Wrong("type", "names of types");
    types |= 1u << (found - std::begin(kTypeNames));
  }
  if (types == 0) return node.Wrong("type", "one type at least");
  return types;
}

bool IsOfTypes(const SchemaJson& value, uint32_t types) {
  if (value.is_string()) return types & Bit(kString);
  if (value.is_boolean()) return types & Bit(kBoolean);
  if (value.is_null()) return types & Bit(kNull);
  if (value.is_object()) return types & Bit(kObject);
  if (value.is_array()) return types & Bit(kArray);
  const bool whole =
      value.is_number_integer() || std::floor(value.get<double>()) == value.get<double>();
  return types & Bit(kNumber) || (whole && types & Bit(kInteger));
}

bool IsJsonTooDeep(const SchemaJson& json, int depth) {
  if (!json.is_structured()) return false;
  if (depth == 0) return true;
  return std::any_of(json.begin(), json.end(),
                     [depth](const SchemaJson& part) { return IsJsonTooDeep(part, depth - 1); });
}

// The length of the schema's text; InvalidArgument if it has none.
absl::StatusOr<size_t> SchemaBytes(const SchemaJson& schema) {
  try {
    return schema.dump().size();
  } catch (const SchemaJson::exception&) {
    return absl::InvalidArgumentError("the schema: expected strings in UTF-8");
  }
}

RuleNfa CallOf(uint32_t callee) {
  RuleNfa rule;
  const uint32_t end = rule.AddState();
  rule.AddCall(0, callee, end);
  rule.Accept(end);
  return rule;
}

bool ReadsAll(const Automaton& automaton, std::string_view text) {
  GrammarStacks stacks(automaton);
  GrammarPlaces places = stacks.Begin();
  for (const char byte : text) places = stacks.Read(places, static_cast<uint8_t>(byte));
  return places.accepts;
}

}  // namespace

SchemaRules::SchemaRules(const SchemaJson& root, const GrammarBudget& budget)
    : root_(root), budget_(budget), set_(SharedRules()) {}

absl::StatusOr<RuleSet> SchemaRules::Run(const SchemaNode& start) {
  PF_ASSIGN_OR_RETURN(set_.start, RuleOf(start));
  while (!referred_.empty()) {
    auto [node, rule] = std::move(referred_.back());
    referred_.pop_back();
    PF_RETURN_IF_ERROR(Fill(node, rule));
  }
  return std::move(set_);
}

absl::StatusOr<uint32_t> SchemaRules::RuleOf(const SchemaNode& node) {
  if (node.depth > kMaxSchemaDepth) {
    return absl::ResourceExhaustedError(StrCat(node.pointer, ": expected at most ", kMaxSchemaDepth,
                                               " schemas around a schema, got ", node.depth));
  }
  const auto [place, added] = rules_.try_emplace(node.json, 0);
  if (!added) return place->second;
  const uint32_t rule = set_.Add(RuleNfa());
  place->second = rule;
  PF_RETURN_IF_ERROR(Fill(node, rule));
  return rule;
}

absl::StatusOr<uint32_t> SchemaRules::CalleeOf(const SchemaNode& node) {
  PF_ASSIGN_OR_RETURN(const uint32_t rule, RuleOf(node));
  return set_.CalleeOf(rule);
}

absl::Status SchemaRules::Fill(const SchemaNode& node, uint32_t rule) {
  PF_RETURN_IF_ERROR(budget_.Check(0));
  PF_ASSIGN_OR_RETURN(RuleNfa made, Made(node));
  PF_RETURN_IF_ERROR(budget_.Check(made.size()));
  made.SetPlace(node.pointer.empty() ? "the schema" : node.pointer);
  set_.rules[rule] = std::move(made);
  return absl::OkStatus();
}

absl::StatusOr<RuleNfa> SchemaRules::Made(const SchemaNode& node) {
  if (node.json->is_boolean()) {
    return node.json->get<bool>() ? CallOf(set_.CalleeOf(kJsonValue)) : RuleNfa();
  }
  if (!node.json->is_object()) return node.Error("expected a schema, an object or a boolean");
  PF_RETURN_IF_ERROR(CheckKeywords(node));
  for (const char* alone : {"$ref", "anyOf", "allOf"}) {
    if (!node.Has(alone)) continue;
    if (const auto other = OtherKeyword(node, {alone})) {
      return node.Wrong(*other, StrCat("no such keyword beside \"", alone, "\""));
    }
    return alone == std::string_view("$ref") ? Reference(node) : Alternatives(node, alone);
  }
  if (node.Has("enum") || node.Has("const")) return Values(node);
  return Typed(node);
}

absl::StatusOr<RuleNfa> SchemaRules::Reference(const SchemaNode& node) {
  PF_ASSIGN_OR_RETURN(SchemaNode to, ResolveSchema(root_, node));
  const auto [place, added] = rules_.try_emplace(to.json, 0);
  if (added) {
    place->second = set_.Add(RuleNfa());
    referred_.push_back({std::move(to), place->second});
  }
  return CallOf(set_.CalleeOf(place->second));
}

absl::StatusOr<RuleNfa> SchemaRules::Alternatives(const SchemaNode& node, const char* keyword) {
  const SchemaJson& list = node[keyword];
  if (!list.is_array() || list.empty()) return node.Wrong(keyword, "a list of schemas, not empty");
  if (keyword == std::string_view("allOf") && list.size() > 1) {
    return node.Wrong(keyword, "one schema only");
  }
  RuleNfa rule;
  const uint32_t end = rule.AddState();
  rule.Accept(end);
  const std::string pointer = node.pointer + PointerStep(keyword);
  for (size_t i = 0; i < list.size(); ++i) {
    PF_ASSIGN_OR_RETURN(const uint32_t callee,
                        CalleeOf({&list[i], StrCat(pointer, "/", i), node.depth + 1}));
    rule.AddCall(0, callee, end);
  }
  return rule;
}

absl::StatusOr<RuleNfa> SchemaRules::Values(const SchemaNode& node) {
  SchemaJson values = node.Has("enum") ? node["enum"] : SchemaJson::array({node["const"]});
  if (!values.is_array() || values.empty()) return node.Wrong("enum", "a list, not empty");
  RuleNfa rule;
  bool any = false;
  for (const SchemaJson& value : values) {
    if (node.Has("const") && value != node["const"]) continue;
    PF_ASSIGN_OR_RETURN(const bool fits, Fits(node, value));
    if (!fits) continue;
    any = true;
    rule.Accept(rule.AddText(0, value.dump()));
  }
  if (!any) {
    return node.Wrong(node.Has("enum") ? "enum" : "const",
                      "a value that the schema's other keywords allow");
  }
  return rule;
}

// Whether a value fits what the schema says beside "enum" and "const".
absl::StatusOr<bool> SchemaRules::Fits(const SchemaNode& node, const SchemaJson& value) {
  if (node.Has("type")) {
    PF_ASSIGN_OR_RETURN(const Types types, TypesOf(node));
    if (!IsOfTypes(value, types)) return false;
  }
  if (!OtherKeyword(node, {"type", "enum", "const"})) return true;
  SchemaJson rest = *node.json;
  rest.erase("enum");
  rest.erase("const");
  PF_ASSIGN_OR_RETURN(RuleSet set,
                      SchemaRules(root_, budget_).Run({&rest, node.pointer, node.depth}));
  PF_ASSIGN_OR_RETURN(const Automaton automaton, Automaton::Of(std::move(set), budget_));
  return ReadsAll(automaton, value.dump());
}

absl::StatusOr<RuleNfa> SchemaRules::Typed(const SchemaNode& node) {
  PF_ASSIGN_OR_RETURN(const Types types, TypesOf(node));
  if (types == 0) return CallOf(set_.CalleeOf(kJsonValue));
  if (types == Bit(kString)) return String(node);
  if (types == Bit(kObject)) return Object(node);
  if (types == Bit(kArray)) return Array(node);
  RuleNfa rule;
  const uint32_t end = rule.AddState();
  rule.Accept(end);
  for (size_t type = 0; type < kNumTypes; ++type) {
    if ((types >> type & 1) == 0) continue;
    PF_ASSIGN_OR_RETURN(const uint32_t callee, CalleeOfType(node, type, types));
    rule.AddCall(0, callee, end);
  }
  return rule;
}

absl::StatusOr<uint32_t> SchemaRules::CalleeOfType(const SchemaNode& node, size_t type,
                                                   Types types) {
  const auto called = [&](absl::StatusOr<RuleNfa> rule) -> absl::StatusOr<uint32_t> {
    if (!rule.ok()) return rule.status();
    return set_.CalleeOf(set_.Add(*std::move(rule)));
  };
  switch (type) {
    case kString:
      return called(String(node));
    case kObject:
      return called(Object(node));
    case kArray:
      return called(Array(node));
    case kBoolean:
      return set_.CalleeOf(kJsonBoolean);
    case kNull:
      return set_.CalleeOf(kJsonNull);
    default:
      return Number(node, types & Bit(kNumber));
  }
}

absl::StatusOr<RuleSet> JsonSchemaRules(const SchemaJson& schema, const GrammarBudget& budget) {
  if (IsJsonTooDeep(schema, kMaxJsonDepth)) {
    return absl::ResourceExhaustedError(
        StrCat("the schema: expected JSON nested at most ", kMaxJsonDepth, " deep"));
  }
  PF_ASSIGN_OR_RETURN(const size_t bytes, SchemaBytes(schema));
  if (bytes > kMaxSchemaBytes) {
    return absl::ResourceExhaustedError(
        StrCat("the schema: expected at most ", kMaxSchemaBytes, " bytes, got ", bytes));
  }
  return SchemaRules(schema, budget).Run({&schema, "", 0});
}

}  // namespace pagefuse
