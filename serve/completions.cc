// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/completions.h"

#include <algorithm>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/answer_rules.h"
#include "pagefuse/serve/http_error.h"
#include "pagefuse/serve/request_fields.h"
#include "pagefuse/serve/sse.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse::serve {
namespace {

constexpr int64_t kUsualNewTokens = 16;  // as in OpenAI's API
constexpr size_t kMostPrompts = 128;

struct Prompt {
  std::vector<int64_t> ids;
  std::string text;  // for echo
};

struct CompletionsRequest {
  std::string id;
  RequestFields fields = {};
  std::vector<Prompt> prompts = {};
  bool echo = false, tells_tokens = false;
  Grammar::Ptr grammar = {};
};

bool IsIds(const Json& value) {
  return value.is_array() && !value.empty() &&
         std::ranges::all_of(value, [](const Json& item) { return item.is_number_integer(); });
}

absl::StatusOr<Prompt> ReadPrompt(const ServedModel& model, const Json& value,
                                  const std::string& param) {
  Prompt prompt;
  if (value.is_string()) {
    prompt.text = value.get<std::string>();
    PF_ASSIGN_OR_RETURN(prompt.ids, model.Encode(prompt.text, param));
  } else if (IsIds(value)) {
    prompt.ids = value.get<std::vector<int64_t>>();
    if (model.tokenizer) prompt.text = model.tokenizer->Decode(prompt.ids);
  } else {
    return BadParam(param, StrCat("expected a text or token ids, got ", Found(value)));
  }
  if (prompt.ids.empty()) return BadParam(param, "expected one token at least, got none");
  return prompt;
}

absl::StatusOr<std::vector<Prompt>> ReadPrompts(Fields& fields, const ServedModel& model) {
  const Json* value = fields.Find("prompt");
  if (value == nullptr)
    return fields.Wrong("prompt", "expected a text, token ids, or lists of both");
  std::vector<Prompt> prompts;
  if (!value->is_array() || IsIds(*value)) {
    PF_ASSIGN_OR_RETURN(prompts.emplace_back(), ReadPrompt(model, *value, "prompt"));
    return prompts;
  }
  if (value->empty() || value->size() > kMostPrompts) {
    return fields.Wrong("prompt",
                        StrCat("expected 1 to ", kMostPrompts, " prompts, got ", value->size()));
  }
  for (size_t i = 0; i < value->size(); ++i) {
    PF_ASSIGN_OR_RETURN(prompts.emplace_back(),
                        ReadPrompt(model, (*value)[i], StrCat("prompt[", i, "]")));
  }
  return prompts;
}

// What the protocol has and this server has not.
absl::Status RefuseCompletions(Fields& fields) {
  PF_RETURN_IF_ERROR(fields.Refuse("suffix", "expected none: text is not filled in", ""));
  return fields.Refuse("best_of", "expected none, or 1", 1);
}

absl::StatusOr<CompletionsRequest> ReadCompletions(const Call& call, Fields& fields) {
  const ServedModel& model = *call.api->model;
  CompletionsRequest found;
  found.id = NewId("cmpl-");
  PF_ASSIGN_OR_RETURN(const auto name, fields.Text("model"));
  PF_RETURN_IF_ERROR(model.CheckName(name));
  PF_RETURN_IF_ERROR(RefuseCompletions(fields));
  PF_ASSIGN_OR_RETURN(found.fields, ReadRequestFields(fields, model));
  PF_ASSIGN_OR_RETURN(const auto logprobs, fields.Integer("logprobs", 0, 20));
  found.fields.sampling.logprobs = logprobs;
  PF_ASSIGN_OR_RETURN(const auto echo, fields.Flag("echo"));
  found.echo = echo.value_or(false);
  PF_ASSIGN_OR_RETURN(const auto tells_tokens, fields.Flag("return_token_ids"));
  found.tells_tokens = tells_tokens.value_or(false);
  if (found.echo && logprobs) {
    return fields.Wrong("echo", "expected none beside logprobs: prompts have no logprobs");
  }
  PF_ASSIGN_OR_RETURN(found.prompts, ReadPrompts(fields, model));
  AnswerRulesInput rules;
  if (const Json* format = fields.Find("response_format")) rules.response_format = *format;
  if (const Json* outputs = fields.Find("structured_outputs")) rules.structured_outputs = *outputs;
  ChatInput none;
  GenerationRequest bound;
  PF_RETURN_IF_ERROR(ApplyAnswerRules(model, rules, none, bound));
  found.grammar = bound.grammar;
  return found;
}

absl::StatusOr<std::vector<GenerationRequest>> GenerationsOf(const ServedModel& model,
                                                             const CompletionsRequest& found,
                                                             std::optional<int64_t> wanted) {
  std::vector<GenerationRequest> requests;
  for (const Prompt& prompt : found.prompts) {
    GenerationRequest request;
    request.id = found.id;
    request.stops = found.fields.stops;
    request.grammar = found.grammar;
    request.reading.keeps_special = found.fields.keeps_special;
    request.reading.tells_tokens = found.tells_tokens;
    request.request.prompt = prompt.ids;
    PF_ASSIGN_OR_RETURN(request.request.max_new_tokens,
                        model.NewTokensFor(static_cast<int64_t>(prompt.ids.size()), wanted,
                                           kUsualNewTokens, "max_tokens"));
    request.request.stop_tokens = found.fields.stop_tokens;
    request.request.sampling = found.fields.sampling;
    request.request.samples = found.fields.samples;
    request.request.cache_salt = found.fields.salt;
    requests.push_back(std::move(request));
  }
  return requests;
}

// logprobs of a choice as completions have them, in lists side by side.
class LogprobLists {
 public:
  explicit LogprobLists(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  Json Of(const std::vector<TokenDelta>& tokens) {
    Json lists = {{"tokens", Json::array()},
                  {"token_logprobs", Json::array()},
                  {"top_logprobs", Json::array()},
                  {"text_offset", Json::array()}};
    for (const TokenDelta& token : tokens) {
      lists["tokens"].push_back(TextOf(token.token));
      lists["token_logprobs"].push_back(token.logprobs->logprob);
      Json top = Json::object();
      for (const auto& [id, logprob] : token.logprobs->top) top[TextOf(id)] = logprob;
      lists["top_logprobs"].push_back(std::move(top));
      lists["text_offset"].push_back(offset_);
      offset_ += static_cast<int64_t>(token.bytes.size());
    }
    return lists;
  }

 private:
  std::string TextOf(int64_t token) const {
    return tokenizer_ ? tokenizer_->Decode({&token, 1}, /*special=*/true)
                      : StrCat("token_id:", token);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  int64_t offset_ = 0;
};

class CompletionsAnswer {
 public:
  CompletionsAnswer(const Call& call, CompletionsRequest request, Headers headers)
      : model_(call.api->model),
        request_(std::move(request)),
        reply_(call.reply, request_.fields.stream, request_.id, std::move(headers),
               SseComment("ping")),
        created_(std::time(nullptr)) {
    const int64_t samples = request_.fields.samples;
    choices_.resize(request_.prompts.size() * samples, Choice(LogprobLists(model_->tokenizer)));
    left_ = choices_.size();
    if (!request_.echo) return;
    for (size_t i = 0; i < choices_.size(); ++i) {
      choices_[i].text = request_.prompts[i / samples].text;
    }
  }

  void Begin() { reply_.Begin(); }

  void OnDelta(size_t prompt, const AnswerDelta& delta) {
    const std::lock_guard lock(mutex_);
    const size_t index = prompt * request_.fields.samples + delta.sample;
    Choice& choice = choices_[index];
    const std::string text = delta.content;
    if (!reply_.streams()) {
      choice.text += text;
      std::ranges::copy(delta.tokens, std::back_inserter(choice.tokens));
      return;
    }
    Event(index, std::exchange(choice.text, "") + text, Logprobs(choice, delta.tokens), Json(),
          delta.tokens);
  }

  void OnEnd(size_t prompt, const AnswerEnd& end) {
    const std::lock_guard lock(mutex_);
    const size_t index = prompt * request_.fields.samples + end.sample;
    if (failed_) return;
    const absl::Status error = ErrorOf(end);
    if (!error.ok()) {
      failed_ = true;
      return reply_.Fail(ReplyOf(error), SseEvent("", OpenAiError(error)) + SseEvent("", "[DONE]"));
    }
    choices_[index].finish = end.finish == AnswerFinish::kLength ? "length" : "stop";
    if (end.sample == 0) {
      prompt_tokens_ += end.prompt_tokens;
      cached_tokens_ += end.cached_tokens;
    }
    tokens_ += end.tokens;
    if (reply_.streams()) {
      Event(index, std::exchange(choices_[index].text, ""), Json(), choices_[index].finish);
    }
    if (--left_ == 0) Finish();
  }

 private:
  struct Choice {
    explicit Choice(LogprobLists of) : lists(std::move(of)) {}
    std::string text;
    std::vector<TokenDelta> tokens;
    LogprobLists lists;
    std::string finish;
  };

  Json Head() const {
    return {{"id", request_.id},
            {"object", "text_completion"},
            {"created", created_},
            {"model", model_->name},
            {"system_fingerprint", model_->fingerprint}};
  }
  Json Usage() const { return OpenAiUsage(prompt_tokens_, cached_tokens_, tokens_, 0); }
  Json ChoiceJson(size_t index, const std::string& text, const Json& logprobs, const Json& finish,
                  const std::vector<TokenDelta>& tokens) const {
    Json json = {
        {"index", index}, {"text", text}, {"logprobs", logprobs}, {"finish_reason", finish}};
    if (!request_.tells_tokens) return json;
    json["token_ids"] = Json::array();
    for (const TokenDelta& token : tokens) json["token_ids"].push_back(token.token);
    return json;
  }
  Json Logprobs(Choice& choice, const std::vector<TokenDelta>& tokens) const {
    const bool wanted = request_.fields.sampling.logprobs.has_value();
    return wanted && !tokens.empty() ? choice.lists.Of(tokens) : Json();
  }

  void Event(size_t index, const std::string& text, const Json& logprobs, const Json& finish,
             const std::vector<TokenDelta>& tokens = {}) {
    Json json = Head();
    json["choices"] = Json::array({ChoiceJson(index, text, logprobs, finish, tokens)});
    if (request_.fields.include_usage) json["usage"] = Json();
    reply_.Write(SseEvent("", Dump(json)));
  }
  void Finish() {
    Json json = Head();
    json["choices"] = Json::array();
    if (reply_.streams()) {
      json["usage"] = Usage();
      if (request_.fields.include_usage) reply_.Write(SseEvent("", Dump(json)));
      reply_.Write(SseEvent("", "[DONE]"));
      return reply_.End();
    }
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& choice = choices_[i];
      json["choices"].push_back(ChoiceJson(i, choice.text, Logprobs(choice, choice.tokens),
                                           choice.finish, choice.tokens));
    }
    json["usage"] = Usage();
    reply_.Send(200, Dump(json));
  }

  const ServedModel* model_;
  CompletionsRequest request_;
  ApiReply reply_;
  std::time_t created_;
  std::mutex mutex_;  // prompts are answered side by side
  std::vector<Choice> choices_;
  size_t left_ = 0;
  bool failed_ = false;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, tokens_ = 0;
};

// Of one of the prompts.
class CompletionsClient final : public GenerationClient {
 public:
  CompletionsClient(std::shared_ptr<CompletionsAnswer> answer, size_t prompt)
      : answer_(std::move(answer)), prompt_(prompt) {}
  void OnDelta(const AnswerDelta& delta) override { answer_->OnDelta(prompt_, delta); }
  void OnEnd(const AnswerEnd& end) override { answer_->OnEnd(prompt_, end); }

 private:
  std::shared_ptr<CompletionsAnswer> answer_;
  size_t prompt_;
};

}  // namespace

absl::Status ServeCompletions(const Call& call) {
  PF_ASSIGN_OR_RETURN(const Json body, BodyOf(call.request));
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(body, ""));
  PF_ASSIGN_OR_RETURN(CompletionsRequest found, ReadCompletions(call, fields));
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  PF_ASSIGN_OR_RETURN(const auto wanted, fields.Integer("max_tokens", 0, kMost));
  PF_ASSIGN_OR_RETURN(Headers headers, IgnoredHeaders(*call.api, found.id, fields.Ignored()));
  PF_ASSIGN_OR_RETURN(auto requests, GenerationsOf(*call.api->model, found, wanted));
  const auto answer =
      std::make_shared<CompletionsAnswer>(call, std::move(found), std::move(headers));
  std::vector<std::shared_ptr<GenerationClient>> clients;
  for (size_t i = 0; i < requests.size(); ++i) {
    clients.push_back(std::make_shared<CompletionsClient>(answer, i));
  }
  PF_RETURN_IF_ERROR(StartAll(*call.api, std::move(requests), clients, *call.reply));
  answer->Begin();
  return absl::OkStatus();
}

}  // namespace pagefuse::serve
