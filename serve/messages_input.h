// SPDX-License-Identifier: Apache-2.0
// What a request of Anthropic's Messages API says, as a conversation.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/serve/conversation.h"

namespace pagefuse::serve {

// `counts`: tokens are counted, so that none need be asked for. BadParam naming "messages[1].content[0].type".
absl::StatusOr<Conversation> ReadMessages(const ServedModel& model, const Json& body, bool counts);

}  // namespace pagefuse::serve
