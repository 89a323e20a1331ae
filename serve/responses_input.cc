// SPDX-License-Identifier: Apache-2.0
// Reads the members of a request but for its input, which responses_items.cc reads.
#include "pagefuse/serve/responses_input.h"

#include <limits>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/api.h"
#include "pagefuse/serve/http_error.h"
#include "pagefuse/serve/responses_items.h"

namespace pagefuse::serve {
namespace {

absl::Status RefuseOfResponses(Fields& fields) {
  PF_RETURN_IF_ERROR(fields.Refuse("store", "expected false: nothing is stored", false));
  PF_RETURN_IF_ERROR(fields.Refuse("background", "expected false: nothing is stored", false));
  PF_RETURN_IF_ERROR(
      fields.Refuse("previous_response_id", "expected none: nothing is stored, send all items"));
  PF_RETURN_IF_ERROR(
      fields.Refuse("conversation", "expected none: nothing is stored, send all items"));
  PF_RETURN_IF_ERROR(fields.Refuse("prompt", "expected none: there are no stored prompts"));
  PF_RETURN_IF_ERROR(fields.Refuse("context_management", "expected none: nothing is left out"));
  PF_RETURN_IF_ERROR(fields.Refuse("moderation", "expected none: nothing is moderated"));
  return fields.Refuse("truncation", "expected \"disabled\": nothing is left out", "disabled");
}

// `include`: what an answer has besides.
absl::StatusOr<bool> ReadInclude(Fields& fields) {
  PF_ASSIGN_OR_RETURN(const auto names, fields.Texts("include", 16));
  bool logprobs = false;
  for (size_t i = 0; names && i < names->size(); ++i) {
    const std::string& name = (*names)[i];
    logprobs |= name == "message.output_text.logprobs";
    // Reasoning comes as plain text, which serves the same end.
    if (name != "message.output_text.logprobs" && name != "reasoning.encrypted_content") {
      return fields.Wrong(StrCat("include[", i, "]"),
                          StrCat("expected \"message.output_text.logprobs\" or "
                                 "\"reasoning.encrypted_content\", got \"",
                                 name, "\""));
    }
  }
  return logprobs;
}

absl::Status ReadTextLogprobs(Fields& fields, SamplingOptions& sampling) {
  PF_ASSIGN_OR_RETURN(const bool included, ReadInclude(fields));
  PF_ASSIGN_OR_RETURN(const auto top, fields.Integer("top_logprobs", 0, 20));
  if (top.value_or(0) > 0 && !included) {
    return fields.Wrong("top_logprobs",
                        "expected none without \"include\": [\"message.output_text.logprobs\"]");
  }
  if (included) sampling.logprobs = top.value_or(0);
  return absl::OkStatus();
}

// One of the tools in OpenAI's older form, which templates know.
absl::StatusOr<Json> ReadFlatTool(const Json& tool, const std::string& param) {
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(tool, param));
  PF_ASSIGN_OR_RETURN(const std::string type, NeededText(fields, "type"));
  if (type != "function") {
    return fields.Wrong(
        "type", StrCat("expected \"function\", as no tool is run here, got \"", type, "\""));
  }
  Json function = Json::object();
  PF_ASSIGN_OR_RETURN(function["name"], NeededText(fields, "name"));
  PF_ASSIGN_OR_RETURN(const auto description, fields.Text("description"));
  if (description) function["description"] = *description;
  PF_ASSIGN_OR_RETURN(const auto parameters, fields.Object("parameters"));
  if (parameters) function["parameters"] = *fields.Find("parameters");
  PF_ASSIGN_OR_RETURN(const auto strict, fields.Flag("strict"));
  if (strict) function["strict"] = *strict;
  return Json{{"type", "function"}, {"function", std::move(function)}};
}

absl::StatusOr<Json> ReadFlatChoice(Fields& fields) {
  const Json* choice = fields.Find("tool_choice");
  if (choice == nullptr) return Json();
  if (choice->is_string()) {
    PF_ASSIGN_OR_RETURN(const auto mode, fields.OneOf("tool_choice", {"none", "auto", "required"}));
    return Json(*mode);
  }
  PF_ASSIGN_OR_RETURN(auto named, fields.Object("tool_choice"));
  PF_ASSIGN_OR_RETURN(const auto type, named->OneOf("type", {"function"}));
  if (!type) return named->Wrong("type", "expected \"function\", got none");
  PF_ASSIGN_OR_RETURN(const std::string name, NeededText(*named, "name"));
  return Json{{"type", "function"}, {"function", {{"name", name}}}};
}

absl::Status ReadFlatTools(Fields& fields, AnswerRulesInput& rules) {
  if (const Json* tools = fields.Find("tools")) {
    if (!tools->is_array()) {
      return fields.Wrong("tools", StrCat("expected a list, got ", Found(*tools)));
    }
    for (size_t i = 0; i < tools->size(); ++i) {
      PF_ASSIGN_OR_RETURN(rules.tools.emplace_back(),
                          ReadFlatTool((*tools)[i], StrCat("tools[", i, "]")));
    }
  }
  PF_ASSIGN_OR_RETURN(rules.tool_choice, ReadFlatChoice(fields));
  PF_ASSIGN_OR_RETURN(const auto parallel, fields.Flag("parallel_tool_calls"));
  rules.parallel = parallel.value_or(true);
  fields.Accept({"max_tool_calls"});  // of tools that the server runs
  return absl::OkStatus();
}

// `text.format`: {"type": "json_schema", "name", "schema", "strict"}, which chat completions have nested.
absl::Status ReadTextFormat(Fields& fields, Conversation& found) {
  found.rules.format_param = "text.format";
  PF_ASSIGN_OR_RETURN(auto text, fields.Object("text"));
  if (!text) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(auto format, text->Object("format"));
  for (std::string& name : text->Ignored()) found.ignored.push_back(std::move(name));
  if (!format) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const auto type,
                      format->OneOf("type", {"text", "json_object", "json_schema"}));
  if (!type) return format->Wrong("type", "expected one, got none");
  found.rules.response_format = {{"type", *type}};
  if (*type != "json_schema") return absl::OkStatus();
  Json schema = Json::object();
  PF_ASSIGN_OR_RETURN(schema["name"], NeededText(*format, "name"));
  PF_ASSIGN_OR_RETURN(const auto of, format->Object("schema"));
  if (!of) return format->Wrong("schema", "expected an object, got none");
  schema["schema"] = *format->Find("schema");
  PF_ASSIGN_OR_RETURN(const auto strict, format->Flag("strict"));
  if (strict) schema["strict"] = *strict;
  found.rules.response_format["json_schema"] = std::move(schema);
  return absl::OkStatus();
}

absl::Status ReadReasoning(Fields& fields, Conversation& found) {
  PF_ASSIGN_OR_RETURN(auto reasoning, fields.Object("reasoning"));
  if (!reasoning) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const auto effort, reasoning->Text("effort"));
  if (effort == "none") {
    found.input.template_fields["enable_thinking"] = false;
  } else if (effort) {
    found.input.template_fields["reasoning_effort"] = *effort;
  }
  // Reasoning is told as it is, so that none needs a summary.
  PF_RETURN_IF_ERROR(reasoning->OneOf("summary", {"auto", "concise", "detailed"}).status());
  reasoning->Accept({"generate_summary"});
  for (std::string& name : reasoning->Ignored()) found.ignored.push_back(std::move(name));
  return absl::OkStatus();
}

Json ValueOr(Fields& fields, std::string_view name, Json usual) {
  const Json* value = fields.Find(name);
  return value != nullptr ? *value : std::move(usual);
}

Json EchoOf(Fields& fields, const Conversation& found) {
  const SamplingOptions& sampling = found.fields.sampling;
  Json text = ValueOr(fields, "text", Json::object());
  if (!text.contains("format")) text["format"] = {{"type", "text"}};
  Json reasoning = ValueOr(fields, "reasoning", Json::object());
  for (const char* name : {"effort", "summary"}) {
    if (!reasoning.contains(name)) reasoning[name] = Json();
  }
  return {{"background", false},
          {"instructions", ValueOr(fields, "instructions", {})},
          {"max_output_tokens", ValueOr(fields, "max_output_tokens", {})},
          {"max_tool_calls", ValueOr(fields, "max_tool_calls", {})},
          {"metadata", ValueOr(fields, "metadata", Json::object())},
          {"parallel_tool_calls", found.rules.parallel},
          {"previous_response_id", Json()},
          {"prompt_cache_key", ValueOr(fields, "prompt_cache_key", {})},
          {"reasoning", std::move(reasoning)},
          {"safety_identifier", ValueOr(fields, "safety_identifier", {})},
          {"service_tier", "default"},
          {"store", false},
          {"temperature", sampling.temperature},
          {"text", std::move(text)},
          {"tool_choice", ValueOr(fields, "tool_choice", "auto")},
          {"tools", ValueOr(fields, "tools", Json::array())},
          {"top_logprobs", sampling.logprobs.value_or(0)},
          {"top_p", sampling.top_p},
          {"truncation", "disabled"},
          {"user", ValueOr(fields, "user", {})}};
}

// What changes no answer.
absl::Status ReadNotes(Fields& fields) {
  PF_RETURN_IF_ERROR(fields.Object("metadata").status());
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key", "service_tier",
                           "prompt_cache_retention"}) {
    PF_RETURN_IF_ERROR(fields.Text(name).status());
  }
  PF_ASSIGN_OR_RETURN(auto options, fields.Object("stream_options"));
  if (options) options->Accept({"include_obfuscation"});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResponsesRequest> ReadResponses(const ServedModel& model, const Json& body) {
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(body, ""));
  PF_ASSIGN_OR_RETURN(const auto name, fields.Text("model"));
  PF_RETURN_IF_ERROR(model.CheckName(name));
  ResponsesRequest request;
  Conversation& found = request.conversation;
  found.id = NewId("resp_");
  found.messages_param = "input";
  PF_RETURN_IF_ERROR(RefuseOfResponses(fields));
  PF_RETURN_IF_ERROR(ReadDrawing(fields, model, found.fields));
  PF_RETURN_IF_ERROR(ReadTextLogprobs(fields, found.fields.sampling));
  PF_RETURN_IF_ERROR(ReadFlatTools(fields, found.rules));
  PF_RETURN_IF_ERROR(ReadTextFormat(fields, found));
  PF_RETURN_IF_ERROR(ReadReasoning(fields, found));
  PF_RETURN_IF_ERROR(ReadNotes(fields));
  PF_ASSIGN_OR_RETURN(found.max_tokens,
                      fields.Integer("max_output_tokens", 1, std::numeric_limits<int32_t>::max()));
  PF_ASSIGN_OR_RETURN(found.input.messages, ReadItems(fields));
  request.echo = EchoOf(fields, found);
  for (std::string& ignored : fields.Ignored()) found.ignored.push_back(std::move(ignored));
  return request;
}

}  // namespace pagefuse::serve
