// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/responses.h"

#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/serve/responses_answer.h"
#include "pagefuse/serve/responses_input.h"

namespace pagefuse::serve {

absl::Status ServeResponses(const Call& call) {
  const ServedModel& model = *call.api->model;
  PF_ASSIGN_OR_RETURN(const Json body, BodyOf(call.request));
  PF_ASSIGN_OR_RETURN(ResponsesRequest found, ReadResponses(model, body));
  Conversation& conversation = found.conversation;
  PF_ASSIGN_OR_RETURN(Headers headers,
                      IgnoredHeaders(*call.api, conversation.id, conversation.ignored));
  std::vector<GenerationRequest> requests;
  PF_ASSIGN_OR_RETURN(requests.emplace_back(), GenerationOf(model, conversation));
  ResponsesHead head = {.id = conversation.id,
                        .model = model.name,
                        .echo = std::move(found.echo),
                        .stream = conversation.fields.stream};
  if (conversation.fields.sampling.logprobs) head.tokenizer = model.tokenizer;
  const auto answer =
      std::make_shared<ResponsesAnswer>(call.reply, std::move(head), std::move(headers));
  PF_RETURN_IF_ERROR(StartAll(*call.api, std::move(requests), {answer}, *call.reply));
  answer->Begin();
  return absl::OkStatus();
}

}  // namespace pagefuse::serve
