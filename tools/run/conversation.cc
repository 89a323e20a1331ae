// SPDX-License-Identifier: Apache-2.0
#include "tools/run/conversation.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "tools/cli/output.h"

#include "pagefuse/base/json_depth.h"
#include "pagefuse/base/new_file.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse::tools {
namespace {

using Json = nlohmann::ordered_json;

bool HasRole(const Json& message, std::string_view role) {
  return message["role"].get_ref<const std::string&>() == role;
}

// "" for a message that may stand at `place`.
std::string WrongMessage(const Json& messages, size_t place) {
  const Json& message = messages[place];
  const auto text = [&message](const char* key) {
    return message.is_object() && message.contains(key) && message[key].is_string();
  };
  if (!text("role") || !text("content")) return "expected the texts \"role\" and \"content\"";
  if (HasRole(message, "system") && place == 0) return "";
  const bool answers = place > 0 && HasRole(messages[place - 1], "user");
  const char* expected = answers ? "assistant" : "user";
  if (HasRole(message, expected)) return "";
  return StrCat("expected the role ", expected, ", got ", JsonText(message["role"]));
}

absl::Status CheckMessages(const Json& messages) {
  if (!messages.is_array()) return absl::InvalidArgumentError("expected a list of messages");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string wrong = WrongMessage(messages, i);
    if (!wrong.empty()) return absl::InvalidArgumentError(StrCat("message ", i, ": ", wrong));
  }
  if (!messages.empty() && HasRole(messages.back(), "user")) {
    return absl::InvalidArgumentError("expected an answer behind the last question");
  }
  return absl::OkStatus();
}

}  // namespace

std::string Conversation::system() const {
  return FirstTurn() == 0 ? std::string() : messages_[0]["content"].get<std::string>();
}

void Conversation::SetSystem(std::string_view text) {
  if (FirstTurn() == 1) messages_.erase(0);
  if (text.empty()) return;
  messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", text}});
}

void Conversation::Add(const char* role, std::string_view content) {
  messages_.push_back({{"role", role}, {"content", content}});
}

size_t Conversation::FirstTurn() const {
  return !messages_.empty() && HasRole(messages_[0], "system") ? 1 : 0;
}

int Conversation::turns() const {
  int count = 0;
  for (const Json& message : messages_) count += HasRole(message, "user") ? 1 : 0;
  return count;
}

std::string Conversation::Undo() {
  for (size_t i = messages_.size(); i-- > FirstTurn();) {
    const Json message = messages_[i];
    messages_.erase(i);
    if (HasRole(message, "user")) return message["content"];
  }
  return "";
}

bool Conversation::DropOldest() {
  if (turns() < 2) return false;
  const size_t first = FirstTurn();
  do {
    messages_.erase(first);
  } while (!HasRole(messages_[first], "user"));
  return true;
}

void Conversation::Clear() {
  messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(FirstTurn()), messages_.end());
}

absl::StatusOr<Conversation> Conversation::Load(const std::string& path) {
  const auto refuse = [&path](std::string_view what) {
    return absl::InvalidArgumentError(StrCat("\"", path, "\": ", what));
  };
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  if (IsNestedTooDeeply(text)) return refuse("expected a list of messages");
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return refuse("expected JSON with a list of messages");
  if (json.is_object() && json.contains("messages")) json = Json(json["messages"]);
  const absl::Status checked = CheckMessages(json);
  if (!checked.ok()) return refuse(StdView(checked.message()));
  Conversation conversation(std::string_view{});
  conversation.messages_ = std::move(json);
  return conversation;
}

absl::Status Conversation::Save(const std::string& path) const {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !IsSpecialFile(path) && !Load(path).ok()) {
    return absl::InvalidArgumentError(
        StrCat("\"", path, "\" is there and holds no conversation: expected another name"));
  }
  return WriteWholeFile(path, JsonText({{"messages", messages_}}, 1) + "\n");
}

}  // namespace pagefuse::tools
