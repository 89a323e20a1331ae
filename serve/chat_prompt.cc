// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/chat_prompt.h"

#include <ctime>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/http_error.h"
#include "pagefuse/text/answer/begins_in_reasoning.h"

namespace pagefuse::serve {
namespace {

absl::StatusOr<std::string> TextOfPart(const Json& part, const std::string& param) {
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(part, param));
  PF_ASSIGN_OR_RETURN(const auto type, fields.Text("type"));
  if (!type) return fields.Wrong("type", "expected one, got none");
  if (*type != "text" && *type != "input_text" && *type != "output_text" && *type != "refusal") {
    return fields.Wrong(
        "type", StrCat("expected \"text\", which is all that is taken, got \"", *type, "\""));
  }
  PF_ASSIGN_OR_RETURN(auto text, fields.Text(*type == "refusal" ? "refusal" : "text"));
  if (!text) return fields.Wrong("text", "expected a text, got none");
  return *std::move(text);
}

absl::StatusOr<std::string> TextOfContent(const Json& content, const std::string& param) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    return BadParam(param, StrCat("expected a text or a list of parts, got ", Found(content)));
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    PF_ASSIGN_OR_RETURN(const std::string part, TextOfPart(content[i], StrCat(param, "[", i, "]")));
    text += part;
  }
  return text;
}

absl::StatusOr<Json> CheckCall(const Json& call, const std::string& param) {
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(call, param));
  PF_ASSIGN_OR_RETURN(const auto id, fields.Text("id"));
  PF_ASSIGN_OR_RETURN(const auto type, fields.OneOf("type", {"function"}));
  PF_ASSIGN_OR_RETURN(auto function, fields.Object("function"));
  if (!function) return fields.Wrong("function", "expected an object, got none");
  PF_ASSIGN_OR_RETURN(const auto name, function->Text("name"));
  PF_ASSIGN_OR_RETURN(const auto arguments, function->Text("arguments"));
  if (!name) return function->Wrong("name", "expected a text, got none");
  return Json{{"id", id.value_or("")},
              {"type", type.value_or("function")},
              {"function", {{"name", *name}, {"arguments", arguments.value_or("{}")}}}};
}

absl::StatusOr<Json> CheckCalls(const Json& calls, const std::string& param) {
  if (!calls.is_array()) return BadParam(param, StrCat("expected a list, got ", Found(calls)));
  Json checked = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    PF_ASSIGN_OR_RETURN(checked.emplace_back(), CheckCall(calls[i], StrCat(param, "[", i, "]")));
  }
  return checked;
}

absl::StatusOr<Json> CheckMessage(const Json& message, const std::string& param) {
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(message, param));
  PF_ASSIGN_OR_RETURN(auto role,
                      fields.OneOf("role", {"system", "developer", "user", "assistant", "tool"}));
  if (!role) return fields.Wrong("role", "expected one, got none");
  if (*role == "developer") role = "system";  // the name that templates know
  Json checked = {{"role", *role}};
  const Json* content = fields.Find("content");
  const Json* calls = fields.Find("tool_calls");
  if (calls != nullptr && *role != "assistant") {
    return fields.Wrong("tool_calls", "expected them of an assistant alone");
  }
  if (content == nullptr && (*role != "assistant" || calls == nullptr)) {
    return fields.Wrong("content", "expected a text, got none");
  }
  if (content != nullptr) {
    PF_ASSIGN_OR_RETURN(checked["content"], TextOfContent(*content, fields.ParamOf("content")));
  }
  for (const char* name : {"name", "tool_call_id", "reasoning_content", "reasoning"}) {
    PF_ASSIGN_OR_RETURN(const auto text, fields.Text(name));
    if (text) checked[name] = *text;
  }
  // Templates that show reasoning of earlier turns ask for this name.
  if (checked.contains("reasoning")) {
    checked["reasoning_content"] = checked["reasoning"];
    checked.erase("reasoning");
  }
  if (calls != nullptr && !calls->empty()) {
    PF_ASSIGN_OR_RETURN(checked["tool_calls"], CheckCalls(*calls, fields.ParamOf("tool_calls")));
  }
  return checked;
}

}  // namespace

absl::StatusOr<Json> CheckMessages(const Json& messages, const std::string& param) {
  if (!messages.is_array() || messages.empty()) {
    return BadParam(param,
                    StrCat("expected a list of one message at least, got ", Found(messages)));
  }
  Json checked = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    PF_ASSIGN_OR_RETURN(checked.emplace_back(),
                        CheckMessage(messages[i], StrCat(param, "[", i, "]")));
  }
  return checked;
}

absl::StatusOr<ChatPrompt> RenderChatPrompt(const ServedModel& model, const ChatInput& input,
                                            const std::string& param) {
  if (!model.texts || !model.texts->has_chat_template()) {
    return BadParam(param, "this model has no chat template: use /v1/completions");
  }
  Json given = input.template_fields;
  given["messages"] = input.messages;
  NormaliseMessages(model.message_shape, &given["messages"]);
  given["add_generation_prompt"] = input.adds_generation_prompt;
  if (!input.tools.empty()) given["tools"] = input.tools;
  const auto rendered = model.texts->RenderChat(given, std::time(nullptr));
  if (!rendered.ok()) return BadParam(param, StdView(rendered.status().message()));
  auto ids = model.texts->EncodeRendered(*rendered);
  if (!ids.ok()) return BadParam(param, StdView(ids.status().message()));
  if (ids->empty()) return BadParam(param, "expected one token at least, got none");
  return ChatPrompt{.ids = *std::move(ids),
                    .begins_in_reasoning = BeginsInReasoning(model.format.reasoning, *rendered)};
}

}  // namespace pagefuse::serve
