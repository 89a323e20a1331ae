// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/messages_answer.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/http_error.h"
#include "pagefuse/serve/json_input.h"
#include "pagefuse/serve/sse.h"

namespace pagefuse::serve {
namespace {

// Clients send blocks of thinking back if they are signed. Nobody checks it.
constexpr const char* kSignature = "unsigned";

std::string PingEvent() { return SseEvent("ping", R"({"type": "ping"})"); }

// Tokens of the prompt that were known are not among the input's.
Json UsageOfMessage(int64_t prompt, int64_t cached, int64_t output) {
  return {{"input_tokens", prompt - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", output}};
}

const char* StopReasonOf(const AnswerEnd& end, const std::string& stop) {
  if (end.finish == AnswerFinish::kLength) return "max_tokens";
  if (end.finish == AnswerFinish::kCalls) return "tool_use";
  return stop.empty() ? "end_turn" : "stop_sequence";
}

// An object; what is none, as where an answer was cut off, under the name that Anthropic's documents give it.
Json InputOf(const std::string& text) {
  if (text.empty()) return Json::object();
  const auto input = ParseJson(text);
  if (input.ok() && input->is_object()) return *input;
  return {{"INVALID_JSON", text}};
}

}  // namespace

MessagesAnswer::MessagesAnswer(std::shared_ptr<HttpReply> reply, MessagesHead head, Headers headers)
    : head_(std::move(head)),
      reply_(std::move(reply), head_.stream, head_.id, std::move(headers), PingEvent()) {}

void MessagesAnswer::Begin() {
  const std::lock_guard lock(mutex_);
  BeginLocked();
}

// How many tokens of the prompt are known is told at the end, when it is.
void MessagesAnswer::BeginLocked() {
  if (ended_ || !reply_.streams() || std::exchange(begun_, true)) return;
  Event("message_start",
        {{"message", Message(Json(), Json(), UsageOfMessage(head_.prompt_tokens, 0, 0))}});
  reply_.Write(PingEvent());
}

void MessagesAnswer::OnDelta(const AnswerDelta& delta) {
  const std::lock_guard lock(mutex_);
  BeginLocked();
  if (!delta.reasoning.empty()) Add(Kind::kThinking, delta.reasoning);
  if (!delta.content.empty()) Add(Kind::kText, delta.content);
  for (const CallDelta& call : delta.calls) AddUse(call);
}

void MessagesAnswer::OnEnd(const AnswerEnd& end) {
  const std::lock_guard lock(mutex_);
  const absl::Status error = ErrorOf(end);
  if (!error.ok()) {
    ended_ = true;
    return reply_.Fail(AnthropicReplyOf(error), SseEvent("error", AnthropicError(error)));
  }
  BeginLocked();
  Close();
  ended_ = true;
  const std::string stop = StopOf(end);
  const char* reason = StopReasonOf(end, stop);
  const Json sequence = std::string_view(reason) == "stop_sequence" ? Json(stop) : Json();
  Json usage = UsageOfMessage(end.prompt_tokens, end.cached_tokens, end.tokens);
  if (!reply_.streams()) {
    return reply_.Send(200, Dump(Message(reason, sequence, std::move(usage))));
  }
  Event("message_delta", {{"delta", {{"stop_reason", reason}, {"stop_sequence", sequence}}},
                          {"usage", std::move(usage)}});
  Event("message_stop", Json::object());
  reply_.End();
}

std::string MessagesAnswer::StopOf(const AnswerEnd& end) const {
  if (!end.stop.empty()) return end.stop;
  for (const auto& [token, text] : head_.stop_tokens) {
    if (token == end.stop_token) return text;
  }
  return "";
}

void MessagesAnswer::Add(Kind kind, const std::string& text) {
  if (block_.kind != kind) {
    Close();
    Open(kind, "");
  }
  block_.text += text;
  if (kind == Kind::kThinking) return Delta({{"type", "thinking_delta"}, {"thinking", text}});
  Delta({{"type", "text_delta"}, {"text", text}});
}

void MessagesAnswer::AddUse(const CallDelta& call) {
  if (call.begins) {
    Close();
    Open(Kind::kUse, call.name);
  }
  if (block_.kind != Kind::kUse || call.arguments.empty()) return;
  block_.text += call.arguments;
  Delta({{"type", "input_json_delta"}, {"partial_json", call.arguments}});
}

void MessagesAnswer::Open(Kind kind, std::string name) {
  block_ = {.kind = kind, .id = kind == Kind::kUse ? NewId("toolu_") : "", .name = std::move(name)};
  Event("content_block_start",
        {{"index", content_.size()}, {"content_block", BlockJson(/*begins=*/true)}});
}

void MessagesAnswer::Close() {
  if (block_.kind == Kind::kNone) return;
  if (block_.kind == Kind::kThinking) {
    Delta({{"type", "signature_delta"}, {"signature", kSignature}});
  }
  Event("content_block_stop", {{"index", content_.size()}});
  content_.push_back(BlockJson(/*begins=*/false));
  block_ = {};
}

void MessagesAnswer::Delta(Json delta) {
  Event("content_block_delta", {{"index", content_.size()}, {"delta", std::move(delta)}});
}

void MessagesAnswer::Event(std::string_view type, const Json& members) {
  if (!reply_.streams()) return;
  Json json = {{"type", type}};
  json.update(members);
  reply_.Write(SseEvent(type, Dump(json)));
}

// A block that begins has no text yet, and no signature.
Json MessagesAnswer::BlockJson(bool begins) const {
  switch (block_.kind) {
    case Kind::kThinking:
      return {
          {"type", "thinking"}, {"thinking", block_.text}, {"signature", begins ? "" : kSignature}};
    case Kind::kUse:
      return {{"type", "tool_use"},
              {"id", block_.id},
              {"name", block_.name},
              {"input", InputOf(block_.text)}};
    default:
      return {{"type", "text"}, {"text", block_.text}};
  }
}

Json MessagesAnswer::Message(Json reason, Json stop, Json usage) const {
  return {{"id", head_.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", head_.model},
          {"content", content_},
          {"stop_reason", std::move(reason)},
          {"stop_sequence", std::move(stop)},
          {"usage", std::move(usage)}};
}

}  // namespace pagefuse::serve
