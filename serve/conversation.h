// SPDX-License-Identifier: Apache-2.0
// Conversations of protocols whose turns are lists of items or blocks, brought into OpenAI's messages, and from
// there to what the engine is asked.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/serve/answer_rules.h"
#include "pagefuse/serve/chat_prompt.h"
#include "pagefuse/serve/fields.h"
#include "pagefuse/serve/generation.h"
#include "pagefuse/serve/request_fields.h"

namespace pagefuse::serve {

// Builds messages piece by piece. What an assistant said in one turn is one message: reasoning, then text, then
// calls; what comes in another order begins a message of its own.
class MessageList {
 public:
  // System texts at the beginning are one message, since templates take one.
  void AddSystem(const std::string& text);
  void AddUser(const std::string& text);
  void AddReasoning(const std::string& text);
  void AddAnswer(const std::string& text);       // goes on with one that is there
  void AddWholeAnswer(const std::string& text);  // is one
  void AddCall(const std::string& id, const std::string& name, const std::string& arguments);
  // False where no call before it has this id.
  bool AddResult(const std::string& id, const std::string& text);
  // What comes next is a message of its own.
  void EndMessage() { open_ = false; }

  bool empty() const { return messages_.empty(); }
  std::string_view last_role() const;
  // All of them, as CheckMessages returns messages.
  Json Take();

 private:
  Json& Assistant(std::initializer_list<std::string_view> before);

  Json messages_ = Json::array();
  bool open_ = false;  // the last message is an assistant's and takes more
  std::unordered_map<std::string, std::string> calls_;  // names by id
};

// Texts and lists of parts of these types, joined; a part of the type T has its text under the member "text", and
// a refusal under "refusal". BadParam naming the part.
absl::StatusOr<std::string> JoinedText(const Json& content, const std::string& param,
                                       std::initializer_list<std::string_view> types);

// A member that must be a text.
absl::StatusOr<std::string> NeededText(Fields& fields, std::string_view name);

struct Conversation {
  std::string id = {};
  ChatInput input = {};
  AnswerRulesInput rules = {};
  RequestFields fields = {};
  std::optional<int64_t> max_tokens = {};
  std::string messages_param = "messages";  // where errors of the prompt are
  std::vector<std::string> ignored = {};    // members that nobody read
};

// Sampling, `seed` and `cache_salt`, and the model's end tokens.
absl::Status ReadDrawing(Fields& fields, const ServedModel& model, RequestFields& found);

// Renders the prompt and applies the rules; all but the number of new tokens.
absl::StatusOr<GenerationRequest> PromptOf(const ServedModel& model, Conversation& conversation);
// With the number of new tokens.
absl::StatusOr<GenerationRequest> GenerationOf(const ServedModel& model,
                                               Conversation& conversation);

}  // namespace pagefuse::serve
