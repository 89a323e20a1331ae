// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/responses_items.h"

#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/conversation.h"
#include "pagefuse/serve/http_error.h"

namespace pagefuse::serve {
namespace {

absl::Status ReadMessageItem(Fields& fields, MessageList& list) {
  PF_ASSIGN_OR_RETURN(const auto role,
                      fields.OneOf("role", {"user", "assistant", "system", "developer"}));
  if (!role) return fields.Wrong("role", "expected one, got none");
  const Json* content = fields.Find("content");
  if (content == nullptr) return fields.Wrong("content", "expected a text, got none");
  PF_ASSIGN_OR_RETURN(const std::string text,
                      JoinedText(*content, fields.ParamOf("content"),
                                 {"input_text", "output_text", "text", "refusal"}));
  if (*role == "user") {
    list.AddUser(text);
  } else if (*role == "assistant") {
    list.AddWholeAnswer(text);
  } else {
    list.AddSystem(text);
  }
  return absl::OkStatus();
}

// Its text; where it has none, what sums it up.
absl::Status ReadReasoningItem(Fields& fields, MessageList& list) {
  std::string text;
  for (const char* name : {"content", "summary"}) {
    const Json* parts = fields.Find(name);
    if (parts == nullptr || !text.empty()) continue;
    PF_ASSIGN_OR_RETURN(
        text, JoinedText(*parts, fields.ParamOf(name), {"reasoning_text", "summary_text", "text"}));
  }
  if (!text.empty()) list.AddReasoning(text);
  return absl::OkStatus();
}

absl::Status ReadCallItem(Fields& fields, MessageList& list) {
  PF_ASSIGN_OR_RETURN(const std::string id, NeededText(fields, "call_id"));
  PF_ASSIGN_OR_RETURN(const std::string name, NeededText(fields, "name"));
  PF_ASSIGN_OR_RETURN(const std::string arguments, NeededText(fields, "arguments"));
  list.AddCall(id, name, arguments);
  return absl::OkStatus();
}

absl::Status ReadOutputItem(Fields& fields, MessageList& list) {
  PF_ASSIGN_OR_RETURN(const std::string id, NeededText(fields, "call_id"));
  const Json* output = fields.Find("output");
  if (output == nullptr) return fields.Wrong("output", "expected a text, got none");
  PF_ASSIGN_OR_RETURN(const std::string text, JoinedText(*output, fields.ParamOf("output"),
                                                         {"input_text", "output_text", "text"}));
  if (list.AddResult(id, text)) return absl::OkStatus();
  return fields.Wrong("call_id",
                      StrCat("expected the id of a function_call before it, got \"", id, "\""));
}

absl::Status ReadItem(const Json& item, const std::string& param, MessageList& list) {
  PF_ASSIGN_OR_RETURN(Fields fields, Fields::Of(item, param));
  PF_ASSIGN_OR_RETURN(const auto given, fields.Text("type"));
  const std::string type = given.value_or("message");
  if (type == "message") return ReadMessageItem(fields, list);
  if (type == "reasoning") return ReadReasoningItem(fields, list);
  if (type == "function_call") return ReadCallItem(fields, list);
  if (type == "function_call_output") return ReadOutputItem(fields, list);
  return fields.Wrong("type", StrCat("expected \"message\", \"reasoning\", \"function_call\" or "
                                     "\"function_call_output\", got \"",
                                     type, "\""));
}

}  // namespace

absl::StatusOr<Json> ReadItems(Fields& fields) {
  MessageList list;
  PF_ASSIGN_OR_RETURN(const auto instructions, fields.Text("instructions"));
  if (instructions) list.AddSystem(*instructions);
  const Json* input = fields.Find("input");
  if (input == nullptr || (!input->is_string() && !input->is_array())) {
    return fields.Wrong("input", StrCat("expected a text or a list of items, got ",
                                        input == nullptr ? "none" : Found(*input)));
  }
  if (input->is_string()) {
    list.AddUser(input->get<std::string>());
    return list.Take();
  }
  for (size_t i = 0; i < input->size(); ++i) {
    PF_RETURN_IF_ERROR(ReadItem((*input)[i], StrCat("input[", i, "]"), list));
  }
  if (input->empty()) return fields.Wrong("input", "expected one item at least, got none");
  return list.Take();
}

}  // namespace pagefuse::serve
