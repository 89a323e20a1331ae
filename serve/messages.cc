// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/messages.h"

#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/serve/messages_answer.h"
#include "pagefuse/serve/messages_input.h"
#include "pagefuse/text/model/stop_match.h"

namespace pagefuse::serve {
namespace {

absl::StatusOr<Headers> MessagesHeaders(const Call& call, const Conversation& found) {
  PF_ASSIGN_OR_RETURN(Headers headers, IgnoredHeaders(*call.api, found.id, found.ignored));
  headers.emplace_back("Request-Id", found.id);  // where Anthropic's clients look for it
  return headers;
}

absl::StatusOr<std::vector<std::pair<int64_t, std::string>>> TokensOfStops(
    const ServedModel& model, const std::vector<std::string>& stops) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& stop : stops) {
    PF_ASSIGN_OR_RETURN(const auto tokens, StopTokens(*model.tokenizer, {stop}));
    for (const int64_t token : tokens) found.emplace_back(token, stop);
  }
  return found;
}

}  // namespace

absl::Status ServeMessages(const Call& call) {
  const ServedModel& model = *call.api->model;
  PF_ASSIGN_OR_RETURN(const Json body, BodyOf(call.request));
  PF_ASSIGN_OR_RETURN(Conversation found, ReadMessages(model, body, /*counts=*/false));
  PF_ASSIGN_OR_RETURN(Headers headers, MessagesHeaders(call, found));
  std::vector<GenerationRequest> requests;
  PF_ASSIGN_OR_RETURN(requests.emplace_back(), GenerationOf(model, found));
  MessagesHead head = {.id = found.id,
                       .model = model.name,
                       .stream = found.fields.stream,
                       .prompt_tokens = static_cast<int64_t>(requests[0].request.prompt.size())};
  PF_ASSIGN_OR_RETURN(head.stop_tokens, TokensOfStops(model, found.fields.stops));
  const auto answer =
      std::make_shared<MessagesAnswer>(call.reply, std::move(head), std::move(headers));
  PF_RETURN_IF_ERROR(StartAll(*call.api, std::move(requests), {answer}, *call.reply));
  answer->Begin();
  return absl::OkStatus();
}

absl::Status ServeCountTokens(const Call& call) {
  const ServedModel& model = *call.api->model;
  PF_ASSIGN_OR_RETURN(const Json body, BodyOf(call.request));
  PF_ASSIGN_OR_RETURN(Conversation found, ReadMessages(model, body, /*counts=*/true));
  PF_ASSIGN_OR_RETURN(Headers headers, MessagesHeaders(call, found));
  PF_ASSIGN_OR_RETURN(const GenerationRequest request, PromptOf(model, found));
  headers.emplace_back("Content-Type", "application/json");
  headers.emplace_back("X-Request-Id", found.id);
  call.reply->Send(200, std::move(headers),
                   Dump({{"input_tokens", request.request.prompt.size()}}));
  return absl::OkStatus();
}

}  // namespace pagefuse::serve
