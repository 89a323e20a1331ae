// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/call_grammar.h"

#include <algorithm>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

using Schema = nlohmann::ordered_json;
using GrammarOr = absl::StatusOr<Grammar::Ptr>;

GrammarOr InRow(std::initializer_list<GrammarOr> parts) {
  std::vector<Grammar::Ptr> all;
  for (const GrammarOr& part : parts) {
    PF_RETURN_IF_ERROR(part.status());
    all.push_back(*part);
  }
  return Grammar::Sequence(all);
}

// Arguments that are written one parameter after the other, and not as JSON.
class ParameterTexts {
 public:
  ParameterTexts(const ParameterText& text, const Schema& schema) : text_(text), schema_(schema) {}

  GrammarOr Make() const {
    const Schema none = Schema::object();
    const Schema& properties = schema_.contains("properties") ? schema_["properties"] : none;
    std::vector<Grammar::Ptr> needed, others;
    for (const auto& [name, schema] : properties.items()) {
      auto parameter = AtPlace("/properties/" + name, Parameter(name, schema));
      PF_RETURN_IF_ERROR(parameter.status());
      (IsRequired(name) ? needed : others).push_back(*std::move(parameter));
    }
    return Joined(needed, others);
  }

 private:
  static GrammarOr AtPlace(const std::string& place, GrammarOr made) {
    if (made.ok()) return made;
    return pagefuse::AtPlace(place, made.status());
  }
  bool IsRequired(const std::string& name) const {
    return schema_.contains("required") &&
           std::ranges::count(schema_["required"], Schema(name)) > 0;
  }

  // Those that are needed, and then any of the others, in order.
  GrammarOr Joined(const std::vector<Grammar::Ptr>& needed,
                   const std::vector<Grammar::Ptr>& others) const {
    std::vector<Grammar::Ptr> parts;
    for (const Grammar::Ptr& part : needed) {
      PF_RETURN_IF_ERROR(AddSeparator(parts));
      parts.push_back(part);
    }
    if (!parts.empty() || text_.separator.empty()) {
      PF_RETURN_IF_ERROR(AddOptional(others, parts));
      return Grammar::Sequence(parts);
    }
    // The first of the others has no separator before it, whichever it is.
    std::vector<Grammar::Ptr> ways;
    PF_ASSIGN_OR_RETURN(ways.emplace_back(), Grammar::OfText(""));
    for (auto first = others.begin(); first != others.end(); ++first) {
      std::vector<Grammar::Ptr> row = {*first};
      PF_RETURN_IF_ERROR(AddOptional({first + 1, others.end()}, row));
      PF_ASSIGN_OR_RETURN(ways.emplace_back(), Grammar::Sequence(row));
    }
    return Grammar::AnyOf(ways);
  }
  absl::Status AddSeparator(std::vector<Grammar::Ptr>& parts) const {
    if (parts.empty() || text_.separator.empty()) return absl::OkStatus();
    PF_ASSIGN_OR_RETURN(parts.emplace_back(), Grammar::OfText(text_.separator));
    return absl::OkStatus();
  }
  absl::Status AddOptional(const std::vector<Grammar::Ptr>& others,
                           std::vector<Grammar::Ptr>& parts) const {
    for (const Grammar::Ptr& other : others) {
      PF_ASSIGN_OR_RETURN(const Grammar::Ptr one, InRow({Grammar::OfText(text_.separator), other}));
      PF_ASSIGN_OR_RETURN(parts.emplace_back(), Grammar::Optional(one));
    }
    return absl::OkStatus();
  }

  GrammarOr Parameter(const std::string& name, const Schema& schema) const {
    const GrammarOr before = Grammar::OfText(StrCat(text_.before_key, name));
    if (IsText(schema)) return InRow({before, TextValue(schema)});
    return InRow({before, Grammar::OfText(text_.before_value), Value(schema),
                  Grammar::OfText(text_.after_value)});
  }

  static bool IsText(const Schema& schema) {
    if (!schema.is_object()) return false;
    if (schema.contains("type")) return schema["type"] == "string";
    const auto is_text = [](const Schema& value) { return value.is_string(); };
    if (schema.contains("const")) return is_text(schema["const"]);
    return schema.contains("enum") && schema["enum"].is_array() && !schema["enum"].empty() &&
           std::ranges::all_of(schema["enum"], is_text);
  }
  // Text stands as it is, so that one of the choices does too.
  GrammarOr TextValue(const Schema& schema) const {
    for (const char* keyword : {"pattern", "format", "minLength", "maxLength"}) {
      if (!schema.contains(keyword)) continue;
      return absl::InvalidArgumentError(
          StrCat("/", keyword, ": this model writes texts in calls as they are: expected none"));
    }
    std::vector<Grammar::Ptr> ways;
    const Schema values = schema.contains("const")  ? Schema::array({schema["const"]})
                          : schema.contains("enum") ? schema["enum"]
                                                    : Schema::array();
    for (const Schema& value : values) {
      PF_ASSIGN_OR_RETURN(ways.emplace_back(),
                          Grammar::OfText(StrCat(text_.before_string, value.get<std::string>(),
                                                 text_.after_string)));
    }
    if (!ways.empty()) return Grammar::AnyOf(ways);
    return InRow({Grammar::OfText(text_.before_string), Grammar::Until(text_.after_string)});
  }
  // A schema within another one may refer to what that defines.
  GrammarOr Value(const Schema& schema) const {
    const bool is_flat = schema.is_object() && schema.contains("type") &&
                         schema["type"].is_string() && schema["type"] != "object" &&
                         schema["type"] != "array";
    if (!text_.value_is_json && !is_flat) {
      return absl::InvalidArgumentError(
          "this model's calls are constrained for texts, numbers and booleans alone: expected one "
          "\"type\" of these");
    }
    Schema whole = schema;
    for (const char* keyword : {"$defs", "definitions"}) {
      if (whole.is_object() && schema_.contains(keyword)) whole[keyword] = schema_[keyword];
    }
    return Grammar::OfJsonSchema(whole);
  }

  const ParameterText& text_;
  const Schema& schema_;
};

GrammarOr ArgumentsGrammar(const CallText& text, const ToolRules& tool) {
  const Schema none = {
      {"type", "object"}, {"properties", Schema::object()}, {"additionalProperties", false}};
  const Schema& schema = tool.parameters.is_null() ? none : tool.parameters;
  if (text.syntax == ArgumentSyntax::kTextParameters) {
    if (!schema.is_object()) return absl::InvalidArgumentError("expected a schema of an object");
    return ParameterTexts(text.parameter, schema).Make();
  }
  return tool.any_arguments ? Grammar::OfAnyJsonObject() : Grammar::OfJsonSchema(schema);
}

GrammarOr CallOf(const CallText& text, const ToolRules& tool) {
  GrammarOr arguments = ArgumentsGrammar(text, tool);
  if (!arguments.ok()) {
    return AtPlace(StrCat("tool \"", tool.name, "\""), arguments.status());
  }
  return InRow({Grammar::OfText(StrCat(text.before_name, tool.name, text.before_arguments)),
                arguments, Grammar::OfText(text.after_arguments)});
}

// One call or more behind `skipped` bytes of what opens them.
GrammarOr CallsFrom(const CallText& text, std::span<const ToolRules> tools, bool several,
                    size_t skipped) {
  std::vector<Grammar::Ptr> ways;
  for (const ToolRules& tool : tools) {
    PF_ASSIGN_OR_RETURN(ways.emplace_back(), CallOf(text, tool));
  }
  PF_ASSIGN_OR_RETURN(const Grammar::Ptr call, Grammar::AnyOf(ways));
  PF_ASSIGN_OR_RETURN(Grammar::Ptr more, InRow({Grammar::OfText(text.separator), call}));
  PF_ASSIGN_OR_RETURN(more, Grammar::Repeat(more, 0, several ? -1 : 0));
  if (skipped <= text.opening.size()) {
    return InRow(
        {Grammar::OfText(text.opening.substr(skipped)), call, more, Grammar::OfText(text.closing)});
  }
  // The mark reaches into the call.
  skipped -= text.opening.size();
  CallText first = text;
  first.before_name = text.before_name.substr(std::min(skipped, text.before_name.size()));
  std::vector<Grammar::Ptr> firsts;
  for (const ToolRules& tool : tools) {
    PF_ASSIGN_OR_RETURN(firsts.emplace_back(), CallOf(first, tool));
  }
  return InRow({Grammar::AnyOf(firsts), more, Grammar::OfText(text.closing)});
}

}  // namespace

absl::StatusOr<Grammar::Ptr> CallsGrammar(const ToolFormat& format,
                                          std::span<const ToolRules> tools, bool several) {
  return CallsFrom(format.text, tools, several, 0);
}

absl::StatusOr<Grammar::Ptr> TextOrCallsGrammar(const ToolFormat& format,
                                                std::span<const ToolRules> tools, bool several) {
  const std::string_view mark =
      format.section_begin.empty() ? format.call_begin : format.section_begin;
  const std::string written = StrCat(format.text.opening, format.text.before_name);
  if (mark.empty() || !written.starts_with(mark)) return Grammar::Ptr();
  PF_ASSIGN_OR_RETURN(const Grammar::Ptr text, Grammar::TextWithout(mark));
  PF_ASSIGN_OR_RETURN(
      const Grammar::Ptr calls,
      InRow({Grammar::Until(mark), CallsFrom(format.text, tools, several, mark.size())}));
  return Grammar::AnyOf({text, calls});
}

}  // namespace pagefuse::serve
