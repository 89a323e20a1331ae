// SPDX-License-Identifier: Apache-2.0
// What a request of OpenAI's Responses API says, as a conversation.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/serve/conversation.h"

namespace pagefuse::serve {

struct ResponsesRequest {
  Conversation conversation;
  Json echo;  // members of the response that repeat the request
};

// BadParam naming what is wrong, or what is not to be had here: nothing is stored, and no tool is run.
absl::StatusOr<ResponsesRequest> ReadResponses(const ServedModel& model, const Json& body);

}  // namespace pagefuse::serve
