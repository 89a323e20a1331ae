// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/answer/message_shape.h"

#include <algorithm>
#include <map>
#include <string>

#include "pagefuse/base/json_depth.h"
#include "pagefuse/text/answer/source_words.h"
#include "pagefuse/text/answer/template_trial.h"

namespace pagefuse {
namespace {

using nlohmann::ordered_json;

constexpr const char* kTrialJson = R"({"trial_key": "trial value"})";

ordered_json TrialCall(const ordered_json& arguments) {
  const ordered_json function = {{"name", "trial_tool_called"}, {"arguments", arguments}};
  return {{"id", "call_1"}, {"type", "function"}, {"function", function}};
}

// A conversation that ends in a call; `content` is discarded where there is none.
std::string RenderedCall(const TemplateTrial& trial, const ordered_json& arguments,
                         const ordered_json& content) {
  ordered_json message = {{"role", "assistant"}};
  if (!content.is_discarded()) message["content"] = content;
  message["tool_calls"] = ordered_json::array({TrialCall(arguments)});
  return trial.Rendered(
      ordered_json::array({{{"role", "user"}, {"content", "A question."}}, message}));
}

constexpr MessageShape::NoContent kNoContents[] = {MessageShape::kNull, MessageShape::kEmpty,
                                                   MessageShape::kAbsent};

// Discarded where there is none.
ordered_json ContentOf(MessageShape::NoContent kind) {
  if (kind == MessageShape::kNull) return nullptr;
  if (kind == MessageShape::kEmpty) return "";
  return ordered_json(ordered_json::value_t::discarded);
}

// Python prints None for a null that a template takes for a text.
bool ShowsCall(const std::string& rendered) {
  return Mentions(rendered, "trial_tool_called") && Mentions(rendered, "trial value");
}

MessageShape::NoContent FindNoContent(const TemplateTrial& trial, const ordered_json& arguments) {
  const auto rendered = [&](MessageShape::NoContent kind) {
    return RenderedCall(trial, arguments, ContentOf(kind));
  };
  const std::string empty = rendered(MessageShape::kEmpty), null = rendered(MessageShape::kNull);
  if (ShowsCall(empty) && (!ShowsCall(null) || Mentions(null, "None"))) return MessageShape::kEmpty;
  if (ShowsCall(null)) return MessageShape::kNull;
  return ShowsCall(rendered(MessageShape::kAbsent)) ? MessageShape::kAbsent : MessageShape::kEmpty;
}

// How a call is rendered by the first content that shows it.
std::string BestCall(const TemplateTrial& trial, const ordered_json& arguments) {
  std::string rendered;
  for (const auto kind : kNoContents) {
    rendered = RenderedCall(trial, arguments, ContentOf(kind));
    if (ShowsCall(rendered)) return rendered;
  }
  rendered.clear();
  return rendered;
}

// Objects, unless they fail, show as Python prints them, or as the text does, which keeps the model's own spaces.
bool WantsObjects(const TemplateTrial& trial) {
  const std::string as_text = BestCall(trial, kTrialJson);
  if (!Mentions(as_text, kTrialJson)) return true;
  const std::string as_object = BestCall(trial, ordered_json::parse(kTrialJson));
  return !as_object.empty() && !Mentions(as_object, "'trial_key'") && as_object != as_text;
}

bool ReadsParts(const TemplateTrial& trial) {
  const auto message = [](const char* role, const char* text) -> ordered_json {
    const ordered_json part = {{"type", "text"}, {"text", text}};
    return {{"role", role}, {"content", ordered_json::array({part})}};
  };
  const std::string rendered = trial.Rendered(ordered_json::array(
      {message("user", "one part"), message("assistant", "two part"), message("user", "three")}));
  return Mentions(rendered, "one part") && Mentions(rendered, "two part") &&
         Mentions(rendered, "three") && !Mentions(rendered, "'text'") &&
         !Mentions(rendered, "\"text\"");
}

bool HasCalls(const ordered_json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty();
}

void SetNoContent(const MessageShape& shape, ordered_json& message) {
  const auto content = message.find("content");
  const bool has_calls = HasCalls(message);
  const bool none = content == message.end() || content->is_null() ||
                    (has_calls && content->is_string() && *content == "");
  if (!none) return;
  const auto no_content = has_calls ? shape.no_content : MessageShape::kEmpty;
  if (no_content == MessageShape::kAbsent) {
    message.erase("content");
  } else {
    message["content"] = ContentOf(no_content);
  }
}

void JoinParts(ordered_json& message) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return;
  std::string joined;
  for (const ordered_json& part : *content) {
    if (!part.is_object() || !part.contains("text") || !part["text"].is_string()) return;
    if (&part != &content->front()) joined += "\n";
    joined += part["text"].get_ref<const std::string&>();
  }
  *content = joined;
}

// The call's function, or nothing.
ordered_json* FunctionOf(ordered_json& call) {
  if (!call.is_object() || !call.contains("function")) return nullptr;
  ordered_json& function = call["function"];
  return function.is_object() ? &function : nullptr;
}

void ParseArguments(ordered_json& function) {
  const auto arguments = function.find("arguments");
  if (arguments == function.end() || !arguments->is_string()) return;
  const std::string text = arguments->get<std::string>();
  if (IsNestedTooDeeply(text)) return;
  ordered_json parsed = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_object()) *arguments = std::move(parsed);
}

std::string TextMember(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

MessageShape FindMessageShape(std::string_view template_source) {
  const TemplateTrial trial(template_source);
  MessageShape shape;
  shape.object_arguments = WantsObjects(trial);
  const ordered_json arguments =
      shape.object_arguments ? ordered_json::parse(kTrialJson) : ordered_json(kTrialJson);
  shape.no_content = FindNoContent(trial, arguments);
  shape.content_parts = ReadsParts(trial);
  return shape;
}

void NormaliseMessages(const MessageShape& shape, ordered_json* messages) {
  std::map<std::string, std::string> names;  // of calls, by their ids
  for (ordered_json& message : *messages) {
    if (!message.is_object()) continue;
    if (!shape.content_parts) JoinParts(message);
    SetNoContent(shape, message);
    if (HasCalls(message)) {
      for (ordered_json& call : message["tool_calls"]) {
        ordered_json* const function = FunctionOf(call);
        if (function == nullptr) continue;
        names[TextMember(call, "id")] = TextMember(*function, "name");
        if (shape.object_arguments) ParseArguments(*function);
      }
    }
    const auto name = names.find(TextMember(message, "tool_call_id"));
    if (name != names.end() && !name->second.empty() && !message.contains("name")) {
      message["name"] = name->second;
    }
  }
}

}  // namespace pagefuse
