// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/messages_input.h"

#include <limits>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/api.h"
#include "pagefuse/serve/http_error.h"
#include "pagefuse/serve/messages_blocks.h"

namespace pagefuse::serve {
namespace {

absl::Status RefuseOfMessages(Fields& fields) {
  PF_RETURN_IF_ERROR(fields.Refuse("container", "expected none: no code is run"));
  PF_RETURN_IF_ERROR(
      fields.Refuse("mcp_servers", "expected none: nothing is fetched", Json::array()));
  return fields.Refuse("context_management", "expected none: nothing is left out");
}

// What changes no answer. What is known is cached without being told to.
absl::Status ReadMessagesNotes(Fields& fields) {
  for (const char* name : {"metadata", "cache_control"}) {
    PF_RETURN_IF_ERROR(fields.Object(name).status());
  }
  return fields.OneOf("service_tier", {"auto", "standard_only"}).status();
}

absl::StatusOr<Json> ReadCustomTool(const Json& tool, const std::string& param) {
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(tool, param));
  PF_ASSIGN_OR_RETURN(const auto type, fields.Text("type"));
  if (type.value_or("custom") != "custom") {
    return fields.Wrong("type",
                        StrCat("expected \"custom\", as no tool is run here, got \"", *type, "\""));
  }
  Json function = Json::object();
  PF_ASSIGN_OR_RETURN(function["name"], NeededText(fields, "name"));
  PF_ASSIGN_OR_RETURN(const auto description, fields.Text("description"));
  if (description) function["description"] = *description;
  PF_ASSIGN_OR_RETURN(const auto schema, fields.Object("input_schema"));
  if (!schema) return fields.Wrong("input_schema", "expected an object, got none");
  function["parameters"] = *fields.Find("input_schema");
  PF_ASSIGN_OR_RETURN(const auto strict, fields.Flag("strict"));
  if (strict) function["strict"] = *strict;
  return Json{{"type", "function"}, {"function", std::move(function)}};
}

absl::Status ReadToolUse(Fields& fields, AnswerRulesInput& rules) {
  PF_ASSIGN_OR_RETURN(auto choice, fields.Object("tool_choice"));
  if (!choice) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const auto type, choice->OneOf("type", {"auto", "any", "tool", "none"}));
  if (!type) return choice->Wrong("type", "expected one, got none");
  PF_ASSIGN_OR_RETURN(const auto one, choice->Flag("disable_parallel_tool_use"));
  rules.parallel = !one.value_or(false);
  rules.tool_choice = *type == "any" ? "required" : *type;
  if (*type != "tool") return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const std::string name, NeededText(*choice, "name"));
  rules.tool_choice = {{"type", "function"}, {"function", {{"name", name}}}};
  return absl::OkStatus();
}

absl::Status ReadCustomTools(Fields& fields, AnswerRulesInput& rules) {
  if (const Json* tools = fields.Find("tools")) {
    if (!tools->is_array()) {
      return fields.Wrong("tools", StrCat("expected a list, got ", Found(*tools)));
    }
    for (size_t i = 0; i < tools->size(); ++i) {
      PF_ASSIGN_OR_RETURN(rules.tools.emplace_back(),
                          ReadCustomTool((*tools)[i], StrCat("tools[", i, "]")));
    }
  }
  return ReadToolUse(fields, rules);
}

// The budget is a wish that no template knows of.
absl::Status ReadThinking(Fields& fields, Conversation& found) {
  PF_ASSIGN_OR_RETURN(auto thinking, fields.Object("thinking"));
  if (!thinking) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const auto type,
                      thinking->OneOf("type", {"enabled", "adaptive", "disabled"}));
  if (!type) return thinking->Wrong("type", "expected one, got none");
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  PF_RETURN_IF_ERROR(thinking->Integer("budget_tokens", 1, kMost).status());
  // By both of the names that templates have for it.
  for (const char* name : {"enable_thinking", "thinking"}) {
    found.input.template_fields[name] = *type != "disabled";
  }
  return absl::OkStatus();
}

// `output_config`: {"effort", "format": {"type": "json_schema", "schema"}}
absl::Status ReadOutputConfig(Fields& fields, Conversation& found) {
  found.rules.format_param = "output_config.format";
  PF_ASSIGN_OR_RETURN(auto config, fields.Object("output_config"));
  if (!config) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const auto effort, config->Text("effort"));
  if (effort) found.input.template_fields["reasoning_effort"] = *effort;
  PF_ASSIGN_OR_RETURN(auto format, config->Object("format"));
  for (std::string& name : config->Ignored()) found.ignored.push_back(std::move(name));
  if (!format) return absl::OkStatus();
  PF_RETURN_IF_ERROR(format->OneOf("type", {"json_schema"}).status());
  PF_ASSIGN_OR_RETURN(const auto schema, format->Object("schema"));
  if (!schema) return format->Wrong("schema", "expected an object, got none");
  found.rules.response_format = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "output"}, {"schema", *format->Find("schema")}, {"strict", true}}}};
  return absl::OkStatus();
}

absl::Status ReadMessagesDrawing(Fields& fields, const ServedModel& model, RequestFields& found) {
  PF_RETURN_IF_ERROR(fields.Number("temperature", 0, 1).status());
  PF_RETURN_IF_ERROR(ReadDrawing(fields, model, found));
  return ReadStops(fields, "stop_sequences", model, found);
}

}  // namespace

absl::StatusOr<Conversation> ReadMessages(const ServedModel& model, const Json& body, bool counts) {
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(body, ""));
  PF_ASSIGN_OR_RETURN(const auto name, fields.Text("model"));
  PF_RETURN_IF_ERROR(model.CheckName(name));
  Conversation found;
  found.id = NewId("msg_");
  PF_RETURN_IF_ERROR(RefuseOfMessages(fields));
  PF_RETURN_IF_ERROR(ReadMessagesDrawing(fields, model, found.fields));
  PF_RETURN_IF_ERROR(ReadCustomTools(fields, found.rules));
  PF_RETURN_IF_ERROR(ReadThinking(fields, found));
  PF_RETURN_IF_ERROR(ReadOutputConfig(fields, found));
  PF_RETURN_IF_ERROR(ReadMessagesNotes(fields));
  PF_ASSIGN_OR_RETURN(found.max_tokens,
                      fields.Integer("max_tokens", 1, std::numeric_limits<int32_t>::max()));
  if (!found.max_tokens && !counts) {
    return fields.Wrong("max_tokens", "expected an integer, got none");
  }
  PF_ASSIGN_OR_RETURN(found.input.messages, ReadTurns(fields));
  for (std::string& ignored : fields.Ignored()) found.ignored.push_back(std::move(ignored));
  return found;
}

}  // namespace pagefuse::serve
