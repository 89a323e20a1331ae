// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/answer_rules.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/api.h"
#include "pagefuse/serve/call_grammar.h"
#include "pagefuse/serve/http_error.h"

namespace pagefuse::serve {
namespace {

using GrammarOr = absl::StatusOr<Grammar::Ptr>;

struct Tools {
  std::vector<ToolRules> all;
  std::vector<bool> strict;
};

struct Choice {
  enum Kind { kNone, kAuto, kRequired } kind = kAuto;
  std::optional<std::string> name;  // of kRequired: this one alone
};

bool IsToolName(std::string_view name) {
  constexpr size_t kMost = 64;
  const auto plain = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= kMost && std::ranges::all_of(name, plain);
}

absl::Status ReadTool(const Json& tool, const std::string& param, Tools& tools) {
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(tool, param));
  PF_ASSIGN_OR_RETURN(const auto type, fields.Text("type"));
  if (type.value_or("function") != "function") {
    return fields.Wrong(
        "type",
        StrCat("expected \"function\": tools are called by the client, got \"", *type, "\""));
  }
  PF_ASSIGN_OR_RETURN(auto function, fields.Object("function"));
  if (!function) return fields.Wrong("function", "expected an object, got none");
  PF_ASSIGN_OR_RETURN(const auto name, function->Text("name"));
  if (!name || !IsToolName(*name)) {
    return function->Wrong("name", "expected 1 to 64 of letters, digits, \"_\", \"-\" and \".\"");
  }
  const auto is_same = [&](const ToolRules& other) { return other.name == *name; };
  if (std::ranges::any_of(tools.all, is_same)) {
    return function->Wrong("name",
                           StrCat("expected another name than \"", *name, "\", which is there"));
  }
  PF_RETURN_IF_ERROR(function->Text("description").status());
  PF_RETURN_IF_ERROR(function->Object("parameters").status());
  PF_ASSIGN_OR_RETURN(const auto strict, function->Flag("strict"));
  const Json* parameters = function->Find("parameters");
  tools.all.push_back({*name, parameters ? *parameters : Json()});
  tools.strict.push_back(strict.value_or(false));
  return absl::OkStatus();
}

absl::StatusOr<Tools> ReadTools(const AnswerRulesInput& rules) {
  Tools tools;
  constexpr size_t kMost = 128;
  if (!rules.tools.is_array() || rules.tools.size() > kMost) {
    return BadParam(rules.tools_param, StrCat("expected a list of ", kMost, " tools at most"));
  }
  for (size_t i = 0; i < rules.tools.size(); ++i) {
    PF_RETURN_IF_ERROR(ReadTool(rules.tools[i], StrCat(rules.tools_param, "[", i, "]"), tools));
  }
  return tools;
}

absl::StatusOr<Choice> ReadChoice(const AnswerRulesInput& rules, const Tools& tools) {
  const Json& value = rules.tool_choice;
  if (value.is_null() || value == "auto")
    return Choice{tools.all.empty() ? Choice::kNone : Choice::kAuto, {}};
  if (value == "none") return Choice{Choice::kNone, {}};
  const auto wrong = [&](std::string_view what) { return BadParam(rules.choice_param, what); };
  if (tools.all.empty()) return wrong("expected none without tools");
  if (value == "required") return Choice{Choice::kRequired, {}};
  if (!value.is_object()) {
    return wrong(
        StrCat("expected \"none\", \"auto\", \"required\" or a function, got ", Found(value)));
  }
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(value, rules.choice_param));
  PF_RETURN_IF_ERROR(fields.OneOf("type", {"function"}).status());
  PF_ASSIGN_OR_RETURN(auto function, fields.Object("function"));
  if (!function) return fields.Wrong("function", "expected an object, got none");
  PF_ASSIGN_OR_RETURN(const auto name, function->Text("name"));
  const auto is_named = [&](const ToolRules& tool) { return name && tool.name == *name; };
  if (!std::ranges::any_of(tools.all, is_named)) {
    return function->Wrong("name", "expected the name of one of the tools");
  }
  return Choice{Choice::kRequired, *name};
}

// What is wrong in a schema, of the parameter, unless it is known already of which.
absl::Status OfParam(const std::string& param, const absl::Status& error) {
  if (error.ok() || !ParamOf(error).empty()) return error;
  return BadParam(param, StdView(error.message()));
}

GrammarOr FormatGrammar(const ServedModel& model, const AnswerRulesInput& rules) {
  if (rules.response_format.is_null()) return Grammar::Ptr();
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(rules.response_format, rules.format_param));
  PF_ASSIGN_OR_RETURN(const auto type,
                      fields.OneOf("type", {"text", "json_object", "json_schema"}));
  if (!type) return fields.Wrong("type", "expected one, got none");
  if (*type == "text") return Grammar::Ptr();
  if (*type == "json_object") return Grammar::OfAnyJsonObject();
  PF_ASSIGN_OR_RETURN(auto format, fields.Object("json_schema"));
  if (!format) return fields.Wrong("json_schema", "expected an object, got none");
  const Json* schema = format->Find("schema");
  if (schema == nullptr) return format->Wrong("schema", "expected a schema, got none");
  GrammarOr made = model.grammars->Find("schema " + Dump(*schema),
                                        [&] { return Grammar::OfJsonSchema(*schema); });
  PF_RETURN_IF_ERROR(OfParam(format->ParamOf("schema"), made.status()));
  return made;
}

GrammarOr JsonGrammar(Fields& fields) {
  const Json* schema = fields.Find("json");
  if (!schema->is_string()) return Grammar::OfJsonSchema(*schema);
  const Json parsed = Json::parse(schema->get_ref<const std::string&>(), nullptr, false);
  if (parsed.is_discarded()) return fields.Wrong("json", "expected a schema, got no JSON");
  return Grammar::OfJsonSchema(parsed);
}

GrammarOr StructuredGrammar(const ServedModel& model, const AnswerRulesInput& rules) {
  if (rules.structured_outputs.is_null()) return Grammar::Ptr();
  const std::string param = "structured_outputs";
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(rules.structured_outputs, param));
  for (const char* name : {"grammar", "structural_tag"}) {
    PF_RETURN_IF_ERROR(fields.Refuse(name, "expected json, json_object, regex or choice"));
  }
  PF_ASSIGN_OR_RETURN(const auto regex, fields.Text("regex"));
  PF_ASSIGN_OR_RETURN(const auto choice, fields.Texts("choice", 1024));
  PF_ASSIGN_OR_RETURN(const auto object, fields.Flag("json_object"));
  const int given = (regex ? 1 : 0) + (choice ? 1 : 0) + (object.value_or(false) ? 1 : 0) +
                    (fields.Has("json") ? 1 : 0);
  if (given != 1) return BadParam(param, "expected one of json, json_object, regex and choice");
  if (object.value_or(false)) return Grammar::OfAnyJsonObject();
  GrammarOr made =
      model.grammars->Find("structured " + Dump(rules.structured_outputs), [&]() -> GrammarOr {
        if (regex) return Grammar::OfRegex(*regex);
        return choice ? Grammar::OfChoice(*choice) : JsonGrammar(fields);
      });
  PF_RETURN_IF_ERROR(OfParam(param, made.status()));
  return made;
}

// A tool that promised nothing takes any object where its schema is beyond what can be said.
void AllowAny(const ToolFormat& format, const Tools& tools, std::vector<ToolRules>& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!tools.strict[i]) wanted[i].any_arguments = !BindsArguments(format, wanted[i]);
  }
}

GrammarOr CallGrammar(const ServedModel& model, const AnswerRulesInput& rules, const Tools& tools,
                      const Choice& choice, const Grammar::Ptr& text) {
  const ToolFormat& format = *model.format.tools;
  std::vector<ToolRules> wanted = tools.all;
  if (choice.name)
    std::erase_if(wanted, [&](const ToolRules& t) { return t.name != *choice.name; });
  const bool several = rules.parallel && !choice.name;
  const bool required = choice.kind == Choice::kRequired;
  const std::string key =
      StrCat("tools ", required, several, text != nullptr, Dump(rules.tools),
             choice.name.value_or(""), Dump(rules.response_format), Dump(rules.structured_outputs));
  GrammarOr made = model.grammars->Find(key, [&]() -> GrammarOr {
    if (required) return CallsGrammar(format, wanted, several);
    AllowAny(format, tools, wanted);
    if (!text) return TextOrCallsGrammar(format, wanted, several);
    PF_ASSIGN_OR_RETURN(const Grammar::Ptr calls, CallsGrammar(format, wanted, several));
    return Grammar::AnyOf({text, calls});
  });
  PF_RETURN_IF_ERROR(OfParam(rules.tools_param, made.status()));
  return made;
}

}  // namespace

void TakePrompt(const ServedModel& model, ChatPrompt prompt, GenerationRequest& request) {
  request.reading.parses = true;
  request.reading.format = model.format;
  request.reading.marks = model.marks;
  request.reading.begins_in_reasoning = prompt.begins_in_reasoning;
  request.request.prompt = std::move(prompt.ids);
}

absl::Status ApplyAnswerRules(const ServedModel& model, const AnswerRulesInput& rules,
                              ChatInput& input, GenerationRequest& request) {
  PF_ASSIGN_OR_RETURN(const Tools tools, ReadTools(rules));
  PF_ASSIGN_OR_RETURN(const Choice choice, ReadChoice(rules, tools));
  const bool takes_tools = model.format.template_takes_tools && model.format.tools != nullptr;
  if (!tools.all.empty() && !takes_tools) {
    return BadParam(rules.tools_param, "the chat template of this model takes none");
  }
  PF_ASSIGN_OR_RETURN(const Grammar::Ptr format, FormatGrammar(model, rules));
  PF_ASSIGN_OR_RETURN(const Grammar::Ptr structured, StructuredGrammar(model, rules));
  if (format && structured) {
    return BadParam("structured_outputs", StrCat("expected none beside ", rules.format_param));
  }
  request.grammar = format ? format : structured;
  if (choice.kind == Choice::kNone) return absl::OkStatus();
  input.tools = rules.tools;
  request.reading.parses_calls = true;
  for (const ToolRules& tool : tools.all) request.reading.tools.push_back(tool.name);
  PF_ASSIGN_OR_RETURN(request.grammar, CallGrammar(model, rules, tools, choice, request.grammar));
  return absl::OkStatus();
}

}  // namespace pagefuse::serve
