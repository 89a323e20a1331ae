// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/responses_answer.h"

#include <utility>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/http_error.h"
#include "pagefuse/serve/logprobs_json.h"
#include "pagefuse/serve/sse.h"

namespace pagefuse::serve {
namespace {

void Append(Json& list, const Json& more) {
  for (const Json& one : more) list.push_back(one);
}

}  // namespace

ResponsesAnswer::ResponsesAnswer(std::shared_ptr<HttpReply> reply, ResponsesHead head,
                                 Headers headers)
    : head_(std::move(head)),
      reply_(std::move(reply), head_.stream, head_.id, std::move(headers), SseComment("ping")),
      created_(std::time(nullptr)) {}

void ResponsesAnswer::Begin() {
  const std::lock_guard lock(mutex_);
  BeginLocked();
}

void ResponsesAnswer::BeginLocked() {
  if (ended_ || !reply_.streams() || std::exchange(begun_, true)) return;
  const Json response = Response("in_progress");
  Event("response.created", {{"response", response}});
  Event("response.in_progress", {{"response", response}});
}

void ResponsesAnswer::OnDelta(const AnswerDelta& delta) {
  const std::lock_guard lock(mutex_);
  BeginLocked();
  if (!delta.reasoning.empty()) AddText(Kind::kReasoning, delta.reasoning, Json::array());
  if (!delta.content.empty()) {
    Json logprobs = Json::array();
    if (head_.tokenizer) logprobs = TokenLogprobsJson(delta.tokens, *head_.tokenizer);
    AddText(Kind::kMessage, delta.content, std::move(logprobs));
  }
  for (const CallDelta& call : delta.calls) AddArguments(call);
}

void ResponsesAnswer::OnEnd(const AnswerEnd& end) {
  const std::lock_guard lock(mutex_);
  SetUsage(end);
  const absl::Status error = ErrorOf(end);
  if (!error.ok()) return Fail(error);
  BeginLocked();
  const bool whole = end.finish != AnswerFinish::kLength;
  const char* status = whole ? "completed" : "incomplete";
  Close(status);
  if (!whole) incomplete_ = {{"reason", "max_output_tokens"}};
  ended_ = true;
  if (!reply_.streams()) return reply_.Send(200, Dump(Response(status)));
  Event(StrCat("response.", status), {{"response", Response(status)}});
  reply_.End();
}

void ResponsesAnswer::Fail(const absl::Status& error) {
  ended_ = true;
  error_ = {{"code", "server_error"}, {"message", std::string(error.message())}};
  if (item_.kind != Kind::kNone) output_.push_back(ItemJson("incomplete"));
  const Json json = {{"type", "response.failed"},
                     {"sequence_number", sequence_},
                     {"response", Response("failed")}};
  reply_.Fail(ReplyOf(error), SseEvent("response.failed", Dump(json)));
}

void ResponsesAnswer::SetUsage(const AnswerEnd& end) {
  usage_ = {{"input_tokens", end.prompt_tokens},
            {"input_tokens_details", {{"cached_tokens", end.cached_tokens}}},
            {"output_tokens", end.tokens},
            {"output_tokens_details", {{"reasoning_tokens", end.reasoning_tokens}}},
            {"total_tokens", end.prompt_tokens + end.tokens}};
}

void ResponsesAnswer::AddText(Kind kind, const std::string& text, Json logprobs) {
  if (item_.kind != kind) {
    Close("completed");
    Open(kind, "");
  }
  item_.text += text;
  Append(item_.logprobs, logprobs);
  Json members = Place();
  members["content_index"] = 0;
  members["delta"] = text;
  if (kind == Kind::kReasoning) return Event("response.reasoning_text.delta", std::move(members));
  members["logprobs"] = std::move(logprobs);
  Event("response.output_text.delta", std::move(members));
}

void ResponsesAnswer::AddArguments(const CallDelta& call) {
  if (call.begins) {
    Close("completed");
    Open(Kind::kCall, call.name);
  }
  if (item_.kind != Kind::kCall || call.arguments.empty()) return;
  item_.text += call.arguments;
  Json members = Place();
  members["delta"] = call.arguments;
  Event("response.function_call_arguments.delta", std::move(members));
}

void ResponsesAnswer::Open(Kind kind, std::string name) {
  const bool calls = kind == Kind::kCall;
  item_ = {.kind = kind,
           .id = NewId(calls                      ? "fc_"
                       : kind == Kind::kReasoning ? "rs_"
                                                  : "msg_"),
           .call_id = calls ? NewId("call_") : "",
           .name = std::move(name)};
  Json item = ItemJson("in_progress");
  if (!calls) item["content"] = Json::array();
  Event("response.output_item.added",
        {{"output_index", output_.size()}, {"item", std::move(item)}});
  if (calls) return;
  Json members = Place();
  members["content_index"] = 0;
  members["part"] = Part();
  Event("response.content_part.added", std::move(members));
}

void ResponsesAnswer::CloseText() {
  Json members = Place();
  members["content_index"] = 0;
  Json part = members;
  part["part"] = Part();
  members["text"] = item_.text;
  if (item_.kind == Kind::kMessage) members["logprobs"] = item_.logprobs;
  Event(item_.kind == Kind::kMessage ? "response.output_text.done" : "response.reasoning_text.done",
        std::move(members));
  Event("response.content_part.done", std::move(part));
}

void ResponsesAnswer::Close(std::string_view status) {
  if (item_.kind == Kind::kNone) return;
  if (item_.kind == Kind::kCall) {
    Json members = Place();
    members["name"] = item_.name;
    members["arguments"] = item_.text;
    Event("response.function_call_arguments.done", std::move(members));
  } else {
    CloseText();
  }
  Json item = ItemJson(status);
  Event("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
  output_.push_back(std::move(item));
  item_ = {};
}

void ResponsesAnswer::Event(std::string_view type, Json members) {
  if (!reply_.streams()) return;
  Json json = {{"type", type}, {"sequence_number", sequence_++}};
  json.update(members);
  reply_.Write(SseEvent(type, Dump(json)));
}

Json ResponsesAnswer::Place() const {
  return {{"item_id", item_.id}, {"output_index", output_.size()}};
}

Json ResponsesAnswer::Part() const {
  if (item_.kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", item_.text}};
  return {{"type", "output_text"},
          {"text", item_.text},
          {"annotations", Json::array()},
          {"logprobs", item_.logprobs}};
}

Json ResponsesAnswer::ItemJson(std::string_view status) const {
  switch (item_.kind) {
    case Kind::kCall:
      return {{"id", item_.id},           {"type", "function_call"}, {"status", status},
              {"call_id", item_.call_id}, {"name", item_.name},      {"arguments", item_.text}};
    case Kind::kReasoning:
      return {{"id", item_.id},
              {"type", "reasoning"},
              {"status", status},
              {"summary", Json::array()},
              {"content", Json::array({Part()})}};
    default:
      return {{"id", item_.id},
              {"type", "message"},
              {"status", status},
              {"role", "assistant"},
              {"content", Json::array({Part()})}};
  }
}

Json ResponsesAnswer::Response(std::string_view status) const {
  Json json = {{"id", head_.id},
               {"object", "response"},
               {"created_at", created_},
               {"status", status},
               {"completed_at", Json()},
               {"error", error_},
               {"incomplete_details", incomplete_},
               {"model", head_.model},
               {"output", output_}};
  if (status == "completed") json["completed_at"] = std::time(nullptr);
  json.update(head_.echo);
  json["usage"] = usage_;
  return json;
}

}  // namespace pagefuse::serve
