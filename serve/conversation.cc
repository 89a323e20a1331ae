// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/conversation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/http_error.h"

namespace pagefuse::serve {
namespace {

// `"a", "b"`
std::string QuotedList(std::initializer_list<std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    StrAppend(&text, text.empty() ? "" : ", ", "\"", name, "\"");
  }
  return text;
}

absl::StatusOr<std::string> PartText(const Json& part, const std::string& param,
                                     std::initializer_list<std::string_view> types) {
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(part, param));
  PF_ASSIGN_OR_RETURN(const std::string type, NeededText(fields, "type"));
  if (std::ranges::count(types, type) == 0) {
    return fields.Wrong("type", StrCat("expected one of ", QuotedList(types),
                                       ", which is all that is taken here, got \"", type, "\""));
  }
  return NeededText(fields, type == "refusal" ? "refusal" : "text");
}

void AppendText(Json& message, const char* name, std::string_view between,
                const std::string& text) {
  if (!message.contains(name)) {
    message[name] = text;
    return;
  }
  auto& old = message[name].get_ref<std::string&>();
  if (!old.empty() && !text.empty()) old += between;
  old += text;
}

}  // namespace

void MessageList::AddSystem(const std::string& text) {
  open_ = false;
  if (messages_.size() == 1 && messages_[0]["role"] == "system") {
    return AppendText(messages_[0], "content", "\n\n", text);
  }
  messages_.push_back({{"role", "system"}, {"content", text}});
}

void MessageList::AddUser(const std::string& text) {
  open_ = false;
  messages_.push_back({{"role", "user"}, {"content", text}});
}

// The assistant's message that is being built, or a new one where it already has what comes after this.
Json& MessageList::Assistant(std::initializer_list<std::string_view> before) {
  const auto has = [&](std::string_view name) {
    return messages_.back().contains(std::string(name));
  };
  if (!open_ || std::ranges::any_of(before, has)) {
    messages_.push_back({{"role", "assistant"}});
    open_ = true;
  }
  return messages_.back();
}

void MessageList::AddReasoning(const std::string& text) {
  AppendText(Assistant({"content", "tool_calls"}), "reasoning_content", "", text);
}

void MessageList::AddAnswer(const std::string& text) {
  AppendText(Assistant({"tool_calls"}), "content", "", text);
}

void MessageList::AddWholeAnswer(const std::string& text) {
  Assistant({"content", "tool_calls"})["content"] = text;
}

void MessageList::AddCall(const std::string& id, const std::string& name,
                          const std::string& arguments) {
  calls_[id] = name;
  Assistant({})["tool_calls"].push_back(
      {{"id", id},
       {"type", "function"},
       {"function", {{"name", name}, {"arguments", arguments.empty() ? "{}" : arguments}}}});
}

bool MessageList::AddResult(const std::string& id, const std::string& text) {
  open_ = false;
  const auto call = calls_.find(id);
  if (call == calls_.end()) return false;
  messages_.push_back(
      {{"role", "tool"}, {"content", text}, {"tool_call_id", id}, {"name", call->second}});
  return true;
}

std::string_view MessageList::last_role() const {
  if (messages_.empty()) return "";
  return messages_.back()["role"].get_ref<const std::string&>();
}

Json MessageList::Take() {
  for (Json& message : messages_) {
    // Templates read the text of a message unless it has calls.
    if (!message.contains("content") && !message.contains("tool_calls")) message["content"] = "";
  }
  return std::move(messages_);
}

absl::StatusOr<std::string> NeededText(Fields& fields, std::string_view name) {
  PF_ASSIGN_OR_RETURN(auto text, fields.Text(name));
  if (!text) return fields.Wrong(name, "expected a text, got none");
  return *std::move(text);
}

absl::StatusOr<std::string> JoinedText(const Json& content, const std::string& param,
                                       std::initializer_list<std::string_view> types) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    return BadParam(param, StrCat("expected a text or a list of parts, got ", Found(content)));
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    PF_ASSIGN_OR_RETURN(const std::string part,
                        PartText(content[i], StrCat(param, "[", i, "]"), types));
    text += part;
  }
  return text;
}

absl::Status ReadDrawing(Fields& fields, const ServedModel& model, RequestFields& found) {
  found.sampling = model.sampling;
  PF_RETURN_IF_ERROR(ReadSampling(fields, found.sampling));
  PF_ASSIGN_OR_RETURN(const auto seed, fields.Integer("seed", std::numeric_limits<int64_t>::min(),
                                                      std::numeric_limits<int64_t>::max()));
  if (seed) found.sampling.seed = static_cast<uint64_t>(*seed);
  PF_ASSIGN_OR_RETURN(const auto salt, fields.Text("cache_salt"));
  found.salt = salt.value_or("");
  const std::vector<int64_t>& ends = model.config.end_tokens;
  found.stop_tokens.insert(found.stop_tokens.end(), ends.begin(), ends.end());
  PF_ASSIGN_OR_RETURN(const auto stream, fields.Flag("stream"));
  found.stream = stream.value_or(false);
  return absl::OkStatus();
}

absl::StatusOr<GenerationRequest> PromptOf(const ServedModel& model, Conversation& conversation) {
  GenerationRequest request;
  request.id = conversation.id;
  const RequestFields& fields = conversation.fields;
  request.stops = fields.stops;
  request.request.stop_tokens = fields.stop_tokens;
  request.request.sampling = fields.sampling;
  request.request.samples = fields.samples;
  request.reading.keeps_special = fields.keeps_special;
  request.request.cache_salt = fields.salt;
  PF_RETURN_IF_ERROR(ApplyAnswerRules(model, conversation.rules, conversation.input, request));
  PF_ASSIGN_OR_RETURN(ChatPrompt prompt,
                      RenderChatPrompt(model, conversation.input, conversation.messages_param));
  TakePrompt(model, std::move(prompt), request);
  return request;
}

absl::StatusOr<GenerationRequest> GenerationOf(const ServedModel& model,
                                               Conversation& conversation) {
  PF_ASSIGN_OR_RETURN(GenerationRequest request, PromptOf(model, conversation));
  PF_ASSIGN_OR_RETURN(
      request.request.max_new_tokens,
      model.NewTokensFor(static_cast<int64_t>(request.request.prompt.size()),
                         conversation.max_tokens, std::nullopt, conversation.messages_param));
  return request;
}

}  // namespace pagefuse::serve
