// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/tokens_api.h"

#include <charconv>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/chat_prompt.h"
#include "pagefuse/serve/http_error.h"

namespace pagefuse::serve {
namespace {

template <typename Format>
Json NameOrNull(const Format* format) {
  return format == nullptr ? Json() : Json(format->name);
}

// Clients write "%2F" for the slash of a name. What is no such thing stays.
std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    int byte = 0;
    const char* const first = text.data() + i + 1;
    const bool coded = text[i] == '%' && i + 2 < text.size() &&
                       std::from_chars(first, first + 2, byte, 16).ptr == first + 2;
    decoded += coded ? static_cast<char>(byte) : text[i];
    i += coded ? 2 : 0;
  }
  return decoded;
}

Json ModelJson(const ServedModel& model) {
  const std::optional<int64_t> most = model.MaxTokens();
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "pagefuse"},
          {"max_model_len", most ? Json(*most) : Json()},
          {"paged", model.decoder->engine() != nullptr},
          {"batch_invariant", model.batch_invariant},
          {"reasoning", NameOrNull(model.format.reasoning)},
          {"tools", NameOrNull(model.format.template_takes_tools ? model.format.tools : nullptr)}};
}

absl::StatusOr<std::vector<int64_t>> IdsOf(const ServedModel& model, Fields& fields) {
  PF_ASSIGN_OR_RETURN(const auto prompt, fields.Text("prompt"));
  if (!prompt) {
    const Json* messages = fields.Find("messages");
    if (messages == nullptr) return fields.Wrong("prompt", "expected a text, or messages");
    ChatInput input;
    PF_ASSIGN_OR_RETURN(input.messages, CheckMessages(*messages, "messages"));
    PF_ASSIGN_OR_RETURN(const auto adds, fields.Flag("add_generation_prompt"));
    input.adds_generation_prompt = adds.value_or(true);
    PF_ASSIGN_OR_RETURN(ChatPrompt made, RenderChatPrompt(model, input, "messages"));
    return std::move(made.ids);
  }
  PF_ASSIGN_OR_RETURN(const auto adds, fields.Flag("add_special_tokens"));
  if (!model.tokenizer || adds.value_or(true)) return model.Encode(*prompt, "prompt");
  auto ids = model.tokenizer->Encode(*prompt, {.adds_special = false});
  if (!ids.ok()) return fields.Wrong("prompt", StdView(ids.status().message()));
  return ids;
}

void Reply(const Call& call, const Json& json, Headers headers) {
  headers.emplace_back("Content-Type", "application/json");
  call.reply->Send(200, std::move(headers), Dump(json));
}

}  // namespace

absl::StatusOr<Json> ModelsJson(const ServedModel& model, std::string_view id) {
  if (id.empty()) return Json{{"object", "list"}, {"data", Json::array({ModelJson(model)})}};
  PF_RETURN_IF_ERROR(model.CheckName(PercentDecoded(id)));
  return ModelJson(model);
}

absl::Status ServeTokenize(const Call& call) {
  const ServedModel& model = *call.api->model;
  PF_ASSIGN_OR_RETURN(const Json body, BodyOf(call.request));
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(body, ""));
  PF_ASSIGN_OR_RETURN(const auto name, fields.Text("model"));
  PF_RETURN_IF_ERROR(model.CheckName(name));
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, IdsOf(model, fields));
  PF_ASSIGN_OR_RETURN(const auto strings, fields.Flag("return_token_strs"));
  PF_ASSIGN_OR_RETURN(Headers headers, IgnoredHeaders(*call.api, "tokenize", fields.Ignored()));
  const std::optional<int64_t> most = model.MaxTokens();
  Json json = {
      {"count", ids.size()}, {"max_model_len", most ? Json(*most) : Json()}, {"tokens", ids}};
  if (strings.value_or(false) && model.tokenizer) {
    json["token_strs"] = Json::array();
    for (const int64_t id : ids) {
      json["token_strs"].push_back(model.tokenizer->Decode({&id, 1}, /*special=*/true));
    }
  }
  Reply(call, json, std::move(headers));
  return absl::OkStatus();
}

absl::Status ServeDetokenize(const Call& call) {
  const ServedModel& model = *call.api->model;
  PF_ASSIGN_OR_RETURN(const Json body, BodyOf(call.request));
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(body, ""));
  PF_ASSIGN_OR_RETURN(const auto name, fields.Text("model"));
  PF_RETURN_IF_ERROR(model.CheckName(name));
  constexpr size_t kMost = size_t{1} << 20;
  PF_ASSIGN_OR_RETURN(const auto ids, fields.Integers("tokens", kMost));
  if (!ids) return fields.Wrong("tokens", "expected a list of token ids, got none");
  if (!model.tokenizer) return fields.Wrong("tokens", "this model has no tokenizer");
  PF_ASSIGN_OR_RETURN(Headers headers, IgnoredHeaders(*call.api, "detokenize", fields.Ignored()));
  Reply(call, {{"prompt", model.tokenizer->Decode(*ids, /*special=*/true)}}, std::move(headers));
  return absl::OkStatus();
}

}  // namespace pagefuse::serve
