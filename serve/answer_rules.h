// SPDX-License-Identifier: Apache-2.0
// What an answer may be: tools that it may call or must, and the form of its text. Protocols name these
// differently and bring them into OpenAI's form.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "pagefuse/serve/chat_prompt.h"
#include "pagefuse/serve/fields.h"
#include "pagefuse/serve/generation.h"
#include "pagefuse/serve/served_model.h"

namespace pagefuse::serve {

struct AnswerRulesInput {
  // {"type": "function", "function": {"name", "description", "parameters", "strict"}}
  Json tools = Json::array();
  // "none", "auto", "required" or {"type": "function", "function": {"name"}}; null: "auto"
  Json tool_choice;
  bool parallel = true;  // several calls in one answer
  // {"type": "text" | "json_object" | "json_schema", "json_schema": {"name", "schema"}}; null: "text"
  Json response_format;
  // vLLM's {"json" | "json_object" | "regex" | "choice"}; null: none
  Json structured_outputs;
  // What the protocol calls them, for errors.
  std::string tools_param = "tools", choice_param = "tool_choice", format_param = "response_format";
};

// Gives the template its tools, and the generation what it reads (AnswerReading) and what it may say (grammar).
// A call that is required has the arguments that its tool's schema allows, and so has one of a tool with
// "strict": true; other tools whose schema has keywords that are not known take any object, as nothing was
// promised. BadParam where the model's template takes no tools, and for a schema, by the pointer of what is
// wrong in it.
absl::Status ApplyAnswerRules(const ServedModel& model, const AnswerRulesInput& rules,
                              ChatInput& input, GenerationRequest& request);

// The generation goes on from the prompt, and reads its answer as the model writes it.
void TakePrompt(const ServedModel& model, ChatPrompt prompt, GenerationRequest& request);

}  // namespace pagefuse::serve
