// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/chat.h"

#include <algorithm>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/conversation.h"
#include "pagefuse/serve/http_error.h"
#include "pagefuse/serve/logprobs_json.h"
#include "pagefuse/serve/request_fields.h"
#include "pagefuse/serve/sse.h"

namespace pagefuse::serve {
namespace {

absl::Status RefuseChat(Fields& fields) {
  PF_RETURN_IF_ERROR(fields.Refuse("store", "expected false: nothing is stored", false));
  PF_RETURN_IF_ERROR(fields.Refuse("audio", "expected none: there is no audio"));
  PF_RETURN_IF_ERROR(fields.Refuse("modalities", "expected [\"text\"]", Json::array({"text"})));
  PF_RETURN_IF_ERROR(fields.Refuse("prediction", "expected none: drafts are found by themselves"));
  PF_RETURN_IF_ERROR(fields.Refuse("web_search_options", "expected none: nothing is fetched"));
  PF_RETURN_IF_ERROR(fields.Refuse("functions", "expected none: they are called tools now"));
  return fields.Refuse("function_call", "expected none: it is called tool_choice now");
}

absl::Status ReadLogprobs(Fields& fields, SamplingOptions& sampling) {
  PF_ASSIGN_OR_RETURN(const auto wanted, fields.Flag("logprobs"));
  PF_ASSIGN_OR_RETURN(const auto top, fields.Integer("top_logprobs", 0, 20));
  if (top && !wanted.value_or(false)) {
    return fields.Wrong("top_logprobs", "expected none without \"logprobs\": true");
  }
  if (wanted.value_or(false)) sampling.logprobs = top.value_or(0);
  return absl::OkStatus();
}

absl::Status ReadTemplateFields(Fields& fields, ChatInput& input) {
  PF_ASSIGN_OR_RETURN(const auto more, fields.Object("chat_template_kwargs"));
  if (more) input.template_fields = *fields.Find("chat_template_kwargs");
  PF_ASSIGN_OR_RETURN(const auto effort, fields.Text("reasoning_effort"));
  if (effort) input.template_fields["reasoning_effort"] = *effort;
  if (const Json* documents = fields.Find("documents")) {
    if (!documents->is_array()) return fields.Wrong("documents", "expected a list");
    input.template_fields["documents"] = *documents;
  }
  PF_ASSIGN_OR_RETURN(const auto adds, fields.Flag("add_generation_prompt"));
  input.adds_generation_prompt = adds.value_or(true);
  return absl::OkStatus();
}

absl::Status ReadRules(Fields& fields, AnswerRulesInput& rules) {
  const auto take = [&fields](const char* name, Json& value) {
    if (const Json* found = fields.Find(name)) value = *found;
  };
  take("tools", rules.tools);
  take("tool_choice", rules.tool_choice);
  take("response_format", rules.response_format);
  take("structured_outputs", rules.structured_outputs);
  PF_ASSIGN_OR_RETURN(const auto parallel, fields.Flag("parallel_tool_calls"));
  rules.parallel = parallel.value_or(true);
  return absl::OkStatus();
}

absl::StatusOr<Conversation> ReadChat(const Call& call, Fields& fields) {
  const ServedModel& model = *call.api->model;
  Conversation found;
  found.id = NewId("chatcmpl-");
  PF_ASSIGN_OR_RETURN(const auto name, fields.Text("model"));
  PF_RETURN_IF_ERROR(model.CheckName(name));
  PF_RETURN_IF_ERROR(RefuseChat(fields));
  PF_ASSIGN_OR_RETURN(found.fields, ReadRequestFields(fields, model));
  PF_RETURN_IF_ERROR(ReadLogprobs(fields, found.fields.sampling));
  PF_RETURN_IF_ERROR(ReadTemplateFields(fields, found.input));
  PF_RETURN_IF_ERROR(ReadRules(fields, found.rules));
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  PF_ASSIGN_OR_RETURN(const auto older, fields.Integer("max_tokens", 1, kMost));
  PF_ASSIGN_OR_RETURN(found.max_tokens, fields.Integer("max_completion_tokens", 1, kMost));
  if (!found.max_tokens) found.max_tokens = older;
  const Json* messages = fields.Find("messages");
  if (messages == nullptr) return fields.Wrong("messages", "expected a list of messages, got none");
  PF_ASSIGN_OR_RETURN(found.input.messages, CheckMessages(*messages, "messages"));
  return found;
}

std::string_view FinishName(AnswerFinish finish) {
  return finish == AnswerFinish::kCalls    ? "tool_calls"
         : finish == AnswerFinish::kLength ? "length"
                                           : "stop";
}

class ChatAnswer final : public GenerationClient {
 public:
  ChatAnswer(const Call& call, Conversation request, Headers headers)
      : model_(call.api->model),
        request_(std::move(request)),
        reply_(call.reply, request_.fields.stream, request_.id, std::move(headers),
               SseComment("ping")),
        created_(std::time(nullptr)),
        choices_(request_.fields.samples),
        left_(request_.fields.samples) {}

  void Begin() { reply_.Begin(); }

  void OnDelta(const AnswerDelta& delta) override {
    Choice& choice = choices_[delta.sample];
    if (reply_.streams()) return WriteDelta(choice, delta);
    choice.content += delta.content;
    choice.reasoning += delta.reasoning;
    std::ranges::copy(delta.tokens, std::back_inserter(choice.tokens));
    for (const CallDelta& call : delta.calls) {
      if (call.begins) choice.calls.push_back(CallJson(call));
      auto& function = choice.calls[call.index]["function"];
      function["arguments"] = function["arguments"].get<std::string>() + call.arguments;
    }
  }

  void OnEnd(const AnswerEnd& end) override {
    if (failed_) return;
    const absl::Status error = ErrorOf(end);
    if (!error.ok()) {
      failed_ = true;
      return reply_.Fail(ReplyOf(error), SseEvent("", OpenAiError(error)) + SseEvent("", "[DONE]"));
    }
    Choice& choice = choices_[end.sample];
    choice.finish = FinishName(end.finish);
    choice.stop = !end.stop.empty() ? Json(end.stop) : Json();
    prompt_tokens_ = end.prompt_tokens;
    cached_tokens_ = end.cached_tokens;
    tokens_ += end.tokens;
    reasoning_tokens_ += end.reasoning_tokens;
    if (reply_.streams()) {
      BeginChoice(choice, end.sample);
      Event(end.sample, Json::object(), Json(), choice.finish);
    }
    if (--left_ == 0) Finish();
  }

 private:
  struct Choice {
    bool begun = false;
    std::string content, reasoning, finish;
    Json calls = Json::array();
    std::vector<TokenDelta> tokens;
    Json stop;
  };

  static Json CallJson(const CallDelta& call) {
    return {{"id", NewId("call_")},
            {"type", "function"},
            {"function", {{"name", call.name}, {"arguments", ""}}}};
  }
  Json Head(const char* object) const {
    return {{"id", request_.id},
            {"object", object},
            {"created", created_},
            {"model", model_->name},
            {"system_fingerprint", model_->fingerprint}};
  }
  Json Usage() const {
    return OpenAiUsage(prompt_tokens_, cached_tokens_, tokens_, reasoning_tokens_);
  }
  Json Logprobs(const std::vector<TokenDelta>& tokens) const {
    if (!request_.fields.sampling.logprobs) return {};
    return {{"content", TokenLogprobsJson(tokens, *model_->tokenizer)}, {"refusal", Json()}};
  }

  void Event(int64_t index, Json delta, Json logprobs, Json finish) {
    Json json = Head("chat.completion.chunk");
    json["choices"] = Json::array({{{"index", index},
                                    {"delta", std::move(delta)},
                                    {"logprobs", std::move(logprobs)},
                                    {"finish_reason", std::move(finish)}}});
    if (request_.fields.include_usage) json["usage"] = Json();
    reply_.Write(SseEvent("", Dump(json)));
  }
  void BeginChoice(Choice& choice, int64_t index) {
    if (std::exchange(choice.begun, true)) return;
    Event(index, {{"role", "assistant"}, {"content", ""}}, Json(), Json());
  }
  void WriteDelta(Choice& choice, const AnswerDelta& delta) {
    BeginChoice(choice, delta.sample);
    Json json = Json::object();
    if (!delta.content.empty()) json["content"] = delta.content;
    if (!delta.reasoning.empty()) {
      json["reasoning"] = delta.reasoning;
      json["reasoning_content"] = delta.reasoning;
    }
    for (const CallDelta& call : delta.calls) {
      Json one = call.begins ? CallJson(call) : Json{{"function", Json::object()}};
      one["index"] = call.index;
      one["function"]["arguments"] = call.arguments;
      json["tool_calls"].push_back(std::move(one));
    }
    Event(delta.sample, std::move(json), Logprobs(delta.tokens), Json());
  }

  Json ChoiceJson(int64_t index, Choice& choice) const {
    Json message = {{"role", "assistant"}, {"content", choice.content}, {"refusal", Json()}};
    if (choice.content.empty() && !choice.calls.empty()) message["content"] = Json();
    if (!choice.reasoning.empty()) {
      message["reasoning"] = choice.reasoning;
      message["reasoning_content"] = choice.reasoning;
    }
    if (!choice.calls.empty()) message["tool_calls"] = std::move(choice.calls);
    return {{"index", index},
            {"message", std::move(message)},
            {"logprobs", Logprobs(choice.tokens)},
            {"finish_reason", choice.finish},
            {"stop_reason", choice.stop}};
  }
  void Finish() {
    Json json = Head(reply_.streams() ? "chat.completion.chunk" : "chat.completion");
    json["choices"] = Json::array();
    if (reply_.streams()) {
      json["usage"] = Usage();
      if (request_.fields.include_usage) reply_.Write(SseEvent("", Dump(json)));
      reply_.Write(SseEvent("", "[DONE]"));
      return reply_.End();
    }
    for (size_t i = 0; i < choices_.size(); ++i) {
      json["choices"].push_back(ChoiceJson(static_cast<int64_t>(i), choices_[i]));
    }
    json["usage"] = Usage();
    reply_.Send(200, Dump(json));
  }

  const ServedModel* model_;
  Conversation request_;
  ApiReply reply_;
  std::time_t created_;
  std::vector<Choice> choices_;
  int64_t left_;
  bool failed_ = false;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, tokens_ = 0, reasoning_tokens_ = 0;
};

}  // namespace

absl::Status ServeChat(const Call& call) {
  PF_ASSIGN_OR_RETURN(const Json body, BodyOf(call.request));
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(body, ""));
  PF_ASSIGN_OR_RETURN(Conversation found, ReadChat(call, fields));
  PF_ASSIGN_OR_RETURN(Headers headers, IgnoredHeaders(*call.api, found.id, fields.Ignored()));
  PF_ASSIGN_OR_RETURN(GenerationRequest request, GenerationOf(*call.api->model, found));
  std::vector<GenerationRequest> requests;
  requests.push_back(std::move(request));
  const auto answer = std::make_shared<ChatAnswer>(call, std::move(found), std::move(headers));
  PF_RETURN_IF_ERROR(StartAll(*call.api, std::move(requests), {answer}, *call.reply));
  answer->Begin();
  return absl::OkStatus();
}

}  // namespace pagefuse::serve
