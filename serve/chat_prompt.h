// SPDX-License-Identifier: Apache-2.0
// A conversation as the protocols send it, made the prompt of its model. OpenAI's messages are the form that
// the others are brought into.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/serve/answer_text.h"
#include "pagefuse/serve/fields.h"
#include "pagefuse/serve/served_model.h"

namespace pagefuse::serve {

struct ChatInput {
  Json messages = Json::array();  // as CheckMessages returns them
  Json tools = Json::array();  // as OpenAI's: {"type": "function", "function": {...}}; empty: none
  Json template_fields = Json::object();  // what the template is given besides
  bool adds_generation_prompt = true;
};

struct ChatPrompt {
  std::vector<int64_t> ids = {};
  bool begins_in_reasoning = false;
};

// Messages with roles, texts and calls as they may be; parts of text are joined. BadParam naming
// "messages[2].content[0]".
absl::StatusOr<Json> CheckMessages(const Json& messages, const std::string& param);

// BadParam of `param` with what the template says, and where the model has none.
absl::StatusOr<ChatPrompt> RenderChatPrompt(const ServedModel& model, const ChatInput& input,
                                            const std::string& param);

}  // namespace pagefuse::serve
