// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/messages_blocks.h"

#include <optional>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/api.h"
#include "pagefuse/serve/conversation.h"
#include "pagefuse/serve/http_error.h"

namespace pagefuse::serve {
namespace {

class TurnReader {
 public:
  absl::Status ReadSystem(Fields& fields);
  absl::Status ReadTurn(const Json& turn, const std::string& param);
  absl::StatusOr<Json> Take();

 private:
  absl::Status ReadBlock(const std::string& role, const Json& block, const std::string& param);
  absl::Status ReadUserBlock(const std::string& type, Fields& fields);
  absl::Status ReadAnswerBlock(const std::string& type, Fields& fields);
  absl::Status ReadResult(Fields& fields);
  absl::Status ReadUse(Fields& fields);
  void AddUserText(const std::string& text, std::string_view between);
  void EndUser();

  MessageList list_;
  std::optional<std::string> user_;  // text that is not in the list yet
  bool turn_begins_ = false;         // no block of this turn has been read
};

absl::Status TurnReader::ReadSystem(Fields& fields) {
  const Json* system = fields.Find("system");
  if (system == nullptr) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const std::string text, JoinedText(*system, "system", {"text"}));
  if (!text.empty()) list_.AddSystem(text);
  return absl::OkStatus();
}

absl::Status TurnReader::ReadTurn(const Json& turn, const std::string& param) {
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(turn, param));
  PF_ASSIGN_OR_RETURN(const auto role, fields.OneOf("role", {"user", "assistant"}));
  if (!role) return fields.Wrong("role", "expected one, got none");
  if (*role == "assistant") EndUser();
  const Json* content = fields.Find("content");
  turn_begins_ = true;
  if (content != nullptr && content->is_string()) {
    return ReadBlock(*role, {{"type", "text"}, {"text", *content}}, param);
  }
  if (content == nullptr || !content->is_array()) {
    return fields.Wrong("content", StrCat("expected a text or a list of blocks, got ",
                                          content == nullptr ? "none" : Found(*content)));
  }
  for (size_t i = 0; i < content->size(); ++i) {
    PF_RETURN_IF_ERROR(ReadBlock(*role, (*content)[i], StrCat(param, ".content[", i, "]")));
  }
  return absl::OkStatus();
}

absl::Status TurnReader::ReadBlock(const std::string& role, const Json& block,
                                   const std::string& param) {
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(block, param));
  PF_ASSIGN_OR_RETURN(const std::string type, NeededText(fields, "type"));
  const absl::Status status =
      role == "user" ? ReadUserBlock(type, fields) : ReadAnswerBlock(type, fields);
  turn_begins_ = false;
  return status;
}

absl::Status TurnReader::ReadUserBlock(const std::string& type, Fields& fields) {
  if (type == "tool_result") return ReadResult(fields);
  if (type != "text") {
    return fields.Wrong(
        "type", StrCat("expected \"text\" or \"tool_result\" of a user, got \"", type, "\""));
  }
  PF_ASSIGN_OR_RETURN(const std::string text, NeededText(fields, "text"));
  AddUserText(text, turn_begins_ ? "\n\n" : "");
  return absl::OkStatus();
}

absl::Status TurnReader::ReadAnswerBlock(const std::string& type, Fields& fields) {
  if (type == "text") {
    PF_ASSIGN_OR_RETURN(const std::string text, NeededText(fields, "text"));
    list_.AddAnswer(text);
    return absl::OkStatus();
  }
  if (type == "thinking") {
    PF_ASSIGN_OR_RETURN(const std::string text, NeededText(fields, "thinking"));
    if (!text.empty()) list_.AddReasoning(text);
    return absl::OkStatus();
  }
  if (type == "redacted_thinking") return absl::OkStatus();  // nobody here can read it
  if (type == "tool_use") return ReadUse(fields);
  return fields.Wrong("type", StrCat("expected \"text\", \"thinking\", \"redacted_thinking\" or "
                                     "\"tool_use\" of an assistant, got \"",
                                     type, "\""));
}

absl::Status TurnReader::ReadUse(Fields& fields) {
  PF_ASSIGN_OR_RETURN(const std::string id, NeededText(fields, "id"));
  PF_ASSIGN_OR_RETURN(const std::string name, NeededText(fields, "name"));
  PF_ASSIGN_OR_RETURN(const auto input, fields.Object("input"));
  if (!input) return fields.Wrong("input", "expected an object, got none");
  list_.AddCall(id, name, Dump(*fields.Find("input")));
  return absl::OkStatus();
}

absl::Status TurnReader::ReadResult(Fields& fields) {
  PF_ASSIGN_OR_RETURN(const std::string id, NeededText(fields, "tool_use_id"));
  PF_ASSIGN_OR_RETURN(const auto is_error, fields.Flag("is_error"));
  std::string text;
  if (const Json* content = fields.Find("content")) {
    PF_ASSIGN_OR_RETURN(text, JoinedText(*content, fields.ParamOf("content"), {"text"}));
  }
  // Messages have no other place for it.
  if (is_error.value_or(false)) text = StrCat("Error: ", text);
  EndUser();
  if (list_.AddResult(id, text)) return absl::OkStatus();
  return fields.Wrong("tool_use_id",
                      StrCat("expected the id of a tool_use before it, got \"", id, "\""));
}

void TurnReader::AddUserText(const std::string& text, std::string_view between) {
  if (user_) {
    StrAppend(&*user_, between, text);
  } else {
    user_ = text;
  }
}

void TurnReader::EndUser() {
  if (user_) list_.AddUser(*user_);
  user_.reset();
}

absl::StatusOr<Json> TurnReader::Take() {
  EndUser();
  if (list_.last_role() == "assistant") {
    return BadParam("messages",
                    "expected the last one to be a user's: answers are not begun for the model");
  }
  return list_.Take();
}

}  // namespace

absl::StatusOr<Json> ReadTurns(Fields& fields) {
  const Json* messages = fields.Find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    return fields.Wrong("messages", StrCat("expected a list of one message at least, got ",
                                           messages == nullptr ? "none" : Found(*messages)));
  }
  TurnReader reader;
  PF_RETURN_IF_ERROR(reader.ReadSystem(fields));
  for (size_t i = 0; i < messages->size(); ++i) {
    PF_RETURN_IF_ERROR(reader.ReadTurn((*messages)[i], StrCat("messages[", i, "]")));
  }
  return reader.Take();
}

}  // namespace pagefuse::serve
